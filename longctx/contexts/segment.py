"""One document's index as it lies on disk: keys, scales, block starts and words.

A segment is a safetensors file, memory-mapped when read; one made for words alone has no keys. Its
header names the format version and a checksum of the arrays; a file that does not match is refused,
never half used.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from longctx.atomic import write_file
from longctx.errors import StoreError
from longctx.indexshare.lexical import Postings
from longctx.indexshare.recall import IndexKeys

SEGMENT_VERSION = 1


@dataclass(frozen=True)
class Segment:
    """The index of one document of `tokens` tokens, or of a part of one.

    `starts` int32 `[blocks]`: the character each block begins at; `keys` and `postings` as their
    types say. `keys` has no streams where words alone were indexed.
    """

    tokens: int
    starts: np.ndarray
    keys: IndexKeys
    postings: Postings

    @property
    def blocks(self) -> int:
        return len(self.starts)

    @property
    def has_keys(self) -> bool:
        """Whether attention can search it; its words can be searched in any case."""
        return bool(self.keys.keys)


def joined(parts: Sequence[Segment]) -> Segment:
    """The segment of a document from those of its parts, in order; all but the last hold whole
    blocks, and `starts` are characters of the document in each."""
    ends = np.cumsum([0, *(len(part.postings.terms) for part in parts)], dtype=np.int64)
    ptrs = [part.postings.ptr[1:] + end for part, end in zip(parts, ends, strict=False)]
    return Segment(
        tokens=sum(part.tokens for part in parts),
        starts=np.concatenate([part.starts for part in parts]),
        keys=IndexKeys(
            {s: torch.cat([part.keys.keys[s] for part in parts]) for s in parts[0].keys.keys},
            {s: torch.cat([part.keys.scales[s] for part in parts]) for s in parts[0].keys.scales},
        ),
        postings=Postings(
            np.concatenate([part.postings.terms for part in parts]),
            np.concatenate([part.postings.counts for part in parts]),
            np.concatenate([np.zeros(1, dtype=np.int64), *ptrs]),
        ),
    )


def write_segment(path: Path, segment: Segment) -> None:
    """Write atomically. Raises `DoesNotFitError` when the disk is full."""
    arrays: dict[str, Tensor] = {
        "starts": torch.from_numpy(segment.starts),
        "terms": torch.from_numpy(segment.postings.terms.view(np.int32)),
        "counts": torch.from_numpy(segment.postings.counts),
        "ptr": torch.from_numpy(segment.postings.ptr),
    }
    for (layer, kv_head), keys in segment.keys.keys.items():
        arrays[f"keys.{layer}.{kv_head}"] = keys.contiguous()
        arrays[f"scales.{layer}.{kv_head}"] = segment.keys.scales[layer, kv_head].contiguous()
    about = {
        "format": f"longctx-segment-{SEGMENT_VERSION}",
        "tokens": str(segment.tokens),
        "checksum": _checksum(arrays),
    }
    write_file(path, save(arrays, metadata=about))


def read_segment(path: Path) -> Segment:
    """Map a segment. Raises `StoreError` when it is damaged, cut short or of another version."""
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            about = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, json.JSONDecodeError) as error:
        raise StoreError(f"{path}: damaged index segment ({error})") from None
    if about.get("format") != f"longctx-segment-{SEGMENT_VERSION}":
        raise StoreError(f"{path}: index segment of another version")
    if about.get("checksum") != _checksum(arrays):
        raise StoreError(f"{path}: damaged index segment (checksum)")
    try:
        segment = _unpack(int(about["tokens"]), arrays)
    except (KeyError, ValueError) as error:
        raise StoreError(f"{path}: damaged index segment ({error})") from None
    if not _fits(segment):
        raise StoreError(f"{path}: damaged index segment (its parts do not fit together)")
    return segment


def _unpack(tokens: int, arrays: dict[str, Tensor]) -> Segment:
    keys: dict[tuple[int, int], Tensor] = {}
    scales: dict[tuple[int, int], Tensor] = {}
    for name, array in arrays.items():
        kind, _, place = name.partition(".")
        if place:
            layer, kv_head = (int(n) for n in place.split("."))
            (keys if kind == "keys" else scales)[layer, kv_head] = array
    return Segment(
        tokens=tokens,
        starts=arrays["starts"].numpy(),
        keys=IndexKeys(keys, scales),
        postings=Postings(
            arrays["terms"].numpy().view(np.uint32),
            arrays["counts"].numpy(),
            arrays["ptr"].numpy(),
        ),
    )


def _fits(segment: Segment) -> bool:
    """Whether types and sizes agree: the checksum covers bytes, not what the header calls them."""
    words, keys, scales = segment.postings, segment.keys.keys, segment.keys.scales
    types = (segment.starts.dtype, words.counts.dtype, words.ptr.dtype)
    return (
        types == (np.int32, np.uint8, np.int64)
        and len(words.ptr) == segment.blocks + 1
        and len(words.terms) == len(words.counts) == words.ptr[-1]
        and keys.keys() == scales.keys()
        and all(k.dtype == torch.int8 and k.ndim == 2 for k in keys.values())
        and all(s.dtype == torch.float16 for s in scales.values())
        and all(keys[s].shape[:1] == scales[s].shape == (segment.tokens,) for s in keys)
    )


def _checksum(arrays: dict[str, Tensor]) -> str:
    """CRC-32 over names and bytes: catches damage, not malice."""
    value = 0
    for name in sorted(arrays):
        value = zlib.crc32(name.encode(), value)
        value = zlib.crc32(arrays[name].numpy().data, value)
    return f"{value:08x}"
