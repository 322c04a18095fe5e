"""The shape of a dense decoder, read from a `config.json` or from GGUF metadata.

It knows names and numbers only: no tensors, no files beyond the JSON it is handed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from longctx.errors import ModelError


@dataclass(frozen=True)
class RopeConfig:
    """Rotary position settings. `scaling` holds the raw `rope_scaling` values of its `kind`."""

    theta: float = 10_000.0
    kind: str = "default"
    scaling: Mapping[str, Any] = field(default_factory=dict)
    rotary_dim: int | None = None


@dataclass(frozen=True)
class ModelConfig:
    """A llama-shaped decoder: RMSNorm, rotary GQA attention, SwiGLU; sizes in elements."""

    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    norm_eps: float
    rope: RopeConfig
    max_positions: int
    tied: bool
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    windows: tuple[int | None, ...] = ()
    eos_ids: tuple[int, ...] = ()

    def window(self, layer: int) -> int | None:
        """The sliding window of a layer in tokens, or None where it attends to everything."""
        return self.windows[layer] if self.windows else None

    @property
    def layer_parameters(self) -> int:
        """Weights in the matrix products of one layer."""
        q = self.heads * self.head_dim
        kv = self.kv_heads * self.head_dim
        return self.hidden * (2 * q + 2 * kv) + 3 * self.hidden * self.intermediate

    @property
    def parameters(self) -> int:
        """Weights of the whole model, embeddings counted once when tied."""
        tables = 1 if self.tied else 2
        return self.layers * self.layer_parameters + tables * self.vocab * self.hidden


FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
ROPE_KINDS = ("default", "linear", "dynamic", "llama3", "yarn", "longrope", "factors")


def read_config(path: Path) -> ModelConfig:
    """Read `config.json`. Raises `ModelError` when it is unreadable or of an unknown family."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{path.parent}: no config.json there; is this a model folder?") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: not a readable config ({error}); fetch it again") from None
    if not isinstance(raw, dict):
        raise ModelError(f"{path}: not a model config; fetch it again")
    return parse_config(raw)


def parse_config(raw: Mapping[str, Any]) -> ModelConfig:
    """Build a `ModelConfig` from the keys of a Hugging Face `config.json`."""
    family = raw.get("model_type")
    if family not in FAMILIES:
        raise ModelError(
            f"model family {family!r} is not supported; supported: {', '.join(FAMILIES)}"
        )
    if method := raw.get("quantization_config"):
        method = method.get("quant_method") if isinstance(method, dict) else method
        raise ModelError(
            f"the model's weights are quantised ({method}), which is not supported; "
            "choose the unquantised model or a GGUF file of it"
        )
    if raw.get("hidden_act", "silu") not in ("silu", "swish"):
        raise ModelError(f"activation {raw['hidden_act']!r} is not supported for family {family}")
    try:
        heads = int(raw["num_attention_heads"])
        hidden = int(raw["hidden_size"])
        layers = int(raw["num_hidden_layers"])
        head_dim = int(raw.get("head_dim") or hidden // heads)
        eos = raw.get("eos_token_id")
        bias = bool(raw.get("attention_bias", family == "qwen2"))
        config = ModelConfig(
            family=family,
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=int(raw.get("num_key_value_heads") or heads),
            head_dim=head_dim,
            intermediate=int(raw["intermediate_size"]),
            vocab=int(raw["vocab_size"]),
            norm_eps=float(raw.get("rms_norm_eps", 1e-6)),
            rope=_rope(raw),
            max_positions=int(raw.get("max_position_embeddings", 2048)),
            tied=bool(raw.get("tie_word_embeddings", False)),
            qkv_bias=True if family == "qwen2" else bias,
            output_bias=bias and family != "qwen2",
            mlp_bias=bool(raw.get("mlp_bias", False)),
            qk_norm=family == "qwen3",
            windows=_windows(raw, family, layers),
            eos_ids=tuple(eos) if isinstance(eos, list) else (() if eos is None else (int(eos),)),
        )
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise ModelError(f"the model's config lacks or misstates {error}; fetch it again") from None
    _check(config)
    return config


def _check(config: ModelConfig) -> None:
    sizes = (config.layers, config.hidden, config.heads, config.kv_heads, config.head_dim)
    if min(*sizes, config.intermediate, config.vocab, config.max_positions) < 1:
        raise ModelError("the model's config has a size below 1; fetch it again")
    if config.heads % config.kv_heads:
        raise ModelError(
            f"the model's config has {config.heads} heads for {config.kv_heads} key heads, "
            "which do not divide; fetch it again"
        )
    if config.head_dim % 2:
        raise ModelError(f"rotary heads of odd size {config.head_dim} are not supported")
    if config.windows and len(config.windows) != config.layers:
        raise ModelError(
            f"the model's config has {len(config.windows)} layer types for {config.layers} layers; "
            "fetch it again"
        )


def _rope(raw: Mapping[str, Any]) -> RopeConfig:
    # Newer configs nest theta and scaling under rope_parameters; older ones keep them apart.
    nested = raw.get("rope_parameters") or {}
    scaling = dict(raw.get("rope_scaling") or nested)
    theta = float(scaling.get("rope_theta") or raw.get("rope_theta") or 10_000.0)
    kind = str(scaling.get("rope_type") or scaling.get("type") or "default")
    if kind not in ROPE_KINDS:
        raise ModelError(f"rope scaling {kind!r} is not supported; known: {', '.join(ROPE_KINDS)}")
    if any(isinstance(value, Mapping) for value in scaling.values()):
        raise ModelError("rope settings that differ between layers are not supported")
    positions = raw.get("max_position_embeddings")
    scaling["max_position_embeddings"] = positions
    original = raw.get("original_max_position_embeddings")
    original = original or scaling.get("original_max_position_embeddings") or positions
    scaling["original_max_position_embeddings"] = original
    partial = float(scaling.get("partial_rotary_factor") or raw.get("partial_rotary_factor") or 1.0)
    if partial != 1.0:
        raise ModelError("partial rotary embeddings are not supported for this family")
    return RopeConfig(theta=theta, kind=kind, scaling=scaling)


def _windows(raw: Mapping[str, Any], family: str, layers: int) -> tuple[int | None, ...]:
    window = raw.get("sliding_window", 4096)  # both families' default where the key is absent
    if not window:
        return ()
    if family == "mistral":
        return (int(window),) * layers
    if family == "llama" or not raw.get("use_sliding_window", False):
        return ()
    kinds = raw.get("layer_types")
    if kinds:
        return tuple(int(window) if kind == "sliding_attention" else None for kind in kinds)
    first = int(raw.get("max_window_layers", 28))
    return tuple(int(window) if layer >= first else None for layer in range(layers))
