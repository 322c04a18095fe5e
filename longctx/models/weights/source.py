"""Weights by name, memory-mapped from a folder of safetensors files.

Names are Hugging Face's. A source checks shapes as it hands tensors out; it does not know layers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from longctx.errors import ModelError

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
_STORED = (torch.bfloat16, torch.float16, torch.float32, torch.float64)  # narrower ones need scales


class WeightSource(Protocol):
    """Where a model's tensors come from."""

    def tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """The tensor `name`, in the source's dtype and on its device; `ModelError` if unfit."""
        ...


class SafetensorsSource:
    """Tensors of `model.safetensors` or of the shards listed in its index file.

    On the CPU a tensor stored in the wanted dtype is a view of the mapped file: nothing is read
    until it is used, and nothing is held twice.
    """

    def __init__(self, folder: Path, dtype: torch.dtype, device: str = "cpu"):
        self.folder, self.dtype, self.device = folder, dtype, device
        self._files: dict[str, safe_open] = {}
        self._where = self._index()

    def _index(self) -> dict[str, str]:
        index = self.folder / INDEX_FILE
        if index.exists():
            try:
                table = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
                names = {str(k): str(v) for k, v in table.items()}
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                raise ModelError(f"{index}: not a readable index; fetch the model again") from None
            for shard in sorted(set(names.values())):
                if "/" in shard or not (self.folder / shard).is_file():
                    raise ModelError(f"{self.folder}: shard {shard} is missing; fetch it again")
            return names
        if (self.folder / SINGLE_FILE).is_file():
            return dict.fromkeys(self._open(SINGLE_FILE).keys(), SINGLE_FILE)
        raise ModelError(f"{self.folder}: no model.safetensors there; is this a model folder?")

    def _open(self, shard: str) -> safe_open:
        if shard not in self._files:
            try:
                self._files[shard] = safe_open(self.folder / shard, framework="pt", device="cpu")
            except (SafetensorError, OSError) as error:
                raise ModelError(
                    f"{self.folder / shard}: damaged or cut short ({error}); fetch it again"
                ) from None
        return self._files[shard]

    def tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        if name not in self._where:
            raise ModelError(f"{self.folder}: tensor {name} is missing; the model is incomplete")
        try:
            tensor = self._open(self._where[name]).get_tensor(name)
        except SafetensorError:
            raise ModelError(
                f"{self.folder}: {self._where[name]} lacks tensor {name}; fetch it again"
            ) from None
        if tensor.dtype not in _STORED:
            raise ModelError(
                f"{self.folder}: tensor {name} is stored as {str(tensor.dtype)[6:]}, which is not "
                "supported; choose the unquantised model or a GGUF file of it"
            )
        if tuple(tensor.shape) != shape:
            raise ModelError(
                f"{self.folder}: tensor {name} has shape {tuple(tensor.shape)}, "
                f"the config asks for {shape}"
            )
        return tensor.to(device=self.device, dtype=self.dtype)
