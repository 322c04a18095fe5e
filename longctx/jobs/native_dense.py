"""A layer of an IndexShare model with attention over every earlier token: what it is compared with.

The same weights and the same cached latents; keys and values of all heads are made from those, and
torch's own attention reads them, the fastest there is on a CPU.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.models.layers import rms_norm
from longctx.models.native.attention import head_queries, low_queries, remember
from longctx.models.native.cache import LayerCache
from longctx.models.native.config import NativeConfig
from longctx.models.native.counters import Counters
from longctx.models.native.layer import Layer
from longctx.models.native.moe import run_mlp

ROWS = 256  # queries in one call: its mask is [rows, keys]


@torch.inference_mode()
def run_dense_layer(
    layer: Layer,
    config: NativeConfig,
    x: Tensor,
    past: int,
    cache: LayerCache,
    counters: Counters,
) -> Tensor:
    """Rows `[T, hidden]` of `x` `[T, hidden]`, which follow `past` tokens of the cache.

    Counted are keys and values of the rows alone: those of earlier tokens, made anew here, would
    be kept by a cache of keys and values.
    """
    weights, count = layer.attention, len(x)
    normed = rms_norm(x, layer.input_norm, config.norm_eps)
    remember(weights, config, normed, past, cache, counters)
    tables = weights.rotary.tables(past, count, x.device)
    low = low_queries(weights, config, normed, counters)
    queries = torch.cat(head_queries(weights, config, low, tables, counters), dim=-1)
    keys, values = _keys_values(layer, config, cache.read(past + count, x.dtype))
    counters.batched("projections", count * config.kv_rank, layer.attention.kv_b.T)
    attended = torch.cat(
        [
            _attend(queries[start : start + ROWS], keys, values, past + start, config)
            for start in range(0, count, ROWS)
        ]
    )
    pairs = count * past + count * (count + 1) // 2
    per_pair = config.heads * (config.nope_dim + config.rope_dim + config.value_dim)
    counters.attended(pairs, per_pair)
    x = x + counters.product("projections", attended, weights.o(attended))
    normed = rms_norm(x, layer.post_norm, config.norm_eps)
    return x + run_mlp(layer.mlp, config, normed, counters)


def _keys_values(layer: Layer, config: NativeConfig, entries: Tensor) -> tuple[Tensor, Tensor]:
    """Keys `[heads, S, nope + rope]` and values `[heads, S, value]` of entries `[S, ...]`."""
    latent, rope_key = entries.split((config.kv_rank, config.rope_dim), dim=-1)
    made = F.linear(latent, layer.attention.kv_b).view(len(entries), config.heads, -1)
    nope, values = made.split((config.nope_dim, config.value_dim), dim=-1)
    keys = torch.cat((nope, rope_key[:, None].expand(-1, config.heads, -1)), dim=-1)
    return keys.transpose(0, 1), values.transpose(0, 1)


def _attend(
    queries: Tensor, keys: Tensor, values: Tensor, first: int, config: NativeConfig
) -> Tensor:
    """`[T, heads * value]` of queries `[T, heads, nope + rope]` at positions `first` on."""
    seen = first + len(queries)
    later = torch.ones(len(queries), seen, dtype=torch.bool).triu(first + 1)
    mask = torch.zeros(len(queries), seen, dtype=queries.dtype).masked_fill_(later, float("-inf"))
    out = F.scaled_dot_product_attention(
        queries.transpose(0, 1)[None],
        keys[None, :, :seen],
        values[None, :, :seen],
        attn_mask=mask,
        scale=config.softmax_scale,
    )
    return out[0].transpose(0, 1).flatten(1)
