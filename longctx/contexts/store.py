"""Index segments under the hash of what they were made from.

The key covers the document's text, the model, the profile and the format, so a segment is valid
for ever or not at all: an edited file has another key, a file in two folders has one.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from longctx.contexts.segment import SEGMENT_VERSION, Segment, read_segment, write_segment
from longctx.errors import DoesNotFitError, StoreError
from longctx.paths import cache_dir, ensure


class SegmentStore:
    """Segments of one model and profile, on disk or, with `root` None, in memory."""

    def __init__(self, root: Path | None, model_digest: str, profile_digest: str):
        identity = f"{SEGMENT_VERSION}\n{model_digest}\n{profile_digest}"
        self._salt = hashlib.sha256(identity.encode()).hexdigest()
        self._folder = None if root is None else root / self._salt[:16]
        self._memory: dict[str, Segment] = {}
        self.damaged: list[str] = []

    @classmethod
    def default(cls, model_digest: str, profile_digest: str) -> SegmentStore:
        """The store in the user's cache folder."""
        return cls(cache_dir() / "segments", model_digest, profile_digest)

    def key(self, document_digest: str) -> str:
        return hashlib.sha256(f"{self._salt}\n{document_digest}".encode()).hexdigest()

    def get(self, document_digest: str) -> Segment | None:
        """The segment of a document, or None. A damaged file is noted, deleted and None."""
        key = self.key(document_digest)
        if self._folder is None:
            return self._memory.get(key)
        path = self._path(key)
        if not path.exists():
            return None
        try:
            return read_segment(path)
        except StoreError as error:
            self.damaged.append(str(error))
            path.unlink(missing_ok=True)
            return None

    def put(self, document_digest: str, segment: Segment) -> Segment:
        """Keep a segment; returns it as it will be read (mapped, when it went to disk)."""
        key = self.key(document_digest)
        if self._folder is None:
            self._memory[key] = segment
            return segment
        path = self._path(key)
        ensure(path.parent)
        try:
            write_segment(path, segment)
        except DoesNotFitError as error:
            raise DoesNotFitError(f"{error}; --no-store keeps the index in memory") from None
        except OSError as error:
            raise StoreError(
                f"{path.parent}: the index cannot be kept there ({error.strerror}); "
                "--no-store keeps it in memory"
            ) from None
        return read_segment(path)

    def _path(self, key: str) -> Path:
        assert self._folder is not None
        return self._folder / key[:2] / f"{key}.segment"


def store_size(root: Path | None = None) -> tuple[int, int]:
    """Segments and bytes under the store's folder."""
    root = root or cache_dir() / "segments"
    sizes = [file.stat().st_size for file in root.rglob("*.segment")] if root.exists() else []
    return len(sizes), sum(sizes)
