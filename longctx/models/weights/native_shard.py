"""One safetensors file, mapped read-only: where each tensor lies, and views of them.

The header is read here rather than by the safetensors package because a view's pages must be
given back again while the file stays open, and because a cut file should say how much is missing.
"""

from __future__ import annotations

import json
import mmap
import struct
import warnings
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO

import torch
from torch import Tensor

from longctx.errors import ModelError

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
}
_OTHER_BYTES = {"F8_E5M2": 1, "F8_E8M0": 1, "I8": 1, "U8": 1, "BOOL": 1, "I16": 2, "U16": 2}
_OTHER_BYTES |= {"I32": 4, "U32": 4, "I64": 8, "U64": 8}
_LONGEST_HEADER = 100_000_000  # the format's own limit


@dataclass(frozen=True)
class Entry:
    """A tensor of a file: `kind` as safetensors names dtypes, `start` and `size` in bytes."""

    kind: str
    shape: tuple[int, ...]
    start: int
    size: int


class Shard:
    """The tensors of a file by name in `entries`. Raises `ModelError` if damaged or cut short."""

    def __init__(self, path: Path):
        self.path = path
        try:
            with path.open("rb") as file:
                self.entries = _entries(path, file.read(8), file, path.stat().st_size)
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise ModelError(f"{path}: cannot be read ({error.strerror or error})") from None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # "not writable": nobody writes weights
            self._bytes = torch.frombuffer(self._map, dtype=torch.uint8)

    def view(self, name: str) -> Tensor:
        """The stored tensor, a view of the file: reading it reads the disk, writing it is fatal.

        Raises `ModelError` for a dtype that is no float.
        """
        entry = self.entries[name]
        if entry.kind not in DTYPES:
            raise ModelError(
                f"{self.path}: tensor {name} is stored as {entry.kind}, which is not supported; "
                "choose the BF16 or FP8 checkpoint"
            )
        dtype = DTYPES[entry.kind]
        stored = self._bytes[entry.start : entry.start + entry.size]
        if entry.start % dtype.itemsize:
            stored = stored.clone()  # packed by a careless writer: no view can be had
        return stored.view(dtype).view(entry.shape)

    def release(self, name: str) -> None:
        """Give the memory of a tensor's pages back; a view of it stays valid and reads again."""
        entry = self.entries[name]
        if entry.size and hasattr(mmap, "MADV_DONTNEED"):
            start = entry.start // mmap.PAGESIZE * mmap.PAGESIZE
            self._map.madvise(mmap.MADV_DONTNEED, start, entry.start + entry.size - start)


def _entries(path: Path, head: bytes, file: BinaryIO, size: int) -> dict[str, Entry]:
    """The header of an open file of `size` bytes whose first 8, `head`, are read already."""
    damaged = f"{path}: not a readable safetensors file"
    if len(head) < 8:
        raise ModelError(f"{damaged}: {size} bytes; fetch it again")
    length = struct.unpack("<Q", head)[0]
    if length > _LONGEST_HEADER:
        raise ModelError(f"{damaged}; fetch it again")
    if 8 + length > size:
        raise ModelError(f"{path}: cut short in its header, at {size:,} bytes; fetch it again")
    try:
        table = json.loads(file.read(length))
        table.pop("__metadata__", None)
        entries = {str(name): _entry(fields, 8 + length) for name, fields in table.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{damaged} ({error}); fetch it again") from None
    end = max((entry.start + entry.size for entry in entries.values()), default=8 + length)
    if end > size:
        raise ModelError(f"{path}: cut short, {size:,} of {end:,} bytes; fetch it again")
    return entries


def _entry(fields: dict, base: int) -> Entry:
    kind, shape = str(fields["dtype"]), tuple(int(n) for n in fields["shape"])
    start, end = (int(n) for n in fields["data_offsets"])
    width = DTYPES[kind].itemsize if kind in DTYPES else _OTHER_BYTES.get(kind)
    if min(shape, default=0) < 0 or not 0 <= start <= end:
        raise ValueError("a size is negative")
    if width and end - start != prod(shape) * width:
        raise ValueError(f"{end - start} bytes for {shape} of {kind}")
    return Entry(kind, shape, base + start, end - start)
