"""The operations counted are those of the formulas, to the last one (specification 4.2)."""

from __future__ import annotations

from pathlib import Path

import pytest
from native_samples import decoder_of, token_ids

from longctx.accounting import native as formulas
from longctx.models.native.config import NativeConfig


def per_token(c: NativeConfig) -> dict[str, int]:
    """What a token costs whatever its position, all layers together."""
    full, moe, dense = c.full.count(True), c.sparse_mlp.count(True), c.dense_layers
    projections = (
        c.hidden * c.q_rank
        + c.q_rank * c.heads * (c.nope_dim + c.rope_dim)
        + c.hidden * (c.kv_rank + c.rope_dim)
        + c.kv_rank * c.heads * (c.nope_dim + c.value_dim)
        + c.heads * c.value_dim * c.hidden
    )
    expert = 3 * c.hidden * c.expert_intermediate
    return {
        "projections": 2 * c.layers * projections,
        "dense_mlp": 2 * dense * 3 * c.hidden * c.intermediate,
        "router": 2 * moe * c.hidden * c.experts,
        "experts": 2 * moe * c.experts_per_token * expert,
        "shared_experts": 2 * moe * c.shared_experts * expert,
        "head": 2 * c.hidden * c.vocab,
        "keys": 2 * full * c.hidden * c.index_dim,
        "queries": 2 * full * c.index_heads * (c.q_rank * c.index_dim + c.hidden),
    }


@pytest.mark.parametrize("family", ["glm", "deepseek"])
@pytest.mark.parametrize("size", [60, 17, 1])
def test_a_prompt_in_pieces(family: str, size: int, request: pytest.FixtureRequest):
    decoder, total = decoder_of(request.getfixturevalue(family)), 60
    c, ids, cache = decoder.config, token_ids(total), decoder.new_cache(total)

    for start in range(0, total, size):
        decoder.forward(ids[start : start + size], cache)

    counted, base = decoder.counters, per_token(c)
    for kind in ("projections", "dense_mlp", "router", "experts", "shared_experts", "head"):
        assert getattr(counted, kind) == total * base[kind], kind
    # Rows that see at most top-k tokens choose them all, and are not scored.
    scored = range(c.index_topk, total)
    assert counted.index_projections == total * base["keys"] + len(scored) * base["queries"]
    full, pairs = c.full.count(True), sum(p + 1 for p in scored)
    assert counted.scored_pairs == full * pairs
    assert counted.index_scores == 2 * full * pairs * c.index_heads * c.index_dim
    attended = [min(p + 1, c.index_topk) for p in range(total)]
    assert counted.attended_pairs == c.layers * sum(attended)
    # The first rows of a fresh prompt are expanded, all others absorbed.
    expanded = sum(attended[: min(size, c.index_topk)])
    absorbed = sum(attended) - expanded
    assert counted.core == 2 * c.layers * c.heads * (
        expanded * (c.nope_dim + c.rope_dim + c.value_dim) + absorbed * (2 * c.kv_rank + c.rope_dim)
    )


@pytest.mark.parametrize("family", ["glm", "deepseek"])
def test_a_decoded_token_is_the_closed_formula(family: str, request: pytest.FixtureRequest):
    decoder = decoder_of(request.getfixturevalue(family))
    cache = decoder.new_cache(50)
    decoder.forward(token_ids(40), cache)
    for position in range(40, 50):
        decoder.counters.reset()

        decoder.forward([position], cache)

        counted = decoder.counters
        wanted = formulas.per_token(decoder.config, position + 1, absorbed=True)
        assert counted.projections == wanted.projections
        assert counted.core == wanted.core
        assert counted.indexer == wanted.indexer
        assert counted.dense_mlp + counted.moe == wanted.mlp
        assert counted.head == wanted.head
        assert counted.total == wanted.total


def test_total_and_reset(glm: Path):
    decoder = decoder_of(glm)
    decoder.forward(token_ids(20))
    counted = decoder.counters

    parts = counted.projections + counted.core + counted.indexer + counted.moe
    assert counted.total == parts + counted.dense_mlp + counted.head
    counted.reset()
    assert counted.total == 0


def test_the_last_row_alone_costs_less(glm: Path):
    decoder = decoder_of(glm)
    decoder.forward(token_ids(20))
    whole = decoder.counters.total
    decoder.counters.reset()

    decoder.forward(token_ids(20), last_only=True)

    assert decoder.counters.total < whole
    assert decoder.counters.head == per_token(decoder.config)["head"]
