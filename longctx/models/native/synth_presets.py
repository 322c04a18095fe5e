"""Configs of the IndexShare families: the published shapes, and small ones of the same form.

Plain dictionaries as `config.json` holds them, no tensors. The small ones keep what goes wrong:
three dense layers first, shared layers, an odd latent width, more tokens than are selected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from longctx.errors import UsageError

FAMILIES = ("glm-5.2", "glm-5.1", "deepseek-v3.2")
SIZES = ("tiny", "small", "full")
MODES = {"F": "full", "S": "shared"}

_COMMON = {
    "attention_bias": False,
    "attention_dropout": 0.0,
    "dtype": "bfloat16",
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "moe_layer_freq": 1,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "num_nextn_predict_layers": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "first_k_dense_replace": 3,
    "index_head_dim": 128,
    "index_topk": 2048,
    "kv_lora_rank": 512,
    "moe_intermediate_size": 2048,
    "qk_rope_head_dim": 64,
    "tie_word_embeddings": False,
    "use_cache": True,
}
_GLM = {
    "architectures": ["GlmMoeDsaForCausalLM"],
    "model_type": "glm_moe_dsa",
    "eos_token_id": [154820, 154827, 154829],
    "pad_token_id": 154820,
    "hidden_size": 6144,
    "intermediate_size": 12288,
    "index_n_heads": 32,
    "indexer_rope_interleave": True,
    "n_group": 1,
    "topk_group": 1,
    "num_attention_heads": 64,
    "num_hidden_layers": 78,
    "q_lora_rank": 2048,
    "qk_nope_head_dim": 192,
    "rms_norm_eps": 1e-05,
    "rope_interleave": True,
    "v_head_dim": 256,
    "vocab_size": 154880,
}
_FAMILY: dict[str, dict[str, Any]] = {
    "glm-5.2": _GLM
    | {
        "index_share_for_mtp_iteration": True,
        "index_skip_topk_offset": 3,
        "index_topk_freq": 4,
        "index_topk_pattern": None,
        "max_position_embeddings": 1048576,
        "rope_parameters": {"rope_theta": 8000000, "rope_type": "default"},
    },
    "glm-5.1": _GLM
    | {
        "max_position_embeddings": 202752,
        "rope_parameters": {"rope_theta": 1000000, "rope_type": "default"},
    },
    "deepseek-v3.2": {
        "architectures": ["DeepseekV32ForCausalLM"],
        "model_type": "deepseek_v32",
        "bos_token_id": 0,
        "eos_token_id": 1,
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "index_n_heads": 64,
        "max_position_embeddings": 163840,
        "n_group": 8,
        "topk_group": 4,
        "num_attention_heads": 128,
        "num_hidden_layers": 61,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
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
        "v_head_dim": 128,
        "vocab_size": 129280,
    },
}
_SMALLER: dict[str, dict[str, Any]] = {
    "tiny": {
        "hidden_size": 128,
        "index_head_dim": 32,
        "index_n_heads": 32,  # fewer leave many scores at exactly zero, and so ties
        "index_topk": 8,
        "intermediate_size": 256,
        "kv_lora_rank": 64,
        "max_position_embeddings": 4096,
        "moe_intermediate_size": 64,
        "n_routed_experts": 8,
        "num_attention_heads": 4,
        "num_experts_per_tok": 2,
        "num_hidden_layers": 5,
        "q_lora_rank": 96,
        "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 16,
        "v_head_dim": 48,
        "vocab_size": 512,
    },
    "small": {
        "hidden_size": 256,
        "index_head_dim": 128,
        "index_n_heads": 32,
        "index_topk": 64,
        "intermediate_size": 768,
        "kv_lora_rank": 512,
        "moe_intermediate_size": 128,
        "n_routed_experts": 16,
        "num_attention_heads": 8,
        "num_experts_per_tok": 4,
        "num_hidden_layers": 8,
        "q_lora_rank": 192,
        "qk_nope_head_dim": 64,
        "qk_rope_head_dim": 64,
        "v_head_dim": 64,
        "vocab_size": 1024,
    },
}


@dataclass(frozen=True)
class Sizes:
    """The sizes of a config, under the names that shapes and formulas are written in.

    `full[i]` says whether layer i has an indexer, `sparse_mlp[i]` whether it has experts.
    """

    layers: int
    hidden: int
    heads: int
    q_rank: int
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    index_heads: int
    index_dim: int
    index_topk: int
    intermediate: int
    expert_intermediate: int
    experts: int
    experts_per_token: int
    shared_experts: int
    vocab: int
    full: tuple[bool, ...]
    sparse_mlp: tuple[bool, ...]
    tied: bool

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Sizes:
        """The sizes of a config made here; published ones are read by `config.py`."""
        layers = config["num_hidden_layers"]
        modes = config.get("indexer_types") or ["full"] * layers
        return cls(
            layers=layers,
            hidden=config["hidden_size"],
            heads=config["num_attention_heads"],
            q_rank=config["q_lora_rank"],
            kv_rank=config["kv_lora_rank"],
            nope_dim=config["qk_nope_head_dim"],
            rope_dim=config["qk_rope_head_dim"],
            value_dim=config["v_head_dim"],
            index_heads=config["index_n_heads"],
            index_dim=config["index_head_dim"],
            index_topk=config["index_topk"],
            intermediate=config["intermediate_size"],
            expert_intermediate=config["moe_intermediate_size"],
            experts=config["n_routed_experts"],
            experts_per_token=config["num_experts_per_tok"],
            shared_experts=config["n_shared_experts"],
            vocab=config["vocab_size"],
            full=tuple(mode == "full" for mode in modes),
            sparse_mlp=tuple(i >= config["first_k_dense_replace"] for i in range(layers)),
            tied=config["tie_word_embeddings"],
        )


def preset(family: str, size: str = "full", **changes: Any) -> dict[str, Any]:
    """The config of a family in a size; `full` has the published shapes.

    `changes` replace keys of `config.json`; what follows from others (the schedule, head sizes) is
    derived behind them. `schedule="FFFS"` gives a layer's mode a letter and sets the number of
    layers. Raises `UsageError` for an unknown family or size, and for a schedule or a number of
    experts that cannot be.
    """
    if family not in FAMILIES:
        raise UsageError(f"unknown family {family!r}; there are {', '.join(FAMILIES)}")
    if size not in SIZES:
        raise UsageError(f"unknown size {size!r}; there are {', '.join(SIZES)}")
    config = _COMMON | _FAMILY[family] | _SMALLER.get(size, {})
    if size != "full" and config["n_group"] > 1:
        config |= {"n_group": 4, "topk_group": 2}
    schedule = changes.pop("schedule", None)
    config |= changes
    if schedule is not None:
        config["num_hidden_layers"] = _layers(schedule, changes.get("num_hidden_layers"))
        config["indexer_types"] = [MODES[letter] for letter in schedule]
    _check_experts(config["n_routed_experts"], config["num_experts_per_tok"], config["n_group"])
    layers = config["num_hidden_layers"]
    if config.get("index_topk_freq") and "indexer_types" not in config:
        config["indexer_types"] = _every_nth(
            layers, config["index_topk_freq"], config["index_skip_topk_offset"]
        )
    query = config["qk_nope_head_dim"] + config["qk_rope_head_dim"]
    config["num_key_value_heads"] = config["num_attention_heads"]
    if config["model_type"] == "glm_moe_dsa":
        config |= {"head_dim": config["qk_nope_head_dim"], "qk_head_dim": query}
        if "indexer_types" in config:
            dense = config["first_k_dense_replace"]
            config["mlp_layer_types"] = ["dense" if i < dense else "sparse" for i in range(layers)]
    return config


def _check_experts(experts: int, chosen: int, groups: int) -> None:
    if experts < chosen or experts % groups or experts < 2 * groups * (groups > 1):
        raise UsageError(
            f"{experts} experts cannot be: {chosen} are chosen a token, from {groups} groups of at "
            "least 2; choose another number"
        )


def _layers(schedule: str, asked: int | None) -> int:
    if set(schedule) - set(MODES) or not schedule.startswith("F"):
        raise UsageError(
            f"schedule {schedule!r} is not one: a letter per layer, F (own indexer) or S (shares "
            "the one before), F first"
        )
    if asked not in (None, len(schedule)):
        raise UsageError(f"a schedule of {len(schedule)} layers does not fit {asked} layers")
    return len(schedule)


def _every_nth(layers: int, every: int, offset: int) -> list[str]:
    """The published schedule: 0, 1, 2, 6, 10, ... have an indexer for 4 and 3."""
    return [
        "full" if max(layer - offset + 1, 0) % every == 0 else "shared" for layer in range(layers)
    ]
