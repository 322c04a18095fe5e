"""Multi-head latent attention over the tokens an indexer chose (specification 3.1).

Two forms of the same sum: *expanded* gives every head its own keys and values, cheapest where a
prompt's first rows attend to all before them; *absorbed* moves those weights to the queries, so
that rows that chose few tokens read their latents alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.kernels.sparse_mla import sparse_mla
from longctx.models.layers import rms_norm
from longctx.models.native.cache import LayerCache
from longctx.models.native.config import NativeConfig
from longctx.models.native.counters import Counters
from longctx.models.native.indexer import Indexer, index_keys, load_indexer, select
from longctx.models.native.rope import Rotary, rotate
from longctx.models.native.source import NativeWeights, Product


@dataclass(frozen=True)
class Attention:
    """One layer's attention weights; `kv_b` dense `[heads * (nope_dim + value_dim), kv_rank]`."""

    q_a: Product
    q_a_norm: Tensor
    q_b: Product
    kv_a: Product
    kv_a_norm: Tensor
    kv_b: Tensor
    o: Product
    indexer: Indexer | None
    rotary: Rotary


def load_attention(source: NativeWeights, config: NativeConfig, layer: int) -> Attention:
    """Take the attention of layer `layer` from the source, with its indexer if it is full."""
    prefix = f"model.layers.{layer}.self_attn."
    heads, rank = config.heads, config.kv_rank
    per_head = config.nope_dim + config.value_dim

    def linear(name: str, out: int, in_: int) -> Product:
        return source.linear(f"{prefix}{name}.weight", out, in_)

    return Attention(
        q_a=linear("q_a_proj", config.q_rank, config.hidden),
        q_a_norm=source.tensor(prefix + "q_a_layernorm.weight", (config.q_rank,)),
        q_b=linear("q_b_proj", heads * (config.nope_dim + config.rope_dim), config.q_rank),
        kv_a=linear("kv_a_proj_with_mqa", rank + config.rope_dim, config.hidden),
        kv_a_norm=source.tensor(prefix + "kv_a_layernorm.weight", (rank,)),
        kv_b=linear("kv_b_proj", heads * per_head, rank).dense(),
        o=linear("o_proj", config.hidden, heads * config.value_dim),
        indexer=load_indexer(source, config, layer) if config.full[layer] else None,
        rotary=Rotary.of(config.rope, config.rope_dim),
    )


def remember(
    weights: Attention,
    config: NativeConfig,
    normed: Tensor,
    past: int,
    cache: LayerCache,
    counters: Counters,
) -> None:
    """Cache what normed rows `[T, hidden]`, which follow `past` others, leave to later ones.

    That is their latents, their rotary keys and, on a full layer, their index keys.
    """
    tables = weights.rotary.tables(past, len(normed), normed.device)
    low = counters.product("projections", normed, weights.kv_a(normed))
    latent, rope_key = low.split((config.kv_rank, config.rope_dim), dim=-1)
    latent = rms_norm(latent.contiguous(), weights.kv_a_norm, config.latent_norm_eps)
    cache.write(past, latent, rotate(rope_key, *tables, config.rope_interleaved))
    if weights.indexer is not None:
        keys = index_keys(weights.indexer, config, normed, tables, counters)
        cache.write_index(past, keys)


def low_queries(
    weights: Attention, config: NativeConfig, normed: Tensor, counters: Counters
) -> Tensor:
    """Normed low-rank queries `[T, q_rank]` of normed rows `[T, hidden]`."""
    low = counters.product("projections", normed, weights.q_a(normed))
    return rms_norm(low, weights.q_a_norm, config.latent_norm_eps)


def head_queries(
    weights: Attention,
    config: NativeConfig,
    low: Tensor,
    tables: tuple[Tensor, Tensor],
    counters: Counters,
) -> tuple[Tensor, Tensor]:
    """The heads' queries `[T, heads, nope_dim]` and `[T, heads, rope_dim]`, these rotated, of
    `low_queries` `[T, q_rank]` at the positions of `tables`."""
    queries = counters.product("projections", low, weights.q_b(low))
    queries = queries.view(len(low), config.heads, -1)
    nope, rope = queries.split((config.nope_dim, config.rope_dim), dim=-1)
    return nope, rotate(rope, *tables, config.rope_interleaved)


def attend(
    weights: Attention,
    config: NativeConfig,
    normed: Tensor,
    first: int,
    cache: LayerCache,
    indices: Tensor | None,
    counters: Counters,
) -> tuple[Tensor, Tensor]:
    """Attention output `[T, hidden]` of normed rows `[T, hidden]` at positions `first` on.

    `remember` has cached the rows. `indices` int32 `[T, k]` are the full layer's for the same rows,
    and unused on a full layer; those used are returned with the output.
    """
    count = len(normed)
    tables = weights.rotary.tables(first, count, normed.device)
    low = low_queries(weights, config, normed, counters)
    if weights.indexer is not None:
        indices = select(weights.indexer, config, normed, low, tables, first, cache, counters)
    elif indices is None or len(indices) != count:
        raise ValueError(f"a shared layer needs its full layer's choice for the same {count} rows")
    nope, rope = head_queries(weights, config, low, tables, counters)
    dense = min(count, config.index_topk) if first == 0 else 0
    values = torch.cat(
        (
            _expanded(weights, config, nope[:dense], rope[:dense], cache, counters),
            _absorbed(
                weights, config, nope[dense:], rope[dense:], indices[dense:], cache, counters
            ),
        )
    )
    return counters.product("projections", values, weights.o(values)), indices


def _expanded(
    weights: Attention,
    config: NativeConfig,
    nope: Tensor,
    rope: Tensor,
    cache: LayerCache,
    counters: Counters,
) -> Tensor:
    """Rows `[T, heads, ...]` at positions 0..T-1 over all before them: `[T, heads * value]`."""
    count = len(nope)
    if not count:
        return nope.new_empty(0, config.heads * config.value_dim)
    entries = cache.read(count, nope.dtype)
    latent, rope_key = entries.split((config.kv_rank, config.rope_dim), dim=-1)
    pairs = counters.product("projections", latent, F.linear(latent, weights.kv_b))
    keys, values = pairs.view(count, config.heads, -1).split(
        (config.nope_dim, config.value_dim), dim=-1
    )
    rope_key = rope_key[:, None].expand(-1, config.heads, -1)
    queries, keys = torch.cat((nope, rope), dim=-1), torch.cat((keys, rope_key), dim=-1)
    width = max(queries.shape[-1], config.value_dim)  # equal sizes, or torch keeps all scores
    q, k, v = (_widened(x, width).transpose(0, 1)[None] for x in (queries, keys, values))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=config.softmax_scale)
    per_pair = config.heads * (config.nope_dim + config.rope_dim + config.value_dim)
    counters.attended(count * (count + 1) // 2, per_pair)
    return out[0, :, :, : config.value_dim].transpose(0, 1).flatten(1)


def _widened(x: Tensor, width: int) -> Tensor:
    return F.pad(x, (0, width - x.shape[-1]))


def _absorbed(
    weights: Attention,
    config: NativeConfig,
    nope: Tensor,
    rope: Tensor,
    indices: Tensor,
    cache: LayerCache,
    counters: Counters,
) -> Tensor:
    """Rows `[T, heads, ...]` over their chosen `indices` `[T, k]`: `[T, heads * value_dim]`."""
    per_head = weights.kv_b.view(config.heads, -1, config.kv_rank)
    to_key, to_value = per_head.split((config.nope_dim, config.value_dim), dim=1)
    moved = nope.transpose(0, 1).bmm(to_key).transpose(0, 1)  # [T, heads, kv_rank]
    counters.batched("projections", nope.numel(), moved)
    latents = sparse_mla(
        torch.cat((moved, rope), dim=-1),
        cache.entries,
        indices,
        config.kv_rank,
        config.softmax_scale,
    )
    chosen = int((indices >= 0).sum())
    counters.attended(chosen, config.heads * (config.entry_dim + config.kv_rank))
    out = latents.transpose(0, 1).bmm(to_value.transpose(1, 2))  # [heads, T, value_dim]
    counters.batched("projections", latents.numel(), out)
    return out.transpose(0, 1).flatten(1)
