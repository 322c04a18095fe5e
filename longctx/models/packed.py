"""Weights in 4 bits beside the bf16 ones, for decoding on CPUs, where reading them is the cost.

Weights that came from a 4-bit file lie on a grid of 16 levels per 32 columns; that grid is found
again, so packing them loses no more than bf16 rounding did. Weights that lie on no such grid take
two planes: 8 bits. Packing takes seconds; `packed.safetensors` in the model's folder keeps it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from longctx.atomic import check_free, replace_file
from longctx.errors import DoesNotFitError
from longctx.models.decoder import Decoder, Products
from longctx.models.linear import PACKED_GROUP, Linear, PackedHead, PackedLinear
from longctx.models.sources import Progress
from longctx.models.weights.source import SINGLE_FILE

FORMAT_VERSION = 1
PACKED_FILE = "packed.safetensors"
PROJECTIONS = ("q", "k", "v", "o", "gate", "up", "down")
HEAD = "head"
LEVELS = (15, 14, 13, 12, 11, 10, 9, 8)  # steps between a group's extremes; fewer divide these
OFF_GRID = 0.1  # of a step: bf16 rounding stays below, weights of other grids reach a half
BLOCK_ROWS = 64  # rows whose codes the kernel keeps together
CHUNK_WEIGHTS = 1 << 20  # packed at a time: small enough to stay in a cache


@dataclass(frozen=True)
class _Job:
    """One product to pack: its name in the file, and in how many planes."""

    name: str
    exact: Linear
    planes: int

    @property
    def shapes(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        """The safetensors dtype and shape of each tensor the product is stored as, in order."""
        rows, columns = self.exact.weight.shape
        columns *= self.planes
        return {
            f"{self.name}.codes": ("U8", (rows, columns // 2)),
            f"{self.name}.scales": ("BF16", (columns // PACKED_GROUP, rows, 2)),
        }


def packed_products(
    decoder: Decoder, folder: Path, progress: Progress | None = None
) -> Products | None:
    """The packed products of `decoder`, mapped from `folder`, where they are written if missing.

    None where this CPU, dtype or model has no use for them, and where `folder` cannot take them:
    decoding is then as it was.
    """
    if not supported(decoder):
        return None
    path = folder / PACKED_FILE
    identity = _identity(folder)
    found = _open(decoder, path, identity)
    if found is None:
        try:
            _write(decoder, path, identity, progress)
        except (OSError, DoesNotFitError):
            return None
        found = _open(decoder, path, identity)
    return found


def supported(decoder: Decoder) -> bool:
    """Whether torch has the kernel for this device and dtype, in the layout that is written."""
    if decoder.device.type != "cpu" or decoder.dtype != torch.bfloat16:
        return False
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        return False
    codes = torch.arange(BLOCK_ROWS * PACKED_GROUP, dtype=torch.int32).view(BLOCK_ROWS, -1) * 7 % 16
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes, 1)
    ours = _laid_out(codes.view(1, BLOCK_ROWS, 1, PACKED_GROUP).permute(3, 0, 2, 1))
    return torch.equal(packed.flatten(), ours.flatten())


def _identity(folder: Path) -> dict[str, str]:
    """What a packed file must have been made from and for."""
    stat = (folder / SINGLE_FILE).stat()
    return {
        "format": str(FORMAT_VERSION),
        "torch": torch.__version__,
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "weights": f"{stat.st_size} {stat.st_mtime_ns}",
    }


def _linears(decoder: Decoder) -> Iterator[tuple[str, Linear]]:
    """Every product of the decoder that the kernel takes, by its name in the file."""
    for index, layer in enumerate(decoder.layers):
        for name in PROJECTIONS:
            yield f"{index}.{name}", getattr(layer, name)
    yield HEAD, decoder.head


def _fits(linear: Linear) -> bool:
    rows, columns = linear.weight.shape
    return rows % BLOCK_ROWS == 0 and columns % PACKED_GROUP == 0


def _open(decoder: Decoder, path: Path, identity: dict[str, str]) -> Products | None:
    """Map a packed file; None if it is missing, damaged, of another version or another model."""
    packed: dict[str, Linear] = {}
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            if file.metadata() != identity:
                return None
            for name, exact in _linears(decoder):
                kind = PackedHead if name == HEAD else PackedLinear
                packed[name] = exact
                if _fits(exact):
                    codes = file.get_tensor(f"{name}.codes")
                    packed[name] = kind(exact, codes, file.get_tensor(f"{name}.scales"))
    except (SafetensorError, OSError):
        return None
    layers = [
        replace(layer, **{name: packed[f"{index}.{name}"] for name in PROJECTIONS})
        for index, layer in enumerate(decoder.layers)
    ]
    return Products(layers, packed[HEAD])


def _write(
    decoder: Decoder, path: Path, identity: dict[str, str], progress: Progress | None
) -> None:
    """Write the packed file product by product. Raises `OSError`, `DoesNotFitError`."""
    jobs = [
        # a head needs no second plane: its best words are scored exactly
        _Job(name, exact, 1 if name == HEAD or on_grid(exact.weight) else 2)
        for name, exact in _linears(decoder)
        if _fits(exact)
    ]
    header: dict[str, object] = {"__metadata__": identity}
    end = 0
    for job in jobs:
        for name, (dtype, shape) in job.shapes.items():
            start, end = end, end + torch.Size(shape).numel() * (2 if dtype == "BF16" else 1)
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    blob = json.dumps(header).encode()
    blob += b" " * (-len(blob) % 64)
    check_free(path.parent, end, "the packed weights")
    done = 0
    with replace_file(path) as file:
        file.write(struct.pack("<Q", len(blob)) + blob)
        for job in jobs:
            for tensor in pack(job.exact.weight, job.planes):
                done += file.write(tensor.view(torch.uint8).numpy().data)
            if progress:
                progress("packing the weights", done, end)


def on_grid(weight: Tensor) -> bool:
    """Whether bf16 weights `[out, in]` came from 4 bits: 16 levels per 32 columns of a row."""
    _, _, _, missed = _fit(_groups(weight[:BLOCK_ROWS]).flatten(1), LEVELS)
    return bool((missed > OFF_GRID).float().mean() < 0.01)


@torch.inference_mode()
def pack(weight: Tensor, planes: int) -> tuple[Tensor, Tensor]:
    """Codes and scales (see `PackedLinear`) of weights `[out, in]`, `out` % 64 == `in` % 32 == 0.

    In one plane, groups that lie on a grid of 16 levels keep it and others are spread over their
    range; in two, every group has 256 levels.
    """
    rows, columns = weight.shape
    groups = columns // PACKED_GROUP
    codes = torch.empty(rows // BLOCK_ROWS, planes * columns, BLOCK_ROWS // 2, dtype=torch.uint8)
    scales = torch.empty(planes * groups, rows, 2, dtype=torch.bfloat16)
    levels = LEVELS if planes == 1 and on_grid(weight) else LEVELS[:1]
    step = max(1, CHUNK_WEIGHTS // (BLOCK_ROWS * columns)) * BLOCK_ROWS
    for start in range(0, rows, step):
        part = slice(start, min(start + step, rows))
        blocks = slice(part.start // BLOCK_ROWS, part.stop // BLOCK_ROWS)
        values = _groups(weight[part])
        shape, flat = values.shape, values.flatten(1)
        split = _one_plane(flat, levels) if planes == 1 else _two_planes(flat)
        for plane, (code, *scale_and_zero) in enumerate(split):
            codes[blocks, plane * columns : (plane + 1) * columns] = _laid_out(code.view(shape))
            for slot, value in enumerate(scale_and_zero):
                by_row = value.view(shape[1:]).transpose(0, 1).reshape(groups, -1)
                scales[plane * groups : (plane + 1) * groups, part, slot] = by_row
    return codes.view(rows, planes * columns // 2), scales


def _groups(weight: Tensor) -> Tensor:
    """float32 `[32, row blocks, groups, 64]` of `[out, in]`: a group runs down the first axis."""
    rows, columns = weight.shape
    shape = (rows // BLOCK_ROWS, BLOCK_ROWS, columns // PACKED_GROUP, PACKED_GROUP)
    return weight.view(shape).permute(3, 0, 2, 1).float().contiguous()


def _laid_out(codes: Tensor) -> Tensor:
    """The kernel's bytes `[row blocks, in, 32]` of codes `[32, row blocks, groups, 64]`.

    A byte holds one column of rows r and r + 32 of a block, r in the low half.
    """
    low, high = codes.to(torch.uint8).permute(1, 2, 0, 3).split(BLOCK_ROWS // 2, dim=-1)
    return (low | high << 4).flatten(1, 2)


def _fit(values: Tensor, levels: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Codes `[32, G]` from 0, least value, step and miss `[G]` of groups `[32, G]`.

    The number of steps between a group's extremes is the first of `levels` whose grid is within
    `OFF_GRID` steps of every weight, else the first of them all.
    """
    least, most = values.amin(0), values.amax(0)
    step = ((most - least) / levels[0]).clamp_min_(1e-20)
    exact = (values - least).div_(step)
    codes = exact.round()
    missed = exact.sub_(codes).abs_().amax(0)
    left = (missed > OFF_GRID).nonzero()[:, 0] if len(levels) > 1 else missed[:0]
    for level in levels[1:]:
        if not len(left):
            break
        tried = ((most - least)[left] / level).clamp_min_(1e-20)
        exact = (values[:, left] - least[left]).div_(tried)
        rounded = exact.round()
        off = exact.sub_(rounded).abs_().amax(0)
        good = off <= OFF_GRID
        hit = left[good]
        codes[:, hit], step[hit], missed[hit] = rounded[:, good], tried[good], off[good]
        left = left[~good]
    return codes, least, step, missed


def _one_plane(values: Tensor, levels: tuple[int, ...]) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Codes `[32, G]`, scales and zeros `[G]` that fit groups `[32, G]` best for those codes."""
    codes, _, step, _ = _fit(values, levels)
    mean, centre = values.mean(0), codes.mean(0)
    spread = codes - centre
    square = spread.square().sum(0)
    fitted = (spread * (values - mean)).sum(0) / square
    scale = torch.where(square > 0, fitted, step).bfloat16().float()
    return [(codes, scale, mean - scale * (centre - 8))]


def _two_planes(values: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
    """High and low half of 8-bit codes, each with its scales and zeros; see `_one_plane`."""
    least = values.amin(0)
    step = (values.amax(0) - least).mul_((1 + 2**-8) / 255).clamp_min_(1e-20).bfloat16().float()
    codes = (values - least).div_(step).round_().clamp_(0, 255)
    high = (codes / 16).floor_()
    zero = least + 136 * step  # both planes' codes count from -8
    rounded = zero.bfloat16().float()  # what rounding leaves goes into the other plane's zero
    return [(high, 16 * step, rounded), (codes.sub_(high * 16), step, zero - rounded)]
