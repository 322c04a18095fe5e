"""From the paths a user names to documents, with a reason for every file that became none."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from longctx.documents.document import Document, Skipped
from longctx.documents.readers import READERS, Reader, Source
from longctx.documents.readers.source import read_bytes
from longctx.documents.reasons import Unreadable, failure
from longctx.documents.sniff import HEAD_BYTES, Kind, sniff
from longctx.documents.walk import Found, find_files

DEFAULT_MAX_BYTES = 100_000_000


def read_documents(
    paths: Sequence[Path],
    *,
    stdin_paths: BinaryIO | None = None,
    follow_symlinks: bool = False,
    hidden: bool = False,
    max_bytes: int = DEFAULT_MAX_BYTES,
    ignored: Counter[str] | None = None,
) -> Iterator[Document | Skipped]:
    """Read the files under `paths` and those listed on `stdin_paths`, in the order of `find_files`.

    `stdin_paths` lists one path a line, or separated by NULs. A file above `max_bytes` is skipped.
    `ignored` counts what ignore files and leading dots left out, as in `find_files`.

    Raises UsageError at once, before anything is read, when a path does not exist. Nothing that a
    file contains stops the run: what cannot be read comes out as `Skipped`.
    """
    named = [*paths, *(_listed_paths(stdin_paths.read()) if stdin_paths else [])]
    found = find_files(named, follow_symlinks=follow_symlinks, hidden=hidden, ignored=ignored)
    return _read_all(found, max_bytes)


def _listed_paths(listing: bytes) -> list[Path]:
    separator = b"\0" if b"\0" in listing else b"\n"
    names = (name.removesuffix(b"\r") for name in listing.split(separator))
    return [Path(os.fsdecode(name)) for name in names if name]


def _read_all(found: Iterator[Found | Skipped], max_bytes: int) -> Iterator[Document | Skipped]:
    with ExitStack() as open_readers:
        readers: dict[Kind, Reader] = {}
        for file in found:
            if isinstance(file, Skipped):
                yield file
                continue
            try:
                head = read_bytes(file.path, max_bytes, HEAD_BYTES)
                kind = sniff(file.path.name, head)
                if kind not in readers:
                    readers[kind] = open_readers.enter_context(READERS[kind]())
                result = readers[kind](Source(file.path, file.shown, kind, max_bytes))
            except Unreadable as unreadable:
                result = Skipped(file.shown, str(unreadable))
            except Exception as error:  # one reader's bug must not cost the other documents
                result = Skipped(file.shown, failure(error))
            yield result
