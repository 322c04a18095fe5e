"""GGUF files: metadata to a `config.json`, quantised tensors to Hugging Face names and layout.

Everything the `gguf` package can dequantise is read. llama's q and k rows, which GGUF stores in
interleaved rotary order, are put back into the half-split order of Hugging Face checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from longctx.errors import ModelError

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


class GGUFFile:
    """An open GGUF file of a supported architecture."""

    def __init__(self, path: Path):
        from gguf import GGUFReader

        self.path = path
        try:
            self._reader = GGUFReader(path)
        except FileNotFoundError:
            raise ModelError(f"{path}: no such file") from None
        except Exception as error:  # the reader raises many kinds on a damaged file
            raise ModelError(f"{path}: not a readable GGUF file ({error}); fetch it again") from None
        self.architecture = str(self._value("general.architecture", ""))
        if self.architecture not in ARCHITECTURES:
            raise ModelError(
                f"{path}: GGUF architecture {self.architecture!r} is not supported; "
                f"supported: {', '.join(ARCHITECTURES)}"
            )
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}
        if not self._tensors:
            raise ModelError(f"{path}: holds no tensors; fetch it again")

    def _value(self, key: str, default: Any = None) -> Any:
        found = self._reader.get_field(key)
        return default if found is None else found.contents()

    def _own(self, key: str, default: Any = None) -> Any:
        return self._value(f"{self.architecture}.{key}", default)

    def config(self) -> dict[str, Any]:
        """The metadata as the keys of a Hugging Face `config.json`."""
        heads, hidden = self._own("attention.head_count"), self._own("embedding_length")
        if heads is None or hidden is None:
            raise ModelError(f"{self.path}: lacks its head count or width; fetch it again")
        positions = self._own("context_length", 2048)
        head_dim = self._own("attention.key_length") or hidden // heads
        embedding = self._tensors.get("token_embd.weight")
        if embedding is None:
            raise ModelError(f"{self.path}: tensor token_embd.weight is missing; fetch it again")
        config: dict[str, Any] = {
            "model_type": self.architecture,
            "num_hidden_layers": self._own("block_count"),
            "hidden_size": hidden,
            "num_attention_heads": heads,
            "num_key_value_heads": self._own("attention.head_count_kv", heads),
            "head_dim": head_dim,
            "intermediate_size": self._own("feed_forward_length"),
            "vocab_size": int(embedding.shape[1]),
            "rms_norm_eps": self._own("attention.layer_norm_rms_epsilon", 1e-6),
            "rope_theta": self._own("rope.freq_base", 10_000.0),
            "max_position_embeddings": positions,
            "tie_word_embeddings": "output.weight" not in self._tensors,
            "attention_bias": "blk.0.attn_q.bias" in self._tensors,
            "eos_token_id": self._value("tokenizer.ggml.eos_token_id"),
            "rope_scaling": self._rope_scaling(positions),
        }
        window = self._own("attention.sliding_window")
        if window and self.architecture == "llama":
            config |= {"model_type": "mistral", "sliding_window": window}
        return config

    def _rope_scaling(self, positions: int) -> dict[str, Any] | None:
        factors = self._tensors.get("rope_freqs.weight")
        if factors is not None:
            return {"rope_type": "factors", "factors": _dequantise(factors).tolist()}
        kind = self._own("rope.scaling.type")
        factor = self._own("rope.scaling.factor")
        if kind in (None, "none") or not factor:
            return None
        return {
            "rope_type": kind,
            "factor": factor,
            "original_max_position_embeddings": self._own(
                "rope.scaling.original_context_length", positions
            ),
        }

    def tensors(
        self, dtype: torch.dtype, progress: Callable[[int, int], None] | None = None
    ) -> Iterator[tuple[str, Tensor]]:
        """Every weight under its Hugging Face name, dequantised to `dtype`, one at a time.

        `progress(done, total)` is called with elements after each. Raises `ModelError` for a
        tensor the model family does not have.
        """
        total = sum(int(t.n_elements) for t in self._tensors.values())
        done = 0
        for name, stored in self._tensors.items():
            done += int(stored.n_elements)
            if name != "rope_freqs.weight":
                tensor = torch.from_numpy(_dequantise(stored)).to(dtype)
                yield self._rename(name), self._restore(name, tensor)
            if progress:
                progress(done, total)

    def names(self) -> list[tuple[str, tuple[int, ...]]]:
        """Name and shape of every weight, in the order `tensors` yields them."""
        return [
            (self._rename(name), tuple(int(n) for n in reversed(stored.shape)))
            for name, stored in self._tensors.items()
            if name != "rope_freqs.weight"
        ]

    def _rename(self, name: str) -> str:
        stem, _, kind = name.rpartition(".")
        block, prefix = stem, ""
        if stem.startswith("blk."):
            _, number, block = stem.split(".", 2)
            prefix = f"model.layers.{number}."
        if block not in TENSOR_NAMES or kind not in ("weight", "bias"):
            raise ModelError(f"{self.path}: unexpected tensor {name} for {self.architecture}")
        return f"{prefix}{TENSOR_NAMES[block]}.{kind}"

    def _restore(self, name: str, tensor: Tensor) -> Tensor:
        if self.architecture != "llama" or ".attn_q." not in name and ".attn_k." not in name:
            return tensor
        key = "attention.head_count" if ".attn_q." in name else "attention.head_count_kv"
        heads = self._own(key) or self._own("attention.head_count")
        rows = tensor.reshape(heads, len(tensor) // heads // 2, 2, -1)
        return rows.transpose(1, 2).reshape(tensor.shape).contiguous()


def _dequantise(stored: Any) -> np.ndarray:
    from gguf import dequantize

    try:
        values = dequantize(stored.data, stored.tensor_type)
    except (NotImplementedError, KeyError) as error:
        raise ModelError(
            f"quantisation {stored.tensor_type.name} cannot be read ({error}); "
            "choose a file of another quantisation"
        ) from None
    shape = [int(n) for n in reversed(stored.shape)]
    return np.ascontiguousarray(values, dtype=np.float32).reshape(shape)
