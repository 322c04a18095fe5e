"""Small checkpoints to read, and ways to spoil them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from longctx.models.native.synth import Sizes, preset, write_checkpoint
from longctx.models.weights.native_names import tensor_shapes

INDEX = "model.safetensors.index.json"
CONFIG = preset("glm-5.2", "tiny")
SIZES = Sizes.of(CONFIG)
EXPECTED = tensor_shapes(SIZES)
NORM = "model.layers.0.input_layernorm.weight"
Q_A = "model.layers.0.self_attn.q_a_proj.weight"
KV_A = "model.layers.3.self_attn.kv_a_proj_with_mqa.weight"


def checkpoint(folder: Path, *, fp8: bool = False, shard_bytes: int = 1_000_000) -> Path:
    write_checkpoint(CONFIG, folder, seed=7, fp8=fp8, shard_bytes=shard_bytes)
    return folder


def stored(folder: Path) -> dict[str, Tensor]:
    """Every tensor as it lies in the files, read by another reader."""
    found: dict[str, Tensor] = {}
    for shard in sorted(folder.glob("*.safetensors")):
        found |= load_file(shard)
    return found


def shard_of(folder: Path, name: str) -> Path:
    table = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"]
    return folder / table[name]


def rewrite(folder: Path, name: str, change: Callable[[dict[str, Tensor]], object]) -> None:
    """Change the tensors of the shard that holds `name`, leaving the index as it was."""
    path = shard_of(folder, name)
    tensors = {key: value.clone() for key, value in load_file(path).items()}
    change(tensors)
    save_file(tensors, path)


def rows(count: int, columns: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(count, columns, generator=torch.Generator().manual_seed(1)).to(dtype)
