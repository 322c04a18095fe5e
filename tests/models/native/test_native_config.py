"""Configs of the families as published, their schedules, and what is refused in one line."""

from __future__ import annotations

from typing import Any

import pytest

from longctx.errors import ModelError
from longctx.models.native.config import parse_native_config

# The published configs, where a key matters to the arithmetic.
GLM: dict[str, Any] = {
    "model_type": "glm_moe_dsa",
    "attention_bias": False,
    "eos_token_id": [154820, 154827, 154829],
    "first_k_dense_replace": 3,
    "head_dim": 192,
    "hidden_act": "silu",
    "hidden_size": 6144,
    "index_head_dim": 128,
    "index_n_heads": 32,
    "index_skip_topk_offset": 3,
    "index_topk": 2048,
    "index_topk_freq": 4,
    "index_topk_pattern": None,
    "indexer_rope_interleave": True,
    "intermediate_size": 12288,
    "kv_lora_rank": 512,
    "max_position_embeddings": 1048576,
    "moe_intermediate_size": 2048,
    "n_group": 1,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_attention_heads": 64,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 78,
    "q_lora_rank": 2048,
    "qk_nope_head_dim": 192,
    "qk_rope_head_dim": 64,
    "rms_norm_eps": 1e-05,
    "rope_parameters": {"rope_theta": 8000000, "rope_type": "default"},
    "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid",
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "v_head_dim": 256,
    "vocab_size": 154880,
}
DEEPSEEK: dict[str, Any] = {
    "model_type": "deepseek_v32",
    "eos_token_id": 1,
    "first_k_dense_replace": 3,
    "hidden_act": "silu",
    "hidden_size": 7168,
    "index_head_dim": 128,
    "index_n_heads": 64,
    "index_topk": 2048,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "max_position_embeddings": 163840,
    "moe_intermediate_size": 2048,
    "n_group": 8,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_attention_heads": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "rms_norm_eps": 1e-06,
    "rope_scaling": {
        "beta_fast": 32,
        "beta_slow": 1,
        "factor": 40,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 4096,
        "type": "yarn",
    },
    "rope_theta": 10000,
    "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid",
    "topk_group": 4,
    "topk_method": "noaux_tc",
    "v_head_dim": 128,
    "vocab_size": 129280,
}
GLM_FULL = [0, 1, 2, *range(6, 75, 4)]


def full_layers(**changes: Any) -> list[int]:
    config = parse_native_config(GLM | changes)
    return [layer for layer, full in enumerate(config.full) if full]


def test_glm():
    config = parse_native_config(GLM)

    assert (config.layers, config.dense_layers, config.experts) == (78, 3, 256)
    assert config.softmax_scale == 1 / 16  # 192 + 64, not the config's head_dim
    assert config.eos_ids == (154820, 154827, 154829)
    assert config.latent_norm_eps == 1e-5
    assert config.rope.theta == 8e6
    assert (config.rope_interleaved, config.index_rope_interleaved) == (True, True)
    assert config.entry_dim == 576


def test_deepseek():
    config = parse_native_config(DEEPSEEK)

    assert config.full == (True,) * 61
    assert config.softmax_scale == pytest.approx(0.13523, abs=1e-5)
    assert (config.rope_interleaved, config.index_rope_interleaved) == (True, False)
    assert (config.expert_groups, config.kept_groups) == (8, 4)
    assert config.eos_ids == (1,)


def test_flags_win_over_the_familys_layout():
    config = parse_native_config(
        DEEPSEEK | {"indexer_rope_interleave": True, "rope_interleave": False}
    )

    assert (config.rope_interleaved, config.index_rope_interleaved) == (False, True)


def test_the_published_schedule():
    assert full_layers() == GLM_FULL
    assert len(GLM_FULL) == 21


def test_a_list_wins_over_a_pattern_and_a_pattern_over_the_formula():
    kinds = ["full"] + ["shared"] * 77

    assert full_layers(indexer_types=kinds, index_topk_pattern="F" * 78) == [0]
    assert full_layers(index_topk_pattern="FS" * 39) == list(range(0, 78, 2))
    assert full_layers(index_topk_pattern=["F", "S"] * 39) == list(range(0, 78, 2))


def test_the_formula_without_its_keys():
    assert full_layers(index_topk_freq=None, index_skip_topk_offset=None) == list(range(78))
    assert full_layers(index_skip_topk_offset=None)[:5] == [0, 1, 5, 9, 13]


def test_which_layer_a_shared_one_follows():
    config = parse_native_config(GLM)

    assert [config.source_of(layer) for layer in (0, 2, 3, 5, 6, 77)] == [0, 2, 2, 2, 6, 74]


def test_dense_layers_by_name():
    kinds = ["dense", "sparse"] * 39

    assert parse_native_config(GLM | {"mlp_layer_types": kinds}).dense_layers == 39


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "glm4_moe"}, "'glm4_moe' is not supported; supported: glm_moe_dsa"),
        ({"scoring_func": "softmax"}, "scoring_func is 'softmax'"),
        ({"topk_method": "greedy"}, "topk_method is 'greedy'"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"moe_layer_freq": 2}, "moe_layer_freq is 2"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e4}}, "'llama3' is not supp"),
        ({"rope_parameters": {"rope_type": "default"}}, "no rope_theta"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}, "'factor'"),
        ({"num_hidden_layers": 0}, "layers of 0"),
        ({"index_topk": 0}, "index_topk of 0"),
        ({"kv_lora_rank": "wide"}, "misstates"),
        ({"q_lora_rank": None}, "misstates"),
        ({"indexer_types": ["full"] * 77}, "77 entries for 78 layers"),
        ({"indexer_types": ["whole"] * 78}, "has 'whole'"),
        ({"index_topk_pattern": "S" + "F" * 77}, "layer 0 shares an index"),
        ({"mlp_layer_types": ["dense"]}, "78 dense or sparse layers"),
        ({"qk_rope_head_dim": 63}, "rotary part of 63"),
        ({"index_head_dim": 32}, "rotary part of 64 does not fit index keys of 32"),
        ({"n_group": 3}, "1 of 3 groups of 256 experts"),
        ({"n_group": 2, "topk_group": 3}, "3 of 2 groups"),
        ({"n_group": 64}, "8 experts a token of 4"),
    ],
)
def test_refused(changes: dict[str, Any], message: str):
    with pytest.raises(ModelError, match=message) as caught:
        parse_native_config(GLM | changes)

    assert "\n" not in str(caught.value)


def test_a_missing_key_is_named():
    with pytest.raises(ModelError, match="index_n_heads"):
        parse_native_config({k: v for k, v in GLM.items() if k != "index_n_heads"})
