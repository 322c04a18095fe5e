"""Tiny models of random weights, built by `transformers`, that ours are compared with.

The weights are large enough that attention is peaked, every bias and norm counts, and a wrong
rotation shows in the first decimals of the logits.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
from tokenizer_samples import write_folder
from torch import Tensor
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from longctx.models.config import read_config
from longctx.models.decoder import Decoder
from longctx.models.weights.source import SafetensorsSource

FAMILIES: dict[str, tuple[Any, Any]] = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "mistral": (MistralConfig, MistralForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
}
VOCAB = 512
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
TOLERANCE = 1e-4


def reference(family: str, **settings: Any) -> PreTrainedModel:
    """A float32 model of `transformers` with random weights, the same at every call."""
    make_config, make_model = FAMILIES[family]
    settings = SIZES | ({"head_dim": 16} if family == "qwen3" else {}) | settings
    config = make_config(**settings)
    config._attn_implementation = "eager"
    model = make_model(config).eval()
    draw = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, weight in sorted(model.named_parameters()):
            noise = torch.randn(weight.shape, generator=draw)
            if "norm" in name:
                weight.copy_(1 + 0.3 * noise)
            elif weight.dim() == 1:
                weight.copy_(0.5 * noise)
            else:
                weight.copy_(2 * noise / weight.shape[1] ** 0.5)
    return model


def in_dtype(model: PreTrainedModel, dtype: torch.dtype) -> PreTrainedModel:
    """Convert the weights alone: rounded rotary frequencies, a buffer, would be another model."""
    for weight in model.parameters():
        weight.data = weight.data.to(dtype)
    return model


def saved(model: PreTrainedModel, folder: Path, **settings: Any) -> Path:
    """Write the model and a tokenizer as a folder that can be loaded."""
    model.save_pretrained(folder, **settings)
    return write_folder(folder)


def decoder_of(folder: Path, dtype: torch.dtype = torch.float32) -> Decoder:
    return Decoder(read_config(folder / "config.json"), SafetensorsSource(folder, dtype))


def token_ids(count: int, seed: int = 0) -> list[int]:
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(0, VOCAB, (count,), generator=draw).tolist()


@torch.inference_mode()
def logits_of(model: PreTrainedModel, ids: list[int]) -> Tensor:
    """What `transformers` computes, `[T, vocab]` in float32, in one pass without a cache."""
    return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float()


@cache
def plain_logits(family: str, count: int) -> Tensor:
    """The logits of an unchanged `reference` for `token_ids(count)`, to see what a change does."""
    return logits_of(reference(family), token_ids(count))


def difference(a: Tensor, b: Tensor) -> float:
    """The largest difference between logits; NaN counts as infinite."""
    return float((a - b).abs().nan_to_num(torch.inf).max())
