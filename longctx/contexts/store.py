"""Index segments under the hash of what they were made from.

The key covers the document's text, the model, the profile and the format, so a segment is valid
for ever or not at all: an edited file has another key, a file in two folders has one. What the disk
does not take stays in memory: an index that cannot be kept is no reason not to answer.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from longctx.contexts.segment import SEGMENT_VERSION, Segment, read_segment, write_segment
from longctx.errors import DoesNotFitError, LongctxError, StoreError
from longctx.paths import cache_dir, ensure

_WHOLE, _WORDS = ".segment", ".words"  # with keys, and with the words alone


class SegmentStore:
    """Segments of one model and profile, on disk or, with `root` None, in memory.

    `damaged` tells of files that could not be read, `warnings` what the user should know.
    """

    def __init__(self, root: Path | None, model_digest: str, profile_digest: str):
        identity = f"{SEGMENT_VERSION}\n{model_digest}\n{profile_digest}"
        self._salt = hashlib.sha256(identity.encode()).hexdigest()
        self._folder = None if root is None else root / self._salt[:16]
        self._memory: dict[str, Segment] = {}
        self._takes_files = root is not None
        self.damaged: list[str] = []
        self.warnings: list[str] = []

    @classmethod
    def default(cls, model_digest: str, profile_digest: str) -> SegmentStore:
        """The store in the user's cache folder."""
        return cls(cache_dir() / "segments", model_digest, profile_digest)

    def key(self, document_digest: str) -> str:
        return hashlib.sha256(f"{self._salt}\n{document_digest}".encode()).hexdigest()

    def get(self, document_digest: str, keys: bool = True) -> Segment | None:
        """The segment of a document, or None; without `keys` one of words alone will do.

        A damaged file is noted, deleted and None.
        """
        key = self.key(document_digest)
        found = self._memory.get(key)
        if found is None and self._folder is not None:
            found = self._read(self._path(key, _WHOLE))
            if found is None and not keys:
                found = self._read(self._path(key, _WORDS))
        return None if found is None or (keys and not found.has_keys) else found

    def put(self, document_digest: str, segment: Segment) -> Segment:
        """Keep a segment; returns it as it will be read (mapped, when it went to disk).

        One with keys takes the place of one with words alone. Where it cannot be written it is
        kept in memory, and `warnings` says so once.
        """
        key = self.key(document_digest)
        if self._takes_files:
            path = self._path(key, _WHOLE if segment.has_keys else _WORDS)
            try:
                kept = self._write(path, segment)
            except (LongctxError, OSError) as error:
                self._cannot_write(path, error)
            else:
                if segment.has_keys:
                    _clear(self._path(key, _WORDS))
                return kept
        self._memory[key] = segment
        return segment

    def discard(self, document_digest: str) -> None:
        """Forget a segment, on disk too."""
        key = self.key(document_digest)
        self._memory.pop(key, None)
        if self._folder is not None:
            for kind in (_WHOLE, _WORDS):
                _clear(self._path(key, kind))

    def _read(self, path: Path) -> Segment | None:
        if not os.path.lexists(path):
            return None
        try:
            return read_segment(path)
        except StoreError as error:
            self.damaged.append(str(error))
            _clear(path)
            return None

    def _write(self, path: Path, segment: Segment) -> Segment:
        ensure(path.parent)
        write_segment(path, segment)
        return read_segment(path)

    def _cannot_write(self, path: Path, error: LongctxError | OSError) -> None:
        """Tell it once, and try no more, unless it is this one file that is in the way."""
        if path.is_dir():
            self.warnings.append(f"{path}: a folder stands where an index file belongs; remove it")
            return
        self._takes_files = False
        if isinstance(error, DoesNotFitError):
            reason = f"the disk of {self._folder} is full"
        elif isinstance(error, OSError):
            reason = f"{self._folder}: {error.strerror}"
        else:
            reason = str(error)
        self.warnings.append(f"the index is not kept for the next time: {reason}")

    def _path(self, key: str, kind: str) -> Path:
        assert self._folder is not None
        return self._folder / key[:2] / f"{key}{kind}"


def store_size(root: Path | None = None) -> tuple[int, int]:
    """Segments and bytes under the store's folder."""
    root = root or cache_dir() / "segments"
    files = [file for kind in (_WHOLE, _WORDS) for file in root.rglob(f"*{kind}")]
    return len(files), sum(file.stat().st_size for file in files)


def _clear(path: Path) -> None:
    """Delete a file, or a folder that stands in its place if nothing is in it, where possible."""
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
