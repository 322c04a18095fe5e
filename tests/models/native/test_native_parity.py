"""Both families choose the tokens and compute the logits that transformers does, and drop tokens.

transformers 5.24 ignores `rope_interleave` and `indexer_rope_interleave` (each class has its
family's) and norms the latents with 1e-6 whatever the config says; `decoder_of` sets that epsilon.
Everything else is compared as published; test_native_reference.py covers what transformers cannot.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from native_samples import LOGITS_TOLERANCE, as_sets, decoder_of, saved, theirs, token_ids

F, S = "full", "shared"
# Family, tokens, seed, changes. With these seeds the last token chosen and the first one dropped
# differ by at least 1e-5 in every row, so that no machine's rounding swaps them.
CASES: dict[str, tuple[str, int, int, dict[str, Any]]] = {
    "glm, every layer full": ("glm", 96, 1, {}),
    "glm, freq 4 and offset 3": (
        "glm",
        200,
        2,
        {
            "num_hidden_layers": 8,
            "indexer_types": [F, F, F, S, S, S, F, S],
            "first_k_dense_replace": 3,
        },
    ),
    "glm, one full layer": ("glm", 64, 1, {"indexer_types": [F, S, S, S], "index_topk": 16}),
    "glm, groups of experts": ("glm", 96, 1, {"n_group": 2, "topk_group": 1}),
    "glm, wide values": ("glm", 96, 1, {"v_head_dim": 40, "index_topk": 33}),
    "glm, long": (
        "glm",
        1100,
        27,
        {"index_topk": 64, "num_hidden_layers": 3, "indexer_types": [F, S, S]},
    ),
    "deepseek, yarn": ("deepseek", 200, 2, {}),
    "deepseek, no yarn": (
        "deepseek",
        96,
        1,
        {"rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0}},
    ),
    "deepseek, only sparse mlps": ("deepseek", 97, 1, {"first_k_dense_replace": 0}),
    "deepseek, long": ("deepseek", 2048, 19, {"index_topk": 64, "num_hidden_layers": 2}),
}


@pytest.mark.parametrize("case", CASES)
def test_selection_and_logits(case: str, tmp_path: Path):
    family, length, seed, changes = CASES[case]
    model = saved(tmp_path, family, seed, **changes)
    ids = token_ids(length)
    wanted, chosen = theirs(model, ids)

    decoder = decoder_of(tmp_path)
    logits, indices = decoder.forward(ids, return_indices=True)

    assert set(chosen) == {i for i, full in enumerate(decoder.config.full) if full}
    for layer, ours in enumerate(indices):
        source = decoder.config.source_of(layer)
        assert as_sets(ours) == as_sets(chosen[source]), f"layer {layer}"
    assert (logits - wanted).abs().max() < LOGITS_TOLERANCE
    assert logits.shape == wanted.shape
    assert wanted.std() > 0.5  # a model that answers the same to everything would prove nothing


def test_dropping_tokens_matters(tmp_path: Path):
    """The tolerance would not hide a decoder that attended to everything."""
    model = saved(tmp_path, "glm", seed=1)
    ids = token_ids(96)
    wanted, _ = theirs(model, ids)

    dense = decoder_of(tmp_path, index_topk=96).forward(ids)

    assert (dense - wanted).abs().max() > 100 * LOGITS_TOLERANCE
    assert (dense[:8] - wanted[:8]).abs().max() < LOGITS_TOLERANCE  # nothing is dropped yet
