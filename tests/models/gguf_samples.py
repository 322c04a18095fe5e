"""Tiny GGUF models written from those of `decoder_samples`, laid out as llama.cpp's files are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from tokenizer_samples import SPECIAL, byte_level_json
from transformers import PreTrainedModel

NAMES = {
    "embed_tokens": "token_embd",
    "norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "o_proj": "attn_output",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "gate_proj": "ffn_gate",
    "up_proj": "ffn_up",
    "down_proj": "ffn_down",
}
# Kinds the package reads but cannot make: where a block keeps its float16 scales, in bytes.
SCALES = {
    GGMLQuantizationType.Q2_K: slice(80, 84),
    GGMLQuantizationType.Q3_K: slice(108, 110),
    GGMLQuantizationType.Q4_K: slice(0, 4),
    GGMLQuantizationType.Q5_K: slice(0, 4),
    GGMLQuantizationType.Q6_K: slice(208, 210),
    GGMLQuantizationType.IQ4_NL: slice(0, 2),
    GGMLQuantizationType.IQ4_XS: slice(0, 2),
}
Change = Callable[[gguf.GGUFWriter], None]
Tensors = dict[str, tuple[np.ndarray, GGMLQuantizationType]]


def write_gguf(
    path: Path,
    model: PreTrainedModel,
    kind: GGMLQuantizationType = GGMLQuantizationType.F32,
    *,
    metadata: Change = lambda writer: None,
    tensors: Callable[[Tensors], None] = lambda stored: None,
    architecture: str | None = None,
) -> Path:
    """Write `model` with its matrices quantised; its own weights become what the file holds.

    `metadata` may add settings, `tensors` may change what is stored.
    """
    architecture = architecture or model.config.model_type
    writer = gguf.GGUFWriter(path, architecture)
    _add_sizes(writer, model.config, architecture)
    _add_tokenizer(writer)
    metadata(writer)
    stored = _store(model, kind, permuted=architecture == "llama")
    tensors(stored)
    for name, (values, its_kind) in stored.items():
        writer.add_tensor(name, values, raw_dtype=its_kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _store(model: PreTrainedModel, kind: GGMLQuantizationType, permuted: bool) -> Tensors:
    stored: Tensors = {}
    heads = {"q_proj": model.config.num_attention_heads, "k_proj": model.config.num_key_value_heads}
    for name, weight in model.named_parameters():
        *path, block, suffix = name.split(".")
        its_kind = kind if weight.dim() > 1 else GGMLQuantizationType.F32
        values = quantise(weight.detach().numpy(), its_kind)
        read = np.array(gguf.dequantize(values, its_kind), np.float32)
        weight.data = torch.from_numpy(read.reshape(tuple(weight.shape)))
        if permuted and block in heads:
            values = values[interleaved(len(values), heads[block])]
        layer = f"blk.{path[path.index('layers') + 1]}." if "layers" in path else ""
        stored[f"{layer}{NAMES[block]}.{suffix}"] = (values, its_kind)
    return stored


def interleaved(rows: int, heads: int) -> list[int]:
    """Row numbers in the order llama's GGUF files have: the two halves of each head, in turn."""
    size = rows // heads
    starts = range(0, rows, size)
    return [start + pair + half for start in starts for pair in range(size // 2)
            for half in (0, size // 2)]  # fmt: skip


def quantise(values: np.ndarray, kind: GGMLQuantizationType) -> np.ndarray:
    """Stored bytes of a matrix: quantised where the package can, else random of the same size."""
    if kind not in SCALES:
        return gguf.quantize(values, kind)
    block, size = GGML_QUANT_SIZES[kind]
    draw = np.random.default_rng(values.size)
    blocks = draw.integers(0, 256, (values.size // block, size), dtype=np.uint8)
    for scale in (1.0, values.std()):  # of one value first, then of the spread wanted
        spread = 1.0 if scale == 1.0 else float(gguf.dequantize(blocks, kind).std())
        width = SCALES[kind].stop - SCALES[kind].start
        one = np.full(width // 2, scale / spread, np.float16)
        blocks[:, SCALES[kind]] = one.view(np.uint8)
    return blocks.reshape(len(values), -1)


def _add_sizes(writer: gguf.GGUFWriter, config: Any, architecture: str) -> None:
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    if head_dim * config.num_attention_heads != config.hidden_size:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if architecture == "llama":
        writer.add_rope_dimension_count(head_dim)


def _add_tokenizer(writer: gguf.GGUFWriter) -> None:
    content = json.loads(byte_level_json())
    ids = content["model"]["vocab"] | {t["content"]: t["id"] for t in content["added_tokens"]}
    tokens = sorted(ids, key=lambda token: ids[token])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in SPECIAL else 1 for token in tokens])
    writer.add_token_merges([" ".join(pair) for pair in content["model"]["merges"]])
    writer.add_eos_token_id(ids["<|im_end|>"])
    writer.add_bos_token_id(ids["<|endoftext|>"])
