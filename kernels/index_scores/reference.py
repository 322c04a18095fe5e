"""The specification of index scores in plain torch, for any size whose `[R, H, S]` fits."""

from __future__ import annotations

import torch
from torch import Tensor

from longctx.kernels.sparse_mla.packed import unpack


def reference(q: Tensor, keys: Tensor, weights: Tensor, first: int) -> Tensor:
    """Weighted sum over heads of `relu(q . k)`, -inf after each row's position."""
    if keys.dtype == torch.uint8:
        keys = unpack(keys, q.shape[-1])
    products = torch.einsum("rhd,sd->rhs", q.float(), keys.float()).relu()
    scores = (products * weights[:, :, None]).sum(dim=1)
    positions = torch.arange(first, first + len(q), device=q.device)[:, None]
    later = torch.arange(len(keys), device=q.device)[None] > positions
    return scores.masked_fill(later, float("-inf"))
