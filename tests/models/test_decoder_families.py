"""Every family computes the logits that `transformers` computes from the same folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from decoder_samples import (
    FAMILIES,
    TOLERANCE,
    decoder_of,
    difference,
    in_dtype,
    logits_of,
    reference,
    saved,
    token_ids,
)

from longctx.models.loaded import load

SHAPES: dict[str, dict[str, Any]] = {
    "tied": {"tie_word_embeddings": True},
    "untied": {"tie_word_embeddings": False},
    "groups of 1": {"num_key_value_heads": 4},
    "groups of 4": {"num_key_value_heads": 1},
    "narrow heads": {"head_dim": 8},
    "wide heads": {"head_dim": 48, "num_attention_heads": 2, "num_key_value_heads": 1},
    "other norm and base": {"rms_norm_eps": 0.02, "rope_theta": 500.0},
    "four layers": {"num_hidden_layers": 4},
}
BIASES: list[tuple[str, dict[str, Any]]] = [
    ("llama", {"attention_bias": True}),
    ("llama", {"mlp_bias": True}),
    ("llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    ("qwen3", {"attention_bias": True}),
]


def check(family: str, settings: dict[str, Any], folder: Path) -> None:
    model = reference(family, **settings)
    ids = token_ids(40)

    decoder = decoder_of(saved(model, folder))

    assert difference(decoder.forward(ids), logits_of(model, ids)) < TOLERANCE


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_in_every_shape(family: str, shape: str, tmp_path: Path):
    check(family, SHAPES[shape], tmp_path)


@pytest.mark.parametrize(("family", "settings"), BIASES)
def test_biases(family: str, settings: dict[str, Any], tmp_path: Path):
    check(family, settings, tmp_path)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_is_loaded_by_its_path(family: str, tmp_path: Path):
    model = reference(family)
    folder = saved(model, tmp_path / "tiny")
    ids = token_ids(30)

    loaded = load(str(folder), device="cpu", dtype="float32")

    assert loaded.name == "tiny"
    assert loaded.config.family == family
    assert difference(loaded.forward(ids), logits_of(model, ids)) < TOLERANCE


def test_a_model_in_several_files(tmp_path: Path):
    model = reference("llama")
    folder = saved(model, tmp_path, max_shard_size="100KB")
    ids = token_ids(20)

    loaded = load(str(folder), device="cpu", dtype="float32")

    assert len(list(folder.glob("model-*.safetensors"))) > 2
    assert difference(loaded.forward(ids), logits_of(model, ids)) < TOLERANCE


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("rows", [5, 40])  # short products and fused ones
def test_half_precision_is_as_near_to_float32_as_transformers(
    family: str, rows: int, tmp_path: Path
):
    model = reference(family)
    folder = saved(model, tmp_path)
    ids = token_ids(rows)
    exact = logits_of(model, ids)

    ours = decoder_of(folder, torch.bfloat16).forward(ids)

    theirs = logits_of(in_dtype(model, torch.bfloat16), ids)
    error, bound = (ours - exact).square().mean(), (theirs - exact).square().mean()
    assert error < 1.5 * bound
    assert error < 0.01 * exact.square().mean()


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16])
def test_weights_are_converted_to_the_precision_asked_for(stored: torch.dtype, tmp_path: Path):
    model = in_dtype(reference("llama"), stored)
    folder = saved(model, tmp_path)
    ids = token_ids(20)

    decoder = decoder_of(folder, torch.float32)

    assert decoder.dtype == torch.float32
    assert (
        difference(decoder.forward(ids), logits_of(in_dtype(model, torch.float32), ids)) < TOLERANCE
    )
