"""A cache on disk: latent entries and index keys of the same tokens, in one checked file.

The file is a safetensors file, written a tensor at a time. It names the model it was computed
with: keys of other weights look valid and answer nonsense.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from longctx.atomic import check_free, replace_file
from longctx.errors import StoreError
from longctx.models.native.cache import CACHE_KINDS, NativeCache
from longctx.models.native.config import NativeConfig

FORMAT = "longctx native cache"
VERSION = "1"
_NAMES = {torch.bfloat16: "BF16", torch.float32: "F32", torch.uint8: "U8"}


def save_cache(cache: NativeCache, path: Path, digest: str) -> None:
    """Write the valid tokens of `cache`, computed by the model that `digest` identifies.

    Raises `DoesNotFitError` when the disk is too small.
    """
    tensors = cache.valid()
    header: dict[str, object] = {
        "__metadata__": {
            "format": FORMAT,
            "version": VERSION,
            "model": digest,
            "kind": cache.kind,
            "length": str(cache.length),
            "checksums": json.dumps({name: _checksum(tensors[name]) for name in tensors}),
        }
    }
    end = 0
    for name, tensor in tensors.items():
        start, end = end, end + tensor.nbytes
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    check_free(path.parent, end + len(text) + 8, "the saved cache")
    with replace_file(path) as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for tensor in tensors.values():
            file.write(_bytes(tensor))


def load_cache(
    config: NativeConfig,
    path: Path,
    digest: str,
    *,
    capacity: int | None = None,
    device: torch.device | str = "cpu",
) -> NativeCache:
    """Read a cache with room for `capacity` tokens, by default those it holds.

    Raises `StoreError` for a file that is damaged, of another version or of another model, and
    `ValueError` for a capacity below what it holds.
    """
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            about = _metadata(path, file.metadata() or {}, digest)
            length = int(about["length"])
            sums = json.loads(about["checksums"])
            capacity = length if capacity is None else capacity
            if capacity < length:
                raise ValueError(f"{length} saved tokens do not fit a cache of {capacity}")
            cache = NativeCache(config, capacity, about["kind"], device)
            cache.length = length
            tensors = cache.valid()
            if set(file.keys()) != set(tensors) or set(sums) != set(tensors):
                raise StoreError(f"{path}: holds other layers than the model has; delete it")
            for name, place in tensors.items():
                saved = file.get_tensor(name)
                if saved.shape != place.shape or saved.dtype != place.dtype:
                    raise StoreError(f"{path}: {name} has another shape; delete it")
                if _checksum(saved) != sums[name]:
                    raise StoreError(f"{path}: {name} is damaged; delete the file")
                place.copy_(saved)
    except (OSError, SafetensorError, json.JSONDecodeError) as error:
        raise StoreError(f"{path}: not a readable cache ({error}); delete it") from None
    return cache


def _metadata(path: Path, about: dict[str, str], digest: str) -> dict[str, str]:
    if about.get("format") != FORMAT or about.get("version") != VERSION:
        raise StoreError(f"{path}: not a cache of this version of longctx; delete it")
    if about.get("model") != digest:
        raise StoreError(f"{path}: was computed with another model; delete it or use that model")
    sound = about.get("kind") in CACHE_KINDS and about.get("length", "").isdecimal()
    if not sound or "checksums" not in about:
        raise StoreError(f"{path}: its description is damaged; delete it")
    return about


def _bytes(tensor: Tensor) -> memoryview:
    """The stored bytes of a tensor, a view of it on the CPU."""
    return tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().data


def _checksum(tensor: Tensor) -> str:
    return hashlib.sha256(_bytes(tensor)).hexdigest()
