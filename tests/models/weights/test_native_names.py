"""Names and shapes against the published checkpoints' own numbers."""

from __future__ import annotations

from math import prod

import pytest

from longctx.models.native.config import parse_native_config
from longctx.models.native.synth import FAMILIES, SIZES, Sizes, preset
from longctx.models.weights import native_names as names

GLM = Sizes.of(preset("glm-5.2"))


def test_glm_5_2_has_its_published_number_of_parameters():
    shapes = names.tensor_shapes(GLM) | names.mtp_shapes(GLM)
    bias = "e_score_correction_bias"  # counted apart: no parameter of a layer

    assert sum(prod(s) for n, s in shapes.items() if not n.endswith(bias)) == 753_329_921_024


def test_a_sparse_fp8_layer_with_an_indexer_has_1569_tensors_where_it_predicts():
    mtp = names.mtp_shapes(GLM, fp8=True)

    assert len(mtp) == 1569
    assert len(names.layer_shapes(GLM, 6, fp8=True)) == 1569 - 4


@pytest.mark.parametrize(
    ("name", "shape", "scales"),
    [
        ("3.self_attn.q_b_proj", (16384, 2048), (128, 16)),
        ("3.self_attn.kv_a_proj_with_mqa", (576, 6144), (5, 48)),
        ("3.self_attn.kv_b_proj", (28672, 512), (224, 4)),
        ("3.self_attn.o_proj", (6144, 16384), (48, 128)),
        ("2.self_attn.indexer.wq_b", (4096, 2048), (32, 16)),
        ("2.self_attn.indexer.wk", (128, 6144), (1, 48)),
        ("0.mlp.down_proj", (6144, 12288), (48, 96)),
        ("3.mlp.experts.255.gate_proj", (2048, 6144), (16, 48)),
        ("77.mlp.shared_experts.down_proj", (6144, 2048), (48, 16)),
    ],
)
def test_shapes_of_fp8_weights_and_their_scales(name, shape, scales):
    shapes = names.tensor_shapes(GLM, fp8=True)
    weight = f"model.layers.{name}.weight"

    assert shapes[weight] == shape
    assert shapes[f"{weight}_scale_inv"] == scales


@pytest.mark.parametrize(
    "name",
    [
        "model.embed_tokens.weight",
        "model.norm.weight",
        "lm_head.weight",
        "model.layers.3.mlp.gate.weight",
        "model.layers.3.mlp.gate.e_score_correction_bias",
        "model.layers.6.self_attn.indexer.weights_proj.weight",
        "model.layers.6.self_attn.indexer.k_norm.bias",
        "model.layers.3.self_attn.q_a_layernorm.weight",
        "model.layers.78.eh_proj.weight",
    ],
)
def test_what_stays_unquantised(name):
    shapes = names.tensor_shapes(GLM, fp8=True) | names.mtp_shapes(GLM, fp8=True)

    assert name in shapes
    assert f"{name}_scale_inv" not in shapes


def test_only_full_layers_have_an_indexer():
    full = names.indexer_layers(names.tensor_shapes(GLM))

    assert full == (0, 1, 2, *range(6, 75, 4))
    assert len(full) == 21


def test_layers_of_mtp_are_those_behind_the_last():
    stored = names.tensor_shapes(GLM) | names.mtp_shapes(GLM)

    assert names.mtp_layers(stored, 78) == (78,)
    assert names.mtp_layers(stored, 79) == ()
    assert names.layer_of("model.layers.78.enorm.weight") == 78
    assert names.layer_of("model.norm.weight") is None


def test_a_tied_head_is_not_stored():
    tied = Sizes.of(preset("glm-5.2", "tiny", tie_word_embeddings=True))

    assert "lm_head.weight" not in names.tensor_shapes(tied)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("size", SIZES)
def test_a_parsed_config_asks_for_the_same_tensors(family, size):
    config = preset(family, size)

    assert names.tensor_shapes(parse_native_config(config)) == names.tensor_shapes(Sizes.of(config))


def test_deepseek_v3_2_differs_where_its_config_does():
    shapes = names.tensor_shapes(Sizes.of(preset("deepseek-v3.2")))
    attention = "model.layers.60.self_attn"

    assert shapes[f"{attention}.q_b_proj.weight"] == (24576, 1536)
    assert shapes[f"{attention}.kv_b_proj.weight"] == (32768, 512)
    assert shapes[f"{attention}.indexer.wq_b.weight"] == (8192, 1536)
    assert shapes[f"{attention}.indexer.weights_proj.weight"] == (64, 7168)
