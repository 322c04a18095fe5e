"""FP8 to float on CPUs without a conversion of every number.

An e4m3 byte moved into the upper bits of a half float is that number times 2**-8, subnormals
included. Buffers are used again from tile to tile: fresh memory costs more than the arithmetic.
"""

from __future__ import annotations

import torch
from torch import Tensor

from longctx.kernels.fp8_blocks import reference
from longctx.kernels.fp8_blocks.reference import BLOCK

_TILE_NUMBERS = 1 << 17  # widened at once: 0.8 MB of buffers stay in a core's own cache
_LIFT = 2.0**8  # what the moved bits are too small by
_MOVE = 128  # as an integer product, which wraps as a shift does and is twice as fast
_SIGN_AND_LOW = -0x4001  # as int16: every bit but the one the sign was extended into
_MAGNITUDE = 0x7F  # of a byte; all ones is e4m3's NaN, which moved bits would make 480


def dequantise(stored: Tensor, scales: Tensor, out: Tensor) -> None:
    """`stored` `[N, d]` e4m3 times `scales` `[N, ceil(d / 128)]`, rounded once into `out`."""
    rows, columns = stored.shape
    step = max(1, _TILE_NUMBERS // max(columns, 1))
    half = torch.empty(min(step, rows), columns, dtype=torch.int16)
    wide = torch.empty(min(step, rows), columns, dtype=torch.float32)
    for start in range(0, rows, step):
        part, runs = stored[start : start + step], scales[start : start + step]
        found = wide[: len(part)]
        if has_nan(part):
            torch.mul(part.float(), reference.expand_columns(runs, columns), out=found)
        else:
            _widen(part, runs * _LIFT, half[: len(part)], found)
        out[start : start + step] = found


def _widen(stored: Tensor, scales: Tensor, half: Tensor, found: Tensor) -> None:
    rows, columns = stored.shape
    half.copy_(stored.view(torch.int8))
    torch.mul(half, _MOVE, out=half)
    torch.bitwise_and(half, _SIGN_AND_LOW, out=half)
    found.copy_(half.view(torch.float16))
    if columns % BLOCK:
        found.mul_(reference.expand_columns(scales, columns))
    else:
        found.view(rows, -1, BLOCK).mul_(scales[..., None])


def has_nan(stored: Tensor) -> bool:
    """Whether e4m3 values hold a NaN."""
    magnitudes = stored.view(torch.uint8).bitwise_and(_MAGNITUDE)
    return bool(magnitudes.numel()) and int(magnitudes.amax()) == _MAGNITUDE
