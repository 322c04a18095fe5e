"""Cache rows as bytes: e4m3 numbers, their float32 scales, then numbers kept in bf16.

A latent entry of GLM-5.2 (512 numbers and a rotary key of 64) takes 656 bytes, an index key of 128
numbers 132: the layouts of specification 3.2 and the ones servers use.
"""

from __future__ import annotations

import torch
from torch import Tensor

from longctx.kernels.fp8_blocks import BLOCK, dequantise_rows, quantise_rows


def packed_bytes(scaled: int, exact: int = 0) -> int:
    """Bytes of a row of `scaled` e4m3 numbers and `exact` bf16 ones."""
    return scaled + 4 * -(-scaled // BLOCK) + 2 * exact


def pack(scaled: Tensor, exact: Tensor | None = None) -> Tensor:
    """Rows `[N, d]`, and optionally `[N, e]` to be kept in bf16, as uint8 `[N, bytes]`."""
    numbers, scales = quantise_rows(scaled)
    parts = [numbers.view(torch.uint8), scales.contiguous().view(torch.uint8)]
    if exact is not None:
        parts.append(exact.to(torch.bfloat16).contiguous().view(torch.uint8))
    return torch.cat(parts, dim=1)


def unpack(rows: Tensor, scaled: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """What `pack` made of `[N, d]` and `[N, e]`, side by side in `dtype`; `scaled` is d."""
    scales = 4 * -(-scaled // BLOCK)
    numbers, factors, exact = rows.split((scaled, scales, rows.shape[1] - scaled - scales), dim=1)
    found = dequantise_rows(
        numbers.contiguous().view(torch.float8_e4m3fn),
        factors.contiguous().view(torch.float32),
        dtype,
    )
    if not exact.shape[1]:
        return found
    return torch.cat((found, exact.contiguous().view(torch.bfloat16).to(dtype)), dim=1)
