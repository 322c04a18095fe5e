"""Every kind of rotary scaling gives the logits that `transformers` computes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from decoder_samples import (
    FAMILIES,
    TOLERANCE,
    decoder_of,
    difference,
    logits_of,
    plain_logits,
    reference,
    saved,
    token_ids,
)

from longctx.errors import ModelError
from longctx.models.config import RopeConfig, parse_config
from longctx.models.rope import Rope

HALF = 8  # of the samples' heads of 16
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
LONGROPE = {
    "rope_type": "longrope",
    "original_max_position_embeddings": 32,
    "short_factor": [1.0 + 0.05 * i for i in range(HALF)],
    "long_factor": [1.0 + 0.8 * i for i in range(HALF)],
}
SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 3.0},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "llama3": LLAMA3,
    "yarn": YARN,
    "yarn, exact bounds": YARN | {"truncate": False, "beta_fast": 1.5, "beta_slow": 0.5},
    "yarn, its own attention": YARN | {"attention_factor": 1.3},
    "yarn, two scales": YARN | {"mscale": 1.2, "mscale_all_dim": 0.6},
    "longrope": LONGROPE,
    "longrope, by its factor": LONGROPE | {"factor": 6.0},
    "longrope, its own attention": LONGROPE | {"attention_factor": 0.9},
}


def settings_of(kind: str) -> dict[str, Any]:
    # dynamic scaling starts where the model's own positions end, so that sequences here pass it
    positions = 24 if kind == "dynamic" else 128
    parameters = SCALINGS[kind] | {"rope_theta": 10_000.0}
    return {"rope_parameters": parameters, "max_position_embeddings": positions}


@pytest.mark.parametrize("kind", SCALINGS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_sequence_past_the_original_context(family: str, kind: str, tmp_path: Path):
    model = reference(family, **settings_of(kind))
    ids = token_ids(70)
    expected = logits_of(model, ids)

    decoder = decoder_of(saved(model, tmp_path))

    assert difference(decoder.forward(ids), expected) < TOLERANCE
    assert difference(plain_logits(family, 70), expected) > 0.1  # the scaling matters


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_a_sequence_within_the_original_context(kind: str, tmp_path: Path):
    model = reference("llama", **settings_of(kind))
    ids = token_ids(20)

    decoder = decoder_of(saved(model, tmp_path))
    decoder.forward(token_ids(100))  # what came before does not change the frequencies

    assert difference(decoder.forward(ids), logits_of(model, ids)) < TOLERANCE


@pytest.mark.parametrize("count", [32, 33])
def test_the_length_where_longrope_changes_its_factors(count: int, tmp_path: Path):
    model = reference("llama", **settings_of("longrope"))
    ids = token_ids(count)

    decoder = decoder_of(saved(model, tmp_path))

    assert difference(decoder.forward(ids), logits_of(model, ids)) < TOLERANCE


@pytest.mark.parametrize("kind", SCALINGS)
def test_settings_as_older_checkpoints_spell_them(kind: str, tmp_path: Path):
    model = reference("llama", **settings_of(kind))
    folder = saved(model, tmp_path)
    config = json.loads((folder / "config.json").read_text())
    scaling = config.pop("rope_parameters")
    config["rope_theta"] = scaling.pop("rope_theta")
    scaling["type"] = scaling.pop("rope_type")
    if kind.startswith("longrope"):
        original = scaling.pop("original_max_position_embeddings")
        config["original_max_position_embeddings"] = original
    config["rope_scaling"] = scaling
    (folder / "config.json").write_text(json.dumps(config))
    ids = token_ids(70)

    decoder = decoder_of(folder)

    assert difference(decoder.forward(ids), logits_of(model, ids)) < TOLERANCE


def test_the_base_comes_from_wherever_it_is_written():
    sizes: dict[str, Any] = {
        "model_type": "llama",
        "num_attention_heads": 2,
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "intermediate_size": 8,
        "vocab_size": 8,
    }

    assert parse_config(sizes).rope.theta == 10_000
    assert parse_config(sizes | {"rope_theta": 5}).rope.theta == 5
    assert parse_config(sizes | {"rope_parameters": {"rope_theta": 7}}).rope.theta == 7
    both = {"rope_theta": 5, "rope_parameters": {"rope_theta": 7, "rope_type": "default"}}
    assert parse_config(sizes | both).rope.theta == 7


@pytest.mark.parametrize("kind", ["linear", "dynamic", "llama3", "yarn", "longrope"])
def test_a_scaling_without_its_values_is_refused_at_once(kind: str):
    config = RopeConfig(kind=kind, scaling={"max_position_embeddings": 64})

    with pytest.raises(ModelError, match=f"{kind} rope scaling lacks or misstates '\\w+'"):
        Rope(config, 16)


def test_factors_of_another_head_size_are_refused():
    scaling = LONGROPE | {"max_position_embeddings": 128, "long_factor": [1.0] * 5}

    with pytest.raises(ModelError, match="longrope rope scaling"):
        Rope(RopeConfig(kind="longrope", scaling=scaling), 16)


def test_tables_are_kept_while_a_sequence_grows():
    rope = Rope(RopeConfig(), 16)

    first, _ = rope.tables(1025)
    later, _ = rope.tables(1900)

    assert len(first) == 1025
    assert torch.equal(first, later[:1025])
    assert first.data_ptr() == later.data_ptr()
