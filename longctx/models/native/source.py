"""What the native decoder asks of a place where weights come from."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class Product(Protocol):
    """A matrix product whose weight `[out, in]` may be stored in another form."""

    def __call__(self, x: Tensor, /) -> Tensor:
        """`x @ weight.T` of rows `[N, in]`."""
        ...

    def dense(self) -> Tensor:
        """The weight `[out, in]` in the source's dtype."""
        ...


class NativeWeights(Protocol):
    """Tensors of a checkpoint by their names in specification section 2."""

    def names(self) -> frozenset[str]: ...

    def tensor(self, name: str, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Tensor:
        """The tensor in `dtype`, or the source's; `ModelError` when missing or misshapen."""
        ...

    def linear(self, name: str, out: int, in_: int, /) -> Product:
        """The product by the weight `name` (its whole name), `[out, in]`."""
        ...
