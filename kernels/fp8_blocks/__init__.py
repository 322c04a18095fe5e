"""FP8 e4m3 with float32 scales: checkpoint weights in 128 x 128 blocks, cache rows in 128s.

Weights are as DeepSeek-V3.2 and GLM-5 checkpoints store them, `<name>_scale_inv` being multiplied.
"""

from __future__ import annotations

import torch
from torch import Tensor

from longctx.kernels.fp8_blocks import cpu, reference
from longctx.kernels.fp8_blocks.reference import BLOCK, E4M3_MAX

__all__ = [
    "BLOCK",
    "E4M3_MAX",
    "dequantise_rows",
    "dequantise_weight",
    "grid",
    "has_nan",
    "quantise_rows",
    "quantise_weight",
]


def grid(rows: int, columns: int) -> tuple[int, int]:
    """Shape of the scales of a weight `[rows, columns]`: `[576, 6144]` has `[5, 48]`."""
    return -(-rows // BLOCK), -(-columns // BLOCK)


def quantise_rows(x: Tensor, *, power_of_two: bool = False) -> tuple[Tensor, Tensor]:
    """Cache entries `x` `[N, d]` as e4m3 `[N, d]` and float32 scales `[N, ceil(d / 128)]`.

    Each run of 128 numbers of a row has its own scale, its largest magnitude / 448: a latent of
    512 takes 528 bytes, an index key of 128 takes 132. `power_of_two` rounds scales up to one, as
    `scale_fmt: ue8m0` asks. A run with a NaN or an infinity reads back as NaN.
    """
    rows, columns = x.shape
    runs = grid(rows, columns)[1]
    padded = torch.nn.functional.pad(x.float(), (0, runs * BLOCK - columns))
    blocks = padded.view(rows, runs, BLOCK)
    scales = reference.scales_of(blocks.abs().amax(-1), power_of_two)
    stored = reference.to_e4m3(blocks, scales[..., None])
    return stored.view(rows, runs * BLOCK)[:, :columns].contiguous(), scales


def dequantise_rows(stored: Tensor, scales: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """What `quantise_rows` stored, `[N, d]` in `dtype`. Raises `ValueError` for other shapes."""
    rows, columns = stored.shape
    if scales.shape != (rows, grid(rows, columns)[1]):
        raise ValueError(f"rows {(rows, columns)} and scales {tuple(scales.shape)} do not fit")
    return _times(stored, scales, dtype)


def quantise_weight(weight: Tensor, *, power_of_two: bool = False) -> tuple[Tensor, Tensor]:
    """A weight `[out, in]` as e4m3 and its float32 `scale_inv`, `grid(out, in)` in shape.

    A 128 x 128 block shares one scale; blocks at the far edges may be smaller. See
    `quantise_rows` for `power_of_two` and for numbers that are not finite.
    """
    rows, columns = weight.shape
    down, across = grid(rows, columns)
    padding = (0, across * BLOCK - columns, 0, down * BLOCK - rows)
    padded = torch.nn.functional.pad(weight.float(), padding)
    blocks = padded.view(down, BLOCK, across, BLOCK)
    scales = reference.scales_of(blocks.abs().amax((1, 3)), power_of_two)
    stored = reference.to_e4m3(blocks, scales[:, None, :, None]).view(padded.shape)
    return stored[:rows, :columns].contiguous(), scales


def dequantise_weight(
    stored: Tensor,
    scales: Tensor,
    dtype: torch.dtype = torch.float32,
    out: Tensor | None = None,
) -> Tensor:
    """`stored` `[out, in]` times its blocks' `scales`, in `dtype`, or written into `out`.

    Raises `ValueError` where the scales are not `grid(out, in)` in shape.
    """
    rows, columns = stored.shape
    if scales.shape != grid(rows, columns):
        raise ValueError(f"weight {(rows, columns)} and scales {tuple(scales.shape)} do not fit")
    return _times(stored, scales.repeat_interleave(BLOCK, dim=0)[:rows], dtype, out)


def has_nan(stored: Tensor) -> bool:
    """Whether e4m3 values hold a NaN, without converting them on a CPU."""
    if stored.device.type == "cpu":
        return cpu.has_nan(stored)
    return bool(stored.float().isnan().any())


def _times(stored: Tensor, scales: Tensor, dtype: torch.dtype, out: Tensor | None = None) -> Tensor:
    """e4m3 rows `[N, d]` times `scales` `[N, ceil(d / 128)]`, in `dtype` or into `out`."""
    if out is None:
        out = torch.empty(stored.shape, dtype=dtype, device=stored.device)
    if stored.device.type == "cpu":
        cpu.dequantise(stored, scales, out)
        return out
    return out.copy_(stored.float().mul_(reference.expand_columns(scales, stored.shape[1])))
