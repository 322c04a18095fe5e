"""Tiny IndexShare checkpoints: written by transformers, read by ours, and the helpers around them.

32 index heads are needed for selections to be comparable: with few, many scores are exactly zero
and any of those tokens may be taken. Top-k is far below the contexts, so that tokens are dropped.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from longctx.models.native.config import (
    TRANSFORMERS_LATENT_EPS,
    NativeConfig,
    parse_native_config,
)
from longctx.models.native.decoder import NativeDecoder
from longctx.models.weights.native import NativeSource

VOCAB = 96
LOGITS_TOLERANCE = 1e-4
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 40.0,
    "original_max_position_embeddings": 64,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
}
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 80,
    "moe_intermediate_size": 24,
    "num_hidden_layers": 4,
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "first_k_dense_replace": 1,
    "q_lora_rank": 40,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 20,
    "index_n_heads": 32,
    "index_head_dim": 24,
    "index_topk": 8,
    "max_position_embeddings": 4096,
}


def saved(folder: Path, family: str, seed: int = 0, **changes: Any) -> Any:
    """A random transformers model of `family` ("glm" or "deepseek"), also saved to `folder`.

    All parameters are random, norms and biases included, so that none can be left out unnoticed.
    """
    import transformers

    if family == "glm":
        kinds: tuple[Any, Any] = transformers.GlmMoeDsaConfig, transformers.GlmMoeDsaForCausalLM
        rope: dict[str, Any] = {"rope_type": "default", "rope_theta": 8_000_000.0}
        own: dict[str, Any] = {"rms_norm_eps": 1e-5}
    else:
        kinds = transformers.DeepseekV32Config, transformers.DeepseekV32ForCausalLM
        rope = dict(YARN)
        own = {"rms_norm_eps": 1e-6, "n_group": 4, "topk_group": 2}
    settings = SIZES | own | {"rope_parameters": rope} | changes
    model = kinds[1](kinds[0](**settings, attn_implementation="eager")).eval()
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in model.state_dict().items():
        noise = torch.randn(tensor.shape, generator=generator)
        if "norm.weight" in name:
            tensor.copy_(1 + 0.2 * noise)
        elif tensor.ndim < 2:
            tensor.copy_(0.1 * noise)
        else:
            tensor.copy_(noise * (1.5 if "embed" in name else 1.2 * tensor.shape[-1] ** -0.5))
    model.save_pretrained(folder)
    return model


def config_of(folder: Path) -> NativeConfig:
    return parse_native_config(json.loads((folder / "config.json").read_text()))


def decoder_of(folder: Path, dtype: torch.dtype = torch.float32, **changes: Any) -> NativeDecoder:
    """Our decoder, by default with the norm epsilon that transformers fixes for the latents."""
    changes = {"latent_norm_eps": TRANSFORMERS_LATENT_EPS} | changes
    return NativeDecoder(replace(config_of(folder), **changes), NativeSource(folder, dtype))


def token_ids(count: int, seed: int = 1) -> Tensor:
    return torch.randint(0, VOCAB, (count,), generator=torch.Generator().manual_seed(seed))


def theirs(model: Any, ids: Tensor) -> tuple[Tensor, dict[int, Tensor]]:
    """transformers' logits `[T, vocab]`, and what each of its indexers chose, `[T, k]` a layer."""
    chosen: dict[int, Tensor] = {}
    hooks = [
        layer.self_attn.indexer.register_forward_hook(
            lambda module, _, out: chosen.__setitem__(module.layer_idx, out[0])
        )
        for layer in model.model.layers
        if getattr(layer.self_attn, "indexer", None) is not None
    ]
    with torch.inference_mode():
        logits = model(ids[None], use_cache=False).logits[0]
    for hook in hooks:
        hook.remove()
    return logits.float(), chosen


def as_sets(indices: Tensor) -> list[set[int]]:
    """The tokens each row attends to: neither padding nor what lies after the row."""
    return [{i for i in row if 0 <= i <= t} for t, row in enumerate(indices.tolist())]
