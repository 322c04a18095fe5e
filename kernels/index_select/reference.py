"""The specification of index selection in plain torch: a stable sort of every row."""

from __future__ import annotations

import torch
from torch import Tensor


def reference(scores: Tensor, k: int) -> Tensor:
    """The first `k` of a stable descending sort, without those of -inf, in ascending order."""
    total = scores.shape[1]
    best = torch.argsort(scores, dim=1, descending=True, stable=True)[:, :k]
    empty = scores.gather(1, best) == float("-inf")
    positions = best.masked_fill(empty, total).sort(dim=1).values
    return positions.masked_fill(positions == total, -1).int()
