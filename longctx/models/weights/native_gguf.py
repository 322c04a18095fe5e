"""GGUF files of IndexShare models as a source of weights under Hugging Face names.

Quantised tensors stay quantised in the mapped file and are widened a few rows at a time. Experts
stored as one tensor are handed out one by one, and `kv_b` is put together where it was split.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.errors import ModelError
from longctx.models.weights import native_gguf_config as gguf_config
from longctx.models.weights import native_names as names_of
from longctx.models.weights.gguf_tensors import GGUFTensors, StoredTensor

TILE_ROWS = 512  # of a weight, widened at once inside a product
_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


@dataclass(frozen=True)
class _Part:
    """A tensor, or one expert's share of it, in one of the files."""

    file: GGUFTensors
    stored: StoredTensor

    def rows(self, start: int, stop: int, dtype: torch.dtype) -> Tensor:
        """Rows `start` to `stop` in `dtype`, of a part of two dimensions."""
        return self._cut(start, stop).read(dtype)

    def read(self, dtype: torch.dtype) -> Tensor:
        found = self.file.read(self.stored, dtype)
        if not bool(found.isfinite().all()):
            raise ModelError(
                f"{self.file.path}: tensor {self.stored.name} holds numbers that are not finite; "
                "the file is damaged, fetch it again"
            )
        return found

    def expert(self, number: int) -> _Part:
        """Expert `number` of a part `[experts, out, in]`, as `[out, in]`."""
        one = self._cut(number, number + 1)
        return _Part(self.file, replace(one.stored, shape=self.stored.shape[1:]))

    def release(self) -> None:
        if hasattr(mmap, "MADV_DONTNEED"):
            start = self.stored.offset // mmap.PAGESIZE * mmap.PAGESIZE
            size = self.stored.offset + self.stored.size - start
            self.file._data.madvise(mmap.MADV_DONTNEED, start, size)

    def _cut(self, start: int, stop: int) -> _Part:
        count, *rest = self.stored.shape
        stride = self.stored.size // count
        cut = replace(
            self.stored,
            shape=(stop - start, *rest),
            offset=self.stored.offset + start * stride,
            size=(stop - start) * stride,
        )
        return _Part(self.file, cut)


class GGUFLinear:
    """`x @ weight.T` of a quantised weight `[out, in]`, or of one put together from two."""

    __slots__ = ("_device", "_parts", "_source", "dtype")

    def __init__(self, source: NativeGGUFSource, parts: tuple[_Part, ...]):
        self._source, self._parts, self.dtype = source, parts, source.dtype
        self._device = source.device

    def __call__(self, x: Tensor) -> Tensor:
        """`[N, out]` of `x` `[N, in]`; `ModelError` where the weight is not finite."""
        part, *others = self._parts
        if others or (x.requires_grad and torch.is_grad_enabled()):
            return F.linear(x, self.dense())
        rows = part.stored.shape[0]
        out = x.new_empty(len(x), rows)
        for start in range(0, rows, TILE_ROWS):
            stop = min(start + TILE_ROWS, rows)
            out[:, start:stop] = F.linear(x, part.rows(start, stop, self.dtype).to(self._device))
        return out

    def dense(self) -> Tensor:
        """The weight `[out, in]` in the source's dtype."""
        return self._source.widened(self._parts, self.dtype)


class NativeGGUFSource:
    """What `NativeSource` is for safetensors, for a GGUF file or the first of a split one.

    `config` holds the metadata as keys of `config.json`. Indexers that a file repeats on shared
    layers are not among `names`. Raises `ModelError` for a file of another architecture, one that
    is damaged and a missing further file.
    """

    def __init__(self, path: Path, dtype: torch.dtype, device: str | torch.device = "cpu"):
        self.path, self.dtype, self.device = path, dtype, torch.device(device)
        self.bytes_read = 0
        files = [GGUFTensors(file) for file in _files(path)]
        stored: dict[str, _Part] = {}
        for file in files:
            for name, tensor in file.tensors.items():
                if name in stored:
                    raise ModelError(f"{path}: tensor {name} is stored twice; fetch it again")
                stored[name] = _Part(file, tensor)
        if "token_embd.weight" not in stored:
            raise ModelError(f"{path}: tensor token_embd.weight is missing; fetch it again")
        vocab = stored["token_embd.weight"].stored.shape[0]
        self.config: dict[str, Any] = gguf_config.config_of(
            path, files[0].metadata, stored.keys(), vocab
        )
        self._parts = dict(self._named(stored))

    def names(self) -> frozenset[str]:
        """Every tensor under its Hugging Face name, an expert's matrices each on their own."""
        return frozenset(self._parts)

    def tensor(self, name: str, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Tensor:
        """The tensor `name` in `dtype`, the source's if None; `ModelError` if unfit."""
        parts = self._checked(name, shape)
        return self.widened(parts, dtype or self.dtype)

    def linear(self, name: str, out: int, in_: int) -> GGUFLinear:
        """The product with weight `name` `[out, in_]`, which stays quantised in the file."""
        return GGUFLinear(self, self._checked(name, (out, in_)))

    def release(self, prefix: str) -> None:
        """Give back the memory of pages of tensors whose names start with `prefix`."""
        for name, parts in self._parts.items():
            if name.startswith(prefix):
                for part in parts:
                    part.release()

    def check_names(self, expected: Mapping[str, tuple[int, ...]]) -> list[str]:
        """Stored tensors that are not `expected`, sorted; layers of MTP are left aside.

        Raises `ModelError` where an expected tensor is missing or has another shape.
        """
        for name, shape in expected.items():
            self._check(name, shape)
        layers = [layer for name in expected if (layer := names_of.layer_of(name)) is not None]
        aside = names_of.mtp_layers(self._parts, max(layers, default=-1) + 1)
        left = self._parts.keys() - expected.keys()
        return sorted(name for name in left if names_of.layer_of(name) not in aside)

    def widened(self, parts: tuple[_Part, ...], dtype: torch.dtype) -> Tensor:
        """A tensor in `dtype` on the source's device, put together from its parts."""
        if len(parts) == 1:
            return parts[0].read(dtype).to(self.device)
        keys, values = (part.read(dtype) for part in parts)  # [heads, rank, nope], [heads, v, rank]
        return torch.cat((keys.transpose(1, 2), values), dim=1).flatten(0, 1).to(self.device)

    def _checked(self, name: str, shape: tuple[int, ...]) -> tuple[_Part, ...]:
        self._check(name, shape)
        parts = self._parts[name]
        self.bytes_read += sum(part.stored.size for part in parts)
        return parts

    def _check(self, name: str, shape: tuple[int, ...]) -> None:
        if name not in self._parts:
            raise ModelError(f"{self.path}: tensor {name} is missing; fetch the model again")
        found = _shape(self._parts[name])
        if found != tuple(shape):
            raise ModelError(
                f"{self.path}: tensor {name} has shape {list(found)}, the config asks for "
                f"{list(shape)}; is this file damaged?"
            )

    def _named(self, stored: dict[str, _Part]) -> Iterator[tuple[str, tuple[_Part, ...]]]:
        """Every part under its Hugging Face name. Raises `ModelError` for one without a name."""
        modes = self.config["indexer_types"]
        for name, part in stored.items():
            if name in gguf_config.OUTER:
                yield gguf_config.OUTER[name], (part,)
                continue
            found = re.fullmatch(r"blk\.(\d+)\.(.+)", name)
            if not found:
                if name != "rope_freqs.weight":
                    raise ModelError(f"{self.path}: unexpected tensor {name!r}")
                continue
            layer, inner = int(found[1]), found[2]
            kind, prefix = inner.removesuffix(".weight"), f"model.layers.{layer}."
            if inner.startswith("indexer.") and layer < len(modes) and modes[layer] == "shared":
                continue
            if kind in gguf_config.EXPERTS:
                matrix = gguf_config.EXPERTS[kind]
                for number in range(part.stored.shape[0]):
                    expert = f"{prefix}mlp.experts.{number}.{matrix}.weight"
                    yield expert, (part.expert(number),)
            elif kind == gguf_config.K_B:
                values = stored.get(f"blk.{layer}.{gguf_config.V_B}.weight")
                if values is None:
                    raise ModelError(
                        f"{self.path}: {name} has no {gguf_config.V_B}; fetch it again"
                    )
                if f"blk.{layer}.{gguf_config.KV_B}.weight" not in stored:
                    yield f"{prefix}self_attn.kv_b_proj.weight", (part, values)
            elif inner in gguf_config.LAYER:
                yield prefix + gguf_config.LAYER[inner], (part,)
            elif kind != gguf_config.V_B and layer < len(modes):
                raise ModelError(f"{self.path}: unexpected tensor {name!r}")


def _shape(parts: tuple[_Part, ...]) -> tuple[int, ...]:
    if len(parts) == 1:
        return parts[0].stored.shape
    (heads, rank, nope), (_, value, _) = (part.stored.shape for part in parts)
    return heads * (nope + value), rank


def _files(path: Path) -> list[Path]:
    """The files of a model: `path` alone, or every one of the split it names."""
    found = _SPLIT.search(path.name)
    if not found:
        return [path]
    stem, count = path.name[: found.start()], int(found[2])
    files = [path.with_name(f"{stem}-{n:05}-of-{count:05}.gguf") for n in range(1, count + 1)]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise ModelError(f"{path}: {len(missing)} of {count} files missing, the first {missing[0]}")
    return files
