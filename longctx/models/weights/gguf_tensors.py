"""The tensors of a GGUF file: where each lies, and its values dequantised block by block.

It knows the file format; what a tensor is for is `gguf.py`'s business.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize
from torch import Tensor

from longctx.errors import ModelError
from longctx.models.gguf_header import _Header

_BLOCK_ELEMENTS = 1 << 22  # dequantised at once: the float32 copy of a whole table is gigabytes
_MAX_DIMENSIONS = 4


@dataclass(frozen=True)
class StoredTensor:
    """`shape` is row-major, `[out, in]`; `offset` and `size` in bytes of the file."""

    name: str
    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    offset: int
    size: int

    @property
    def elements(self) -> int:
        return prod(self.shape)


class GGUFTensors:
    """A mapped GGUF file: `metadata` by key and `tensors` by name, in the file's order.

    Raises `ModelError` for a file that is missing, is not GGUF or is cut short.
    """

    def __init__(self, path: Path):
        self.path = path
        try:
            with path.open("rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            table = _Table(self._data)
            self.metadata: dict[str, Any] = table.read(("",))
            self.tensors = table.tensors(self.metadata.get("general.alignment", 32))
        except FileNotFoundError:
            raise ModelError(f"{path}: no such file") from None
        except OSError as error:
            raise ModelError(f"{path}: cannot be read ({error.strerror or error})") from None
        except (ValueError, TypeError, OverflowError, struct.error) as error:
            raise ModelError(
                f"{path}: not a readable GGUF file ({error}); fetch it again"
            ) from None

    def read(self, tensor: StoredTensor, dtype: torch.dtype) -> Tensor:
        """The tensor's values in `dtype`. Raises `ModelError` for an unreadable quantisation."""
        columns = tensor.shape[-1]
        stored = np.frombuffer(self._data, np.uint8, tensor.size, tensor.offset)
        stored = stored.reshape(tensor.elements // columns, -1)
        values = torch.empty((len(stored), columns), dtype=dtype)
        step = max(1, _BLOCK_ELEMENTS // columns)
        for start in range(0, len(stored), step):
            try:
                block = dequantize(stored[start : start + step], tensor.kind)
            except (NotImplementedError, KeyError) as error:
                raise ModelError(
                    f"{self.path}: quantisation {tensor.kind.name} cannot be read ({error}); "
                    "choose a file of another quantisation"
                ) from None
            # float32 comes back as a view of the read-only file, which torch does not take
            block = np.require(block, np.float32, ["C", "W"])
            values[start : start + step] = torch.from_numpy(block)
        return values.reshape(tensor.shape)


class _Table(_Header):
    """Reads on behind the key-value header, where the tensors are listed."""

    def tensors(self, alignment: int) -> dict[str, StoredTensor]:
        if alignment < 1:
            raise ValueError(f"alignment {alignment} is unknown")
        found = [self._tensor() for _ in range(struct.unpack_from("<Q", self.data, 8)[0])]
        start = -(-self.at // alignment) * alignment
        tensors = {}
        for name, shape, kind, offset in found:
            block, block_bytes = GGML_QUANT_SIZES[kind]
            if min(shape, default=0) < 1 or shape[-1] % block or name in tensors:
                raise ValueError(f"tensor {name[:60]!r} is misstated")
            size = prod(shape) // block * block_bytes
            if start + offset + size > len(self.data):
                raise ValueError("it is cut short")
            tensors[name] = StoredTensor(name, shape, kind, start + offset, size)
        return tensors

    def _tensor(self) -> tuple[str, tuple[int, ...], GGMLQuantizationType, int]:
        name, dimensions = self._string(), self._number("<I")
        if dimensions > _MAX_DIMENSIONS:
            raise ValueError(f"tensor {name[:60]!r} has {dimensions} dimensions")
        sizes = [self._number("<Q") for _ in range(dimensions)]  # the innermost comes first
        kind, offset = self._number("<I"), self._number("<Q")
        return name, tuple(reversed(sizes)), GGMLQuantizationType(kind), offset
