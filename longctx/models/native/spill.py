"""Rows of numbers on disk, written and read a few at a time, gone when they are closed.

The file has no name where the system allows it: nothing is left behind however a process ends.
It knows nothing of what the rows mean.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import TracebackType

import torch
from torch import Tensor

from longctx.atomic import disk_full_message


class SpilledRows:
    """`count` rows of `width` numbers of `dtype`, in a file of `folder`; a context manager.

    `bytes_written` and `bytes_read` are totals. Writing raises `DoesNotFitError` when the disk is
    full.
    """

    def __init__(self, folder: Path, count: int, width: int, dtype: torch.dtype):
        self.count, self.width, self.dtype = count, width, dtype
        self.bytes_written = self.bytes_read = 0
        self._place = folder / "spilled rows"  # for messages: the file itself has no such name
        self._file = tempfile.TemporaryFile(dir=folder, prefix=".longctx-", buffering=0)  # noqa: SIM115

    @property
    def nbytes(self) -> int:
        """Bytes of all rows, whether written or not."""
        return spilled_bytes(self.count, self.width, self.dtype)

    def write(self, start: int, rows: Tensor) -> None:
        """Put `rows` `[T, width]` at `start`. They may be on any device."""
        self._check(start, len(rows))
        if rows.shape[1:] != (self.width,) or rows.dtype != self.dtype:
            raise ValueError(f"rows {tuple(rows.shape)} of {rows.dtype} for {self.width} columns")
        left = rows.cpu().contiguous().view(torch.uint8).flatten().numpy().data
        self._file.seek(start * self._row_bytes)
        self.bytes_written += len(left)
        with disk_full_message(self._place):
            while left:
                left = left[self._file.write(left) :]

    def read(self, start: int, count: int, device: torch.device | str = "cpu") -> Tensor:
        """Rows `[count, width]` from `start` on, as they were written, in memory of their own."""
        self._check(start, count)
        rows = torch.empty(count, self.width, dtype=self.dtype)
        left = rows.view(torch.uint8).flatten().numpy().data  # shares their memory
        self._file.seek(start * self._row_bytes)
        self.bytes_read += len(left)
        while left:
            found = self._file.readinto(left)
            if not found:
                raise ValueError(f"rows {start} to {start + count} were never written")
            left = left[found:]
        return rows.to(device)

    def close(self) -> None:
        """Give the disk back."""
        self._file.close()

    def __enter__(self) -> SpilledRows:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def _row_bytes(self) -> int:
        return self.width * self.dtype.itemsize

    def _check(self, start: int, count: int) -> None:
        if not 0 <= start <= start + count <= self.count:
            raise ValueError(f"rows {start} to {start + count} of {self.count}")


def spilled_bytes(count: int, width: int, dtype: torch.dtype) -> int:
    """What `count` rows of `width` numbers take on disk."""
    return count * width * dtype.itemsize
