"""Token by token: greedy or sampled continuation of a prompt, as ids and as text."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from longctx.models.decoder import Decoder, KVCache


def generate(
    decoder: Decoder,
    cache: KVCache,
    logits: Tensor,
    stop: frozenset[int],
    limit: int,
    temperature: float = 0.0,
    seed: int = 0,
) -> Iterator[tuple[int, float]]:
    """Yield `(token id, log-probability)` after a prompt whose last row gave `logits` `[vocab]`.

    Ends before a stop id, after `limit` tokens, or when the cache is full. Greedy at temperature
    0; otherwise sampled with a generator of its own, so that a seed repeats its answer.
    """
    random = torch.Generator(device="cpu").manual_seed(seed)
    for made in range(1, limit + 1):
        shares = logits.float().cpu().log_softmax(dim=-1)
        if temperature > 0:
            weights = ((shares - shares.max()) / temperature).softmax(dim=-1)
            token = int(torch.multinomial(weights, 1, generator=random))
        else:
            token = int(shares.argmax())
        if token in stop:
            return
        yield token, float(shares[token])
        if made == limit or cache.length >= cache.capacity:
            return  # nothing would read the next logits
        logits = decoder.forward([token], cache, last_only=True)[0]
