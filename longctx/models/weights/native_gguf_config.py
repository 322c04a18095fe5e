"""GGUF metadata and names of IndexShare models as the keys of `config.json` and HF names.

No tensors are read. Files made before a key existed are understood where what they leave out can
be told for certain from something else they say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from longctx.errors import ModelError

MODEL_TYPES = {
    "glm-dsa": "glm_moe_dsa",
    "deepseek32": "deepseek_v32",
    "deepseek2": "deepseek_v32",
}
OUTER = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
EXPERTS = {"ffn_gate_exps": "gate_proj", "ffn_up_exps": "up_proj", "ffn_down_exps": "down_proj"}
KV_B, K_B, V_B = "attn_kv_b", "attn_k_b", "attn_v_b"
LAYER = {
    "attn_norm.weight": "input_layernorm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "attn_q_a.weight": "self_attn.q_a_proj.weight",
    "attn_q_a_norm.weight": "self_attn.q_a_layernorm.weight",
    "attn_q_b.weight": "self_attn.q_b_proj.weight",
    "attn_kv_a_mqa.weight": "self_attn.kv_a_proj_with_mqa.weight",
    "attn_kv_a_norm.weight": "self_attn.kv_a_layernorm.weight",
    "attn_kv_b.weight": "self_attn.kv_b_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "indexer.attn_q_b.weight": "self_attn.indexer.wq_b.weight",
    "indexer.attn_k.weight": "self_attn.indexer.wk.weight",
    "indexer.k_norm.weight": "self_attn.indexer.k_norm.weight",
    "indexer.k_norm.bias": "self_attn.indexer.k_norm.bias",
    "indexer.proj.weight": "self_attn.indexer.weights_proj.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
    "ffn_gate_inp.weight": "mlp.gate.weight",
    "exp_probs_b.bias": "mlp.gate.e_score_correction_bias",
    "exp_probs_b": "mlp.gate.e_score_correction_bias",
    "ffn_gate_shexp.weight": "mlp.shared_experts.gate_proj.weight",
    "ffn_up_shexp.weight": "mlp.shared_experts.up_proj.weight",
    "ffn_down_shexp.weight": "mlp.shared_experts.down_proj.weight",
    "nextn.eh_proj.weight": "eh_proj.weight",
    "nextn.enorm.weight": "enorm.weight",
    "nextn.hnorm.weight": "hnorm.weight",
    "nextn.shared_head_norm.weight": "shared_head.norm.weight",
}
_SIGMOID = 2  # llama.cpp's number of the gate these families have
_STOPS = ("eos", "eot", "eom")
_GLM_5_2_ROPE_BASE = 8e6
Own = Callable[..., Any]


def config_of(path: Any, metadata: dict[str, Any], tensors: Collection[str], vocab: int) -> dict:
    """The keys of a Hugging Face `config.json`; `tensors` are the file's own names.

    Raises `ModelError` for another architecture and for metadata that lacks what is needed.
    """
    architecture = str(metadata.get("general.architecture", ""))
    if architecture not in MODEL_TYPES:
        raise ModelError(
            f"{path}: GGUF architecture {architecture!r} is not supported; "
            f"supported: {', '.join(MODEL_TYPES)}"
        )

    def own(key: str, default: Any = None) -> Any:
        return metadata.get(f"{architecture}.{key}", default)

    try:
        config = _sizes(own) | _experts(own) | _positions(own, architecture)
    except (TypeError, ValueError) as error:
        raise ModelError(
            f"{path}: lacks or misstates its sizes ({error}); fetch it again"
        ) from None
    if own("expert_gating_func", _SIGMOID) != _SIGMOID:
        raise ModelError(f"{path}: its experts are not gated by a sigmoid, which is not supported")
    stops = [metadata.get(f"tokenizer.ggml.{kind}_token_id") for kind in _STOPS]
    config |= {
        "model_type": MODEL_TYPES[architecture],
        "vocab_size": vocab,
        "eos_token_id": sorted({int(stop) for stop in stops if stop is not None}),
        "tie_word_embeddings": "output.weight" not in tensors,
        "indexer_types": _schedule(path, own, config, tensors),
    }
    return config


def _sizes(own: Own) -> dict[str, Any]:
    rotated = int(own("rope.dimension_count"))
    key = int(own("attention.key_length_mla") or own("attention.key_length"))
    if key <= rotated:
        raise ValueError(f"keys of {key} numbers, {rotated} of them rotated")
    ahead = int(own("nextn_predict_layers") or 0)
    heads = int(own("attention.head_count"))
    return {
        "num_hidden_layers": int(own("block_count")) - ahead,
        "num_nextn_predict_layers": ahead,
        "hidden_size": int(own("embedding_length")),
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "q_lora_rank": int(own("attention.q_lora_rank")),
        "kv_lora_rank": int(own("attention.kv_lora_rank")),
        "qk_nope_head_dim": key - rotated,
        "qk_rope_head_dim": rotated,
        "v_head_dim": int(own("attention.value_length_mla") or own("attention.value_length")),
        "index_n_heads": int(own("attention.indexer.head_count")),
        "index_head_dim": int(own("attention.indexer.key_length")),
        "index_topk": int(own("attention.indexer.top_k")),
        "intermediate_size": int(own("feed_forward_length")),
        "rms_norm_eps": float(own("attention.layer_norm_rms_epsilon")),
    }


def _experts(own: Own) -> dict[str, Any]:
    dense = int(own("leading_dense_block_count") or 0)
    return {
        "first_k_dense_replace": dense,
        "moe_intermediate_size": int(own("expert_feed_forward_length")),
        "n_routed_experts": int(own("expert_count")),
        "n_shared_experts": int(own("expert_shared_count") or 0),
        "num_experts_per_tok": int(own("expert_used_count")),
        "n_group": int(own("expert_group_count") or 1),
        "topk_group": int(own("expert_group_used_count") or 1),
        "norm_topk_prob": bool(own("expert_weights_norm", True)),
        "routed_scaling_factor": float(own("expert_weights_scale") or 1.0),
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
    }


def _positions(own: Own, architecture: str) -> dict[str, Any]:
    positions, base = int(own("context_length")), float(own("rope.freq_base"))
    rope: dict[str, Any] = {"rope_theta": base, "rope_type": "default"}
    if own("rope.scaling.type") == "yarn":
        strength = float(own("rope.scaling.yarn_log_multiplier") or 0.0) / 0.1
        rope |= {
            "rope_type": "yarn",
            "factor": float(own("rope.scaling.factor")),
            "original_max_position_embeddings": int(own("rope.scaling.original_context_length")),
            "beta_fast": float(own("rope.scaling.yarn_beta_fast") or 32.0),
            "beta_slow": float(own("rope.scaling.yarn_beta_slow") or 1.0),
            "mscale": strength,
            "mscale_all_dim": strength,
        }
    return {
        "max_position_embeddings": positions,
        "rope_parameters": rope,
        "rope_interleave": True,
        "indexer_rope_interleave": architecture == "glm-dsa",
    }


def _schedule(path: Any, own: Own, config: dict, tensors: Collection[str]) -> list[str]:
    """`full` or `shared` per layer: what the file says, else what it holds.

    Files that repeat the indexer in every layer and say nothing are GLM-5.2 where the rope base is
    its own, and of a family without shared layers otherwise.
    """
    layers = config["num_hidden_layers"]
    said = own("attention.indexer.types")
    if said is not None:
        modes = [mode if isinstance(mode, str) else _MODES[bool(mode)] for mode in list(said)]
        modes = modes[:layers]
        if len(modes) < layers or set(modes) - set(_MODES.values()):
            raise ModelError(f"{path}: its indexer schedule is not one a layer; fetch it again")
        return modes
    held = [f"blk.{layer}.indexer.attn_k.weight" in tensors for layer in range(layers)]
    every, offset = own("attention.indexer.top_k_frequency"), 3
    if not any(held):
        raise ModelError(
            f"{path}: holds no indexer, so its sparse attention cannot be run; choose a file that "
            "was made with the indexer"
        )
    if every:
        offset = int(own("attention.indexer.skip_top_k_offset") or 0)
    elif config["rope_parameters"]["rope_theta"] == _GLM_5_2_ROPE_BASE and all(held):
        every = 4
    if every:
        held = [max(layer - offset + 1, 0) % int(every) == 0 for layer in range(layers)]
    return [_MODES[mode] for mode in held]


_MODES = {True: "full", False: "shared"}
