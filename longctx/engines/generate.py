"""Token by token: greedy or sampled continuation of a prompt, as ids and as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor


class Cache(Protocol):
    """Holds `length` tokens, and room for `capacity`."""

    length: int

    @property
    def capacity(self) -> int: ...


class Steps(Protocol):
    """A decoder, dense or native, with a cache of its own kind."""

    def forward(self, tokens: Sequence[int], cache: Any, *, last_only: bool) -> Tensor: ...


def generate(
    decoder: Steps,
    cache: Cache,
    logits: Tensor,
    stop: frozenset[int],
    limit: int,
    temperature: float = 0.0,
    seed: int = 0,
    top_p: float = 1.0,
) -> Iterator[tuple[int, float]]:
    """Yield `(token id, log-probability)` after a prompt whose last row gave `logits` `[vocab]`.

    Ends before a stop id, after `limit` tokens, or when the cache is full. Greedy at temperature
    0; otherwise sampled with a generator of its own, so that a seed repeats its answer, from the
    likeliest words that together hold `top_p` (arXiv 1904.09751).
    """
    random = torch.Generator(device="cpu").manual_seed(seed)
    for made in range(1, limit + 1):
        shares = logits.float().cpu().log_softmax(dim=-1)
        if temperature > 0:
            weights = ((shares - shares.max()) / temperature).softmax(dim=-1)
            weights = _nucleus(weights, top_p) if top_p < 1 else weights
            token = int(torch.multinomial(weights, 1, generator=random))
        else:
            token = int(shares.argmax())
        if token in stop:
            return
        yield token, float(shares[token])
        if made == limit or cache.length >= cache.capacity:
            return  # nothing would read the next logits
        logits = decoder.forward([token], cache, last_only=True)[0]


def _nucleus(weights: Tensor, top_p: float) -> Tensor:
    """`weights` `[vocab]` without the tail behind the first words that hold `top_p` of it."""
    ordered, places = weights.sort(descending=True, stable=True)
    before = ordered.cumsum(dim=0) - ordered
    return torch.zeros_like(weights).scatter_(0, places, ordered.where(before < top_p, 0.0))
