"""Rotation of the rotary parts: interleaved or half-split pairs, by absolute positions.

A pair keeps its place: what is cached has the layout of the checkpoint's projections, which is
that of servers (transformers moves interleaved pairs apart, with the same scores).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from longctx.errors import ModelError
from longctx.models.config import RopeConfig
from longctx.models.rope import inverse_frequencies


@dataclass(frozen=True)
class Rotary:
    """Angles of a token: its position times `frequencies`, float32 `[rope_dim / 2]`."""

    frequencies: Tensor
    factor: float

    @classmethod
    def of(cls, config: RopeConfig, rope_dim: int) -> Rotary:
        """Frequencies of a config; `ModelError` where its scaling lacks or misstates a value."""
        try:
            frequencies, factor, _ = inverse_frequencies(config, rope_dim, 1)
        except (KeyError, TypeError, ValueError, ArithmeticError) as error:
            raise ModelError(
                f"the model's {config.kind} rope scaling lacks or misstates {error}; fetch it again"
            ) from None
        return cls(frequencies, factor)

    def tables(self, first: int, count: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """cos and sin, float32 `[count, rope_dim / 2]`, of positions from `first` on."""
        positions = torch.arange(first, first + count, dtype=torch.float32)
        angles = torch.outer(positions, self.frequencies)
        return (angles.cos() * self.factor).to(device), (angles.sin() * self.factor).to(device)


def rotate(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """Rotate `x` `[T, ..., rope_dim]` by `[T, rope_dim / 2]` tables; in float32, to x's dtype.

    Pairs are numbers 2i and 2i + 1 if `interleaved`, else i and i + rope_dim / 2.
    """
    middle = (1,) * (x.ndim - 2)
    cos, sin = (table.view(len(table), *middle, -1) for table in (cos, sin))
    wide = x.float()
    if interleaved:
        a, b = wide[..., 0::2], wide[..., 1::2]
        return torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2).to(x.dtype)
    a, b = wide.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)
