"""The best-scored positions of every query row, exactly."""

from __future__ import annotations

import torch
from torch import Tensor

from longctx.kernels.index_select.reference import reference

__all__ = ["index_select", "reference"]


def index_select(scores: Tensor, k: int) -> Tensor:
    """Ascending positions of the `k` largest scores of each row, int32 `[R, min(k, S)]`.

    `scores` is float32 `[R, S]`. Of equal scores the one at the lower position is taken; a score
    of -inf never is, and rows with fewer than k others end in -1. Raises
    `FloatingPointError` for a NaN, which would otherwise stand for any position.
    """
    if scores.ndim != 2 or scores.dtype != torch.float32:
        raise ValueError(f"scores {tuple(scores.shape)} of {scores.dtype}")
    if k < 1:
        raise ValueError(f"the best {k} positions")
    if scores.device.type == "cpu" and scores.numel():
        from longctx.kernels.index_select.cpu import partitioned

        return partitioned(scores, min(k, scores.shape[1]))
    if scores.isnan().any():
        raise FloatingPointError("scores hold NaN")
    return reference(scores, k)
