"""Sparse MLA by gathering: a few rows' entries at once, then two batched products."""

from __future__ import annotations

import torch
from torch import Tensor

from longctx.kernels.sparse_mla.packed import unpack

NUMBERS = 1 << 20  # float32 numbers gathered at once, 4 MB


def gathered(q: Tensor, entries: Tensor, indices: Tensor, rank: int, scale: float) -> Tensor:
    """As `sparse_mla`; the memory used does not depend on how many entries or rows there are."""
    rows, heads, width = q.shape
    k = indices.shape[1]
    out = torch.zeros(rows, heads, rank, dtype=q.dtype, device=q.device)
    if not k or not len(entries):
        return out
    step = max(1, NUMBERS // (k * width))
    for start in range(0, rows, step):
        part = indices[start : start + step]
        none = part < 0
        chosen = entries.index_select(0, part.clamp(min=0).flatten())
        chosen = unpack(chosen, rank) if chosen.dtype == torch.uint8 else chosen.float()
        chosen = chosen.view(len(part), k, width)
        scores = q[start : start + step].float().bmm(chosen.transpose(1, 2)).mul_(scale)
        scores.masked_fill_(none[:, None], float("-inf"))
        weights = scores.softmax(dim=-1)
        weights.masked_fill_(none.all(dim=1)[:, None, None], 0.0)
        out[start : start + step] = weights.bmm(chosen[:, :, :rank])
    return out
