"""FP8 with scales in plain torch: what every faster path must equal.

A stored number means `e4m3 * scale`, also where a checkpoint calls the scale `scale_inv`.
"""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 128  # numbers that share a scale along a row; of weights, rows and columns of a tile
E4M3_MAX = 448.0
_LEAST_SCALE = 2.0**-126  # a smaller one would be subnormal, and dividing by it could overflow


def expand_columns(scales: Tensor, columns: int) -> Tensor:
    """The scale of every number `[N, columns]` of runs `[N, ceil(columns / 128)]`."""
    return scales.repeat_interleave(BLOCK, dim=1)[:, :columns]


def scales_of(largest: Tensor, power_of_two: bool) -> Tensor:
    """float32 scales under which magnitudes up to `largest` fit e4m3; 1 where all are zero.

    NaN and infinity stay what they are, so that a block which holds one reads back as NaN.
    """
    scales = (largest / E4M3_MAX).clamp_min(_LEAST_SCALE)
    if power_of_two:
        fraction, exponent = torch.frexp(scales)
        up = torch.ldexp(torch.ones_like(scales), exponent - (fraction == 0.5).int())
        scales = torch.where(scales.isfinite(), up, scales)
    return torch.where(largest == 0, torch.ones_like(scales), scales)


def to_e4m3(x: Tensor, scales: Tensor) -> Tensor:
    """`x / scales`, rounded to nearest even and kept inside the format's range."""
    return (x / scales).clamp_(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)


def dequantise(stored: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """`stored` `[N, d]` times `scales` `[N, ceil(d / 128)]` in float32, rounded once to `dtype`."""
    return (stored.float() * expand_columns(scales, stored.shape[1])).to(dtype)
