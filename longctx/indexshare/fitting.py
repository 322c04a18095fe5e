"""Non-negative weights by gradient descent, for calibration's two looks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor


@torch.enable_grad()
def fit_weights(
    loss_of: Callable[[Tensor], Tensor], count: int, *, start: float, rate: float, steps: int
) -> tuple[np.ndarray, float]:
    """`count` weights, none below 0, that lower `loss_of(weights)`, and the loss they reach.

    Adam at learning rate `rate`, every weight from `start` on.
    """
    weights = torch.full((count,), start, requires_grad=True)
    optimiser = torch.optim.Adam([weights], lr=rate)
    loss: Tensor = torch.zeros(())
    for _ in range(steps):
        loss = loss_of(weights)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        with torch.no_grad():
            weights.clamp_(min=0)
    return weights.detach().numpy(), float(loss.detach())


def passage_loss(weights: Tensor, inputs: Tensor, target: Tensor, kinds: Sequence[str]) -> Tensor:
    """Cross-entropy of the passage; every kind of question counts the same.

    `inputs` `[questions, weights, blocks]`, `target` bool `[questions, blocks]`.
    """
    share = torch.tensor([1.0 / kinds.count(kind) for kind in kinds])
    scores = torch.einsum("h,nhb->nb", weights, inputs).log_softmax(dim=-1)
    right = scores.masked_fill(~target, float("-inf")).logsumexp(dim=-1)
    return -(share / share.sum() * right).sum()
