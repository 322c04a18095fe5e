"""Which earlier tokens the indexers of a native model would pick for given rows: the evidence.

The rows are run again over the cache that already holds them, and every full layer is asked for its
best few. Within top-k tokens a model attends to everything; its indexers still rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from longctx.models.layers import rms_norm
from longctx.models.native.attention import low_queries
from longctx.models.native.cache import NativeCache
from longctx.models.native.counters import Counters
from longctx.models.native.decoder import NativeDecoder
from longctx.models.native.indexer import select
from longctx.models.native.layer import run_layer


@torch.inference_mode()
def index_choices(
    decoder: NativeDecoder, tokens: Sequence[int], first: int, cache: NativeCache, most: int
) -> list[Tensor]:
    """For each full layer the `most` best positions of every row, int32 `[T, most]`, -1 none.

    `tokens` stand at positions `first` on and are in the cache, which is left as it was. The
    operations of this are not counted: the answer was computed without it.
    """
    config, apart = decoder.config, Counters()
    narrow = replace(config, index_topk=min(most, config.index_topk))
    x, indices = decoder.embed(tokens), None
    found = []
    for index, layer in enumerate(decoder.layers):
        attention = layer.attention
        if attention.indexer is not None:
            normed = rms_norm(x, layer.input_norm, config.norm_eps)
            low = low_queries(attention, config, normed, apart)
            tables = attention.rotary.tables(first, len(x), x.device)
            held = cache.layers[index]
            found.append(select(attention.indexer, narrow, normed, low, tables, first, held, apart))
        x, indices = run_layer(
            layer, config, x, first, cache.layers[index], indices, counters=apart
        )
    return found
