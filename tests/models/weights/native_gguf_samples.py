"""GGUF files of a synthetic checkpoint, laid out as converters lay out the published ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType
from torch import Tensor

from longctx.models.native.synth import Sizes
from longctx.models.weights.native_gguf_config import EXPERTS, LAYER, OUTER

Change = Callable[[dict[str, np.ndarray]], object]
ARCHITECTURE = {"glm_moe_dsa": "glm-dsa", "deepseek_v32": "deepseek32"}


def write_gguf(
    path: Path,
    config: dict[str, Any],
    tensors: dict[str, Tensor],
    *,
    split_kv_b: bool = True,
    types: bool = True,
    change: Change = lambda arrays: None,
    kind: GGMLQuantizationType = GGMLQuantizationType.F32,
    architecture: str | None = None,
    rope_base: float | None = None,
) -> Path:
    """Write the `tensors` of a checkpoint under llama.cpp's names; matrices stored as `kind`.

    `change` may alter what is stored, by GGUF name. `types` says whether the schedule is stored.
    """
    sizes = Sizes.of(config)
    arrays = _renamed(sizes, tensors, split_kv_b)
    change(arrays)
    writer = gguf.GGUFWriter(path, architecture or ARCHITECTURE[config["model_type"]])
    _metadata(writer, config, sizes, rope_base)
    if types:
        writer.add_array(f"{writer.arch}.attention.indexer.types", list(sizes.full))
    for name, array in arrays.items():
        fits = array.ndim > 1 and array.shape[-1] % 32 == 0
        stored_as = kind if fits else GGMLQuantizationType.F32
        writer.add_tensor(name, gguf.quantize(array, stored_as), raw_dtype=stored_as)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _renamed(sizes: Sizes, tensors: dict[str, Tensor], split: bool) -> dict[str, np.ndarray]:
    outer = {ours: theirs for theirs, ours in OUTER.items()}
    inner = {ours: theirs for theirs, ours in LAYER.items() if theirs != "exp_probs_b"}
    fused = {ours: theirs for theirs, ours in EXPERTS.items()}
    arrays: dict[str, np.ndarray] = {}
    for name, tensor in tensors.items():
        values = tensor.float()
        if name in outer:
            arrays[outer[name]] = values.numpy()
            continue
        _, _, layer, rest = name.split(".", 3)
        block = f"blk.{layer}."
        if rest.endswith("kv_b_proj.weight") and split:
            heads = values.view(sizes.heads, sizes.nope_dim + sizes.value_dim, sizes.kv_rank)
            keys, values = heads.split((sizes.nope_dim, sizes.value_dim), dim=1)
            arrays[f"{block}attn_k_b.weight"] = keys.transpose(1, 2).contiguous().numpy()
            arrays[f"{block}attn_v_b.weight"] = values.contiguous().numpy()
        elif rest.startswith("mlp.experts."):
            _, _, number, matrix, _ = rest.split(".")
            if number == "0":
                names = [name.replace("experts.0.", f"experts.{n}.") for n in range(sizes.experts)]
                stacked = torch.stack([tensors[expert].float() for expert in names])
                arrays[f"{block}{fused[matrix]}.weight"] = stacked.numpy()
        else:
            arrays[block + inner[rest]] = values.numpy()
    return arrays


def _metadata(
    writer: gguf.GGUFWriter, config: dict[str, Any], sizes: Sizes, rope_base: float | None
) -> None:
    writer.add_block_count(sizes.layers + config["num_nextn_predict_layers"])
    writer.add_uint32(f"{writer.arch}.nextn_predict_layers", config["num_nextn_predict_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(sizes.hidden)
    writer.add_feed_forward_length(sizes.intermediate)
    writer.add_head_count(sizes.heads)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_q_lora_rank(sizes.q_rank)
    writer.add_kv_lora_rank(sizes.kv_rank)
    writer.add_key_length(sizes.kv_rank + sizes.rope_dim)
    writer.add_value_length(sizes.kv_rank)
    writer.add_key_length_mla(sizes.nope_dim + sizes.rope_dim)
    writer.add_value_length_mla(sizes.value_dim)
    writer.add_rope_dimension_count(sizes.rope_dim)
    writer.add_leading_dense_block_count(config["first_k_dense_replace"])
    writer.add_expert_count(sizes.experts)
    writer.add_expert_used_count(sizes.experts_per_token)
    writer.add_expert_shared_count(sizes.shared_experts)
    writer.add_expert_feed_forward_length(sizes.expert_intermediate)
    writer.add_expert_group_count(config["n_group"])
    writer.add_expert_group_used_count(config["topk_group"])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    writer.add_expert_weights_norm(config["norm_topk_prob"])
    writer.add_uint32(f"{writer.arch}.expert_gating_func", 2)
    writer.add_indexer_head_count(sizes.index_heads)
    writer.add_indexer_key_length(sizes.index_dim)
    writer.add_indexer_top_k(sizes.index_topk)
    writer.add_uint32("tokenizer.ggml.eos_token_id", 9)
    writer.add_uint32("tokenizer.ggml.eot_token_id", 7)
    scaling = config.get("rope_scaling")
    base = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
    writer.add_rope_freq_base(rope_base or base)
    if scaling:
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(scaling["factor"])
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
        writer.add_rope_scaling_yarn_log_mul(0.1 * scaling["mscale_all_dim"])
