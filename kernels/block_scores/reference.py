"""The specification of block scores in plain torch, for any device and any size that fits."""

from __future__ import annotations

import torch
from torch import Tensor


def reference(q: Tensor, keys: Tensor, scales: Tensor | None, block: int) -> Tensor:
    """`max over the block's tokens of q . k / sqrt(d)`; arguments as in `block_scores`."""
    full = keys.float() if scales is None else keys.float() * scales.float()[:, None]
    scores = q.float() @ full.T / q.shape[-1] ** 0.5
    missing = -len(keys) % block
    scores = torch.nn.functional.pad(scores, (0, missing), value=float("-inf"))
    return scores.view(*scores.shape[:-1], -1, block).amax(dim=-1)
