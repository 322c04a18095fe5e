"""Token ids from outside, checked before a model runs on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from longctx.errors import DoesNotFitError


class Window(Protocol):
    """What a config says of ids: how many fit, and how many there are."""

    @property
    def max_positions(self) -> int: ...
    @property
    def vocab(self) -> int: ...


def checked_ids(token_ids: Sequence[int] | Tensor, config: Window) -> Tensor:
    """The ids `[T]` as a tensor.

    Raises `DoesNotFitError` beyond the model's window, `ValueError` for ids it does not have.
    """
    if len(token_ids) > config.max_positions:
        raise DoesNotFitError(
            f"{len(token_ids)} tokens do not fit the model's window of {config.max_positions}"
        )
    ids = torch.as_tensor(token_ids)
    if len(ids) and (int(ids.max()) >= config.vocab or int(ids.min()) < 0):
        raise ValueError(f"token ids must lie in 0..{config.vocab - 1}")
    return ids
