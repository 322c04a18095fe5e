"""A file on its way to a reader: opened once, carefully, never more of it than allowed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from longctx.documents.document import Document
from longctx.documents.reasons import SPECIAL, Unreadable, because, os_reason, too_large
from longctx.documents.sniff import Kind


@dataclass(frozen=True)
class Source:
    """What a reader is given. `shown` is the document's path for the user."""

    path: Path
    shown: str
    kind: Kind
    max_bytes: int

    def read(self) -> bytes:
        """The whole file. Raises Unreadable as `read_bytes` does."""
        return read_bytes(self.path, self.max_bytes)


Reader = Callable[[Source], Document]
"""Makes a document of a source, or raises Unreadable with the reason."""


def read_bytes(path: Path, max_bytes: int, head_bytes: int | None = None) -> bytes:
    """The file's bytes, or its first `head_bytes`.

    Raises Unreadable when the file cannot be read, is larger than `max_bytes`, or is no longer a
    regular file. Opening never waits, not even on a pipe that took the file's place.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        with open(os.open(path, flags), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise Unreadable(because(SPECIAL, "no longer a regular file"))
            if status.st_size > max_bytes:
                raise Unreadable(too_large(status.st_size, max_bytes))
            data = file.read(max_bytes + 1 if head_bytes is None else head_bytes)
    except OSError as error:
        raise Unreadable(os_reason(error)) from error
    if len(data) > max_bytes:  # it grew, or its size was never true, as in /proc
        raise Unreadable(too_large(len(data), max_bytes))
    return data
