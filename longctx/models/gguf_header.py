"""The key-value header of a GGUF file, read without touching its tensors.

Building a full reader takes seconds for a 150,000-token vocabulary; the tokenizer needs only the
header, which this reads in a fraction of one. It knows the file format and no meaning of any key.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any

import numpy as np

from longctx.errors import ModelError

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
# GGUF value type -> little-endian struct format; the same letters name the numpy dtypes.
_NUMBERS = {
    0: "B", 1: "b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "?", 10: "<Q", 11: "<q",
    12: "<d",
}  # fmt: skip


def read_header(path: Path, prefixes: tuple[str, ...] = ("",)) -> dict[str, Any]:
    """Keys starting with one of `prefixes` and their values: numbers, `str`, lists.

    Arrays of numbers come back as lists too; nested arrays are refused. Bytes of a string that
    are no UTF-8 become U+FFFD. Raises `ModelError` when the file is missing, is not GGUF or ends
    inside the header.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Header(data).read(prefixes)
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (ValueError, struct.error, OverflowError) as error:
        raise ModelError(f"{path}: not a readable GGUF file ({error}); fetch it again") from None


class _Header:
    """A cursor over the mapped file; every read is checked against the end of the file."""

    def __init__(self, data: mmap.mmap):
        self.data, self.at = data, 0

    def read(self, prefixes: tuple[str, ...]) -> dict[str, Any]:
        if self.data[:4] != _MAGIC:
            raise ValueError("it does not start with GGUF")
        version = struct.unpack_from("<I", self.data, 4)[0]
        if version not in _VERSIONS:
            raise ValueError(f"version {version} is unknown")
        count = struct.unpack_from("<Q", self.data, 16)[0]
        self.at = 24
        found = {}
        for _ in range(count):
            key = self._string()
            value = self._value(self._number("<I"))
            if key.startswith(prefixes):
                found[key] = value
        return found

    def _number(self, form: str) -> Any:
        value = struct.unpack_from(form, self.data, self.at)[0]
        self.at += struct.calcsize(form)
        return value

    def _string(self) -> str:
        return self._strings(1)[0]

    def _strings(self, count: int) -> list[str]:
        data, at, end = self.data, self.at, len(self.data)
        unpack = struct.Struct("<Q").unpack_from
        found = []
        for _ in range(count):
            start = at + 8
            at = start + unpack(data, at)[0]
            if at > end:
                raise ValueError("it is cut short")
            found.append(data[start:at].decode("utf-8", "replace"))
        self.at = at
        return found

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            inner, count = self._number("<I"), self._number("<Q")
            if inner == _STRING:
                return self._strings(count)
            return self._numbers(inner, count)
        return self._number(self._form(kind))

    def _numbers(self, kind: int, count: int) -> list[Any]:
        dtype = np.dtype(self._form(kind))
        if self.at + count * dtype.itemsize > len(self.data):
            raise ValueError("it is cut short")
        # Copied out, so that no array keeps the map open.
        values = np.frombuffer(self.data, dtype, count, self.at).tolist()
        self.at += count * dtype.itemsize
        return values

    def _form(self, kind: int) -> str:
        if kind not in _NUMBERS:
            raise ValueError(f"value type {kind} is unknown")
        return _NUMBERS[kind]
