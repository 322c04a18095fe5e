"""The specification of sparse MLA in plain torch: dense scores, everything not chosen masked."""

from __future__ import annotations

import torch
from torch import Tensor

from longctx.kernels.sparse_mla.packed import unpack


def reference(q: Tensor, entries: Tensor, indices: Tensor, rank: int, scale: float) -> Tensor:
    """Softmax over the chosen entries only; rows without any give zeros."""
    if entries.dtype == torch.uint8:
        entries = unpack(entries, rank)
    chosen = torch.zeros(len(q), len(entries) + 1, dtype=torch.bool, device=q.device)
    chosen.scatter_(1, indices.long() % (len(entries) + 1), True)  # -1 goes to the extra column
    scores = torch.einsum("rhd,sd->rhs", q.float(), entries.float()) * scale
    scores = scores.masked_fill(~chosen[:, None, :-1], float("-inf"))
    weights = scores.softmax(dim=-1).nan_to_num(0.0)
    return (weights @ entries[:, :rank].float()).to(q.dtype)
