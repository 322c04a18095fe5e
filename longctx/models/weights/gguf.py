"""GGUF files: metadata to a `config.json`, quantised tensors to Hugging Face names and layout.

Everything the `gguf` package can dequantise is read. llama's q and k rows, which GGUF stores in
interleaved rotary order, are put back into the half-split order of Hugging Face checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from longctx.errors import ModelError
from longctx.models.weights.gguf_tensors import GGUFTensors

TENSOR_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
ARCHITECTURES = ("llama", "qwen2", "qwen3")
ROPE_FACTORS = "rope_freqs.weight"  # not a weight: what llama 3 divides its frequencies by


class GGUFFile:
    """An open GGUF file of a supported architecture; `ModelError` for any other."""

    def __init__(self, path: Path):
        self.path = path
        self._file = GGUFTensors(path)
        self._tensors = self._file.tensors
        self.architecture = str(self._value("general.architecture", ""))
        if self.architecture not in ARCHITECTURES:
            raise ModelError(
                f"{path}: GGUF architecture {self.architecture!r} is not supported; "
                f"supported: {', '.join(ARCHITECTURES)}"
            )
        if self._own("expert_count"):
            raise ModelError(f"{path}: mixture-of-experts models are not supported")
        if "token_embd.weight" not in self._tensors:
            raise ModelError(f"{path}: tensor token_embd.weight is missing; fetch it again")

    def _value(self, key: str, default: Any = None) -> Any:
        return self._file.metadata.get(key, default)

    def _own(self, key: str, default: Any = None) -> Any:
        return self._value(f"{self.architecture}.{key}", default)

    def config(self) -> dict[str, Any]:
        """The metadata as the keys of a Hugging Face `config.json`."""
        positions = self._own("context_length", 2048)
        config = {
            "model_type": self.architecture,
            "num_hidden_layers": self._own("block_count"),
            "hidden_size": self._own("embedding_length"),
            "num_attention_heads": self._own("attention.head_count"),
            "num_key_value_heads": self._own("attention.head_count_kv"),
            "head_dim": self._own("attention.key_length"),
            "intermediate_size": self._own("feed_forward_length"),
            "vocab_size": self._tensors["token_embd.weight"].shape[0],
            "rms_norm_eps": self._own("attention.layer_norm_rms_epsilon", 1e-6),
            "rope_theta": self._own("rope.freq_base", 10_000.0),
            "max_position_embeddings": positions,
            "tie_word_embeddings": "output.weight" not in self._tensors,
            "attention_bias": "blk.0.attn_q.bias" in self._tensors,
            "mlp_bias": "blk.0.ffn_gate.bias" in self._tensors,
            "eos_token_id": self._value("tokenizer.ggml.eos_token_id"),
            "rope_scaling": self._rope_scaling(positions),
            "partial_rotary_factor": self._rotated_part(),
        }
        window = self._own("attention.sliding_window")
        if window and self.architecture == "llama":
            config |= {"model_type": "mistral", "sliding_window": window}
        return {key: value for key, value in config.items() if value is not None}

    def _rotated_part(self) -> float:
        rotated, width = self._own("rope.dimension_count"), self._own("attention.key_length")
        try:
            width = width or self._own("embedding_length") // self._own("attention.head_count")
            return rotated / width if rotated else 1.0
        except (TypeError, ZeroDivisionError):
            raise ModelError(f"{self.path}: lacks or misstates its sizes; fetch it again") from None

    def _rope_scaling(self, positions: int) -> dict[str, Any] | None:
        factors = self._tensors.get(ROPE_FACTORS)
        if factors is not None:
            values = self._file.read(factors, torch.float32).tolist()
            return {"rope_type": "factors", "factors": values}
        kind = self._own("rope.scaling.type")
        factor = self._own("rope.scaling.factor")
        if kind in (None, "none") or not factor:
            return None
        scaling = {
            "rope_type": kind,
            "factor": factor,
            "original_max_position_embeddings": self._own(
                "rope.scaling.original_context_length", positions
            ),
            "attention_factor": self._own("rope.scaling.yarn_attn_factor"),
            "beta_fast": self._own("rope.scaling.yarn_beta_fast"),
            "beta_slow": self._own("rope.scaling.yarn_beta_slow"),
        }
        return {key: value for key, value in scaling.items() if value is not None}

    def tensors(
        self, dtype: torch.dtype, progress: Callable[[int, int], None] | None = None
    ) -> Iterator[tuple[str, Tensor]]:
        """Every weight under its Hugging Face name, dequantised to `dtype`, one at a time.

        `progress(done, total)` is called with elements after each. Raises `ModelError` for a
        quantisation that cannot be read.
        """
        total = sum(tensor.elements for tensor in self._tensors.values())
        done = 0
        for name, stored in self._tensors.items():
            done += stored.elements
            if name != ROPE_FACTORS:
                tensor = self._file.read(stored, dtype)
                yield self._rename(name), self._restore(name, tensor)
            if progress:
                progress(done, total)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes by Hugging Face name, in the order `tensors` yields the weights.

        Raises `ModelError` for a tensor that no supported model has.
        """
        return {
            self._rename(name): stored.shape
            for name, stored in self._tensors.items()
            if name != ROPE_FACTORS
        }

    def _rename(self, name: str) -> str:
        stem, _, kind = name.rpartition(".")
        block, prefix = stem, ""
        if stem.startswith("blk.") and stem.count(".") > 1:
            _, number, block = stem.split(".", 2)
            prefix = f"model.layers.{number}."
        if block not in TENSOR_NAMES or kind not in ("weight", "bias"):
            raise ModelError(f"{self.path}: unexpected tensor {name!r} for {self.architecture}")
        return f"{prefix}{TENSOR_NAMES[block]}.{kind}"

    def _restore(self, name: str, tensor: Tensor) -> Tensor:
        if self.architecture != "llama" or (".attn_q." not in name and ".attn_k." not in name):
            return tensor
        key = "attention.head_count" if ".attn_q." in name else "attention.head_count_kv"
        heads = int(self._own(key) or self._own("attention.head_count"))
        rows = tensor.reshape(heads, len(tensor) // heads // 2, 2, -1)
        return rows.transpose(1, 2).reshape(tensor.shape).contiguous()
