"""Operations and cache bytes of IndexShare decoders, in closed form and exact.

A multiply and an add count as two. Norms, activations, softmax and the choice of the best scores
are left out. `position` is the number of keys a query may read, itself included. No tensors here;
`python -m longctx.accounting.native` prints what the published 2.9x consists of.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from fractions import Fraction
from math import ceil
from typing import Protocol

from longctx.models.weights.native_names import BLOCK, NativeSizes

CLAIMED_RATIO = Fraction(29, 10)  # at CLAIMED_POSITION, by the makers of GLM-5.2
CLAIMED_POSITION = 1 << 20
POSITIONS = (131_072, 204_800, CLAIMED_POSITION)
SCALE_BYTES = 4  # a float32 scale of 128 FP8 numbers


class Sizes(NativeSizes, Protocol):
    """What the formulas need beside the sizes of tensors; a `NativeConfig` has it all."""

    @property
    def index_topk(self) -> int: ...
    @property
    def experts_per_token(self) -> int: ...


@dataclass(frozen=True)
class Flops:
    """Floating point operations by part; `core` is q.k and the weighted values."""

    projections: int
    core: int
    indexer: int
    mlp: int
    head: int

    @property
    def total(self) -> int:
        return sum(getattr(self, field.name) for field in fields(self))

    @property
    def base(self) -> int:
        """All that does not depend on the position."""
        return self.projections + self.mlp + self.head


def projections(sizes: Sizes) -> int:
    """One layer and token: to the low ranks, up from them, and out of attention."""
    heads, hidden = sizes.heads, sizes.hidden
    query = hidden * sizes.q_rank + sizes.q_rank * heads * (sizes.nope_dim + sizes.rope_dim)
    latent = hidden * (sizes.kv_rank + sizes.rope_dim)
    keys_values = sizes.kv_rank * heads * (sizes.nope_dim + sizes.value_dim)
    return 2 * (query + latent + keys_values + heads * sizes.value_dim * hidden)


def core_per_key(sizes: Sizes, absorbed: bool = False) -> int:
    """One query with one key in one layer: q.k and the weighted value, all heads.

    `absorbed` reads the latent itself instead of keys and values made from it.
    """
    rank, rope = sizes.kv_rank, sizes.rope_dim
    width = 2 * rank + rope if absorbed else sizes.nope_dim + rope + sizes.value_dim
    return 2 * sizes.heads * width


def indexer_fixed(sizes: Sizes) -> int:
    """One full layer and token: making the index queries, key and head weights."""
    wide = sizes.index_heads * sizes.index_dim
    made = sizes.q_rank * wide + sizes.hidden * (sizes.index_dim + sizes.index_heads)
    return 2 * made


def indexer_per_key(sizes: Sizes) -> int:
    """One index query with one index key in one full layer, all index heads."""
    return 2 * sizes.index_heads * sizes.index_dim


def mlp(sizes: Sizes) -> int:
    """One token through the MLPs of all layers: dense ones, and experts with their router."""
    active = sizes.experts_per_token + sizes.shared_experts
    dense = 6 * sizes.hidden * sizes.intermediate
    sparse = 6 * sizes.hidden * sizes.expert_intermediate * active
    sparse += 2 * sizes.hidden * sizes.experts
    layers = sizes.sparse_mlp.count(True)
    return layers * sparse + (sizes.layers - layers) * dense


def head(sizes: Sizes) -> int:
    """The logits of one token."""
    return 2 * sizes.hidden * sizes.vocab


def per_token(
    sizes: Sizes,
    position: int,
    *,
    absorbed: bool = False,
    every_layer: bool = False,
    dense: bool = False,
) -> Flops:
    """The token that reads `position` keys.

    `every_layer` counts an indexer in each layer, as models without shared layers have; `dense`
    counts attention over every key and no indexer.
    """
    return _flops(sizes, 1, position, min(position, sizes.index_topk), absorbed, every_layer, dense)


def prefill(
    sizes: Sizes,
    tokens: int,
    *,
    absorbed: bool = False,
    every_layer: bool = False,
    dense: bool = False,
) -> Flops:
    """The sum of `per_token` over a text of `tokens`, with logits of every one."""
    read = tokens * (tokens + 1) // 2
    short = min(tokens, sizes.index_topk)
    selected = short * (short + 1) // 2 + (tokens - short) * sizes.index_topk
    return _flops(sizes, tokens, read, selected, absorbed, every_layer, dense)


def _flops(
    sizes: Sizes,
    tokens: int,
    read: int,
    selected: int,
    absorbed: bool,
    every_layer: bool,
    dense: bool,
) -> Flops:
    """`tokens` that may read `read` keys together, of which `selected` are selected."""
    keys = read if dense else selected
    indexers = 0 if dense else sizes.layers if every_layer else sizes.full.count(True)
    return Flops(
        projections=tokens * sizes.layers * projections(sizes),
        core=sizes.layers * core_per_key(sizes, absorbed) * keys,
        indexer=indexers * (tokens * indexer_fixed(sizes) + indexer_per_key(sizes) * read),
        mlp=tokens * mlp(sizes),
        head=tokens * head(sizes),
    )


def ratio(
    sizes: Sizes, position: int, *, absorbed: bool = False, full_layers: Fraction | None = None
) -> Fraction:
    """Operations of a token with an indexer in every layer over those with shared ones.

    `full_layers` counts as many indexers instead of the config's own.
    """
    every = per_token(sizes, position, absorbed=absorbed, every_layer=True)
    full = sizes.full.count(True) if full_layers is None else full_layers
    shared = every.total - every.indexer + every.indexer * Fraction(full) / sizes.layers
    return every.total / shared


def full_layers_for(
    sizes: Sizes, position: int, wanted: Fraction, *, absorbed: bool = False
) -> Fraction:
    """How many indexers may be left for `ratio` to be `wanted`; below 0 where none may."""
    every = per_token(sizes, position, absorbed=absorbed, every_layer=True)
    spare = every.total / wanted - (every.total - every.indexer)
    return spare * sizes.layers / every.indexer


def latent_bytes(sizes: Sizes, fp8: bool = False) -> int:
    """Cache of one token over all layers: latents and rotary keys, bf16.

    With `fp8`, latents are FP8 with a scale per 128 and rotary keys stay bf16.
    """
    latent = _fp8_bytes(sizes.kv_rank) if fp8 else 2 * sizes.kv_rank
    return sizes.layers * (latent + 2 * sizes.rope_dim)


def index_bytes(sizes: Sizes, fp8: bool = False, every_layer: bool = False) -> int:
    """Index keys of one token over the full layers, or over every layer."""
    key = _fp8_bytes(sizes.index_dim) if fp8 else 2 * sizes.index_dim
    return (sizes.layers if every_layer else sizes.full.count(True)) * key


def _fp8_bytes(numbers: int) -> int:
    return numbers + SCALE_BYTES * ceil(numbers / BLOCK)


def table(sizes: Sizes | None = None) -> str:
    """The operations of GLM-5.2, or another model, at long positions, and what 2.9x needs."""
    from longctx.accounting.native_table import lines

    return "\n".join(lines(sizes))


if __name__ == "__main__":
    print(table())
