"""The leader pass as its docstrings state it, a token at a time: the answer to compare with.

A token reads the preamble, the chunk before its own and its own chunk up to itself. Positions
count from 0 through what it reads, so only distances inside that stretch matter.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from longctx.models import layers as L
from longctx.models.decoder import Decoder, attend
from longctx.models.rope import rotate

Layers = list[tuple[Tensor, Tensor]]


def readable(token: int, sinks: int, window: int) -> list[int]:
    """The positions a token reads, itself included; `token` counts from the preamble's start."""
    if token < sinks:
        return list(range(token + 1))
    chunk = (token - sinks) // window
    first = sinks + max(chunk - 1, 0) * window
    return [*range(sinks), *range(first, token + 1)]


@torch.inference_mode()
def naive_leader(
    decoder: Decoder, preamble: Sequence[int], document: Sequence[int], window: int, last: int
) -> Layers:
    """Un-rotated queries and keys `[T, heads, d]` of a document in layers 0..`last`."""
    config, sinks = decoder.config, len(preamble)
    x = decoder.embed([*preamble, *document])
    cos, sin = decoder.rope.tables(sinks + 2 * window)
    found: Layers = []
    for layer in decoder.layers[: last + 1]:
        normed = L.rms_norm(x, layer.input_norm, config.norm_eps)
        q, k = L.queries(layer, config, normed), L.keys(layer, config, normed)
        v = L.values(layer, config, normed)
        found.append((q[sinks:], k[sinks:]))
        rows = []
        for token in range(len(x)):
            read = readable(token, sinks, window)
            at = range(len(read))
            keys = rotate(k[read].transpose(0, 1), cos[at], sin[at])
            query = rotate(q[token], cos[at[-1]], sin[at[-1]])
            rows.append(attend(query[:, None], keys, v[read].transpose(0, 1)))
        x = L.finish(layer, config, x, torch.cat(rows))
    return found
