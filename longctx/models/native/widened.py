"""Weights widened once and held, for a layer that every chunk of a long prompt goes through.

A source hands out FP8 and GGUF products that widen their weight anew in every call; here the first
call keeps what it made. The numbers are the same to the bit.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.models.native.source import NativeWeights, Product

TILE_ROWS = 512  # as in the sources: another cut of a product could round otherwise


class WidenedWeights:
    """The tensors of `source`, its products held in its dtype from their first call on."""

    def __init__(self, source: NativeWeights):
        self._source = source

    def names(self) -> frozenset[str]:
        return self._source.names()

    def tensor(self, name: str, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Tensor:
        return self._source.tensor(name, shape, dtype)

    def linear(self, name: str, out: int, in_: int, /) -> Product:
        return WidenedProduct(self._source.linear(name, out, in_))


class WidenedProduct:
    """`x @ weight.T`; the weight `[out, in]` takes memory once it has been used."""

    __slots__ = ("_product", "_weight")

    def __init__(self, product: Product):
        self._product = product
        self._weight: Tensor | None = None

    def __call__(self, x: Tensor, /) -> Tensor:
        weight = self.dense()
        out = x.new_empty(len(x), len(weight))
        for start in range(0, len(weight), TILE_ROWS):
            tile = slice(start, start + TILE_ROWS)
            out[:, tile] = F.linear(x, weight[tile])
        return out

    def dense(self) -> Tensor:
        if self._weight is None:
            self._weight = self._product.dense()
        return self._weight
