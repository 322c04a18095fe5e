"""Saved prefixes of native models: what a prompt's first tokens left in the caches.

A prefix is two files: its token ids, and the latents and index keys of those tokens. A prompt is
continued from the saved prefix it shares the most first tokens with, so that an appended document,
or a changed last one, costs that document alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from longctx.atomic import write_file
from longctx.errors import LongctxError, StoreError
from longctx.models.native.cache import NativeCache
from longctx.models.native.cache_file import load_cache, save_cache
from longctx.models.native.config import NativeConfig
from longctx.paths import cache_dir, ensure

LEAST_TOKENS = 256  # a shorter common beginning is computed sooner than found and read
MOST_PREFIXES = 8  # kept a model; the one unused for longest goes first
_TOKENS, _CACHE = ".tokens", ".cache"
_ORPHAN_SECONDS = 3600.0  # a cache without its tokens is being written, or was left by a crash


class PrefixStore:
    """The saved prefixes of one model; with `root` None nothing is kept.

    `warnings` tells of files that could not be read or written.
    """

    def __init__(self, root: Path | None, model_digest: str):
        self._digest = model_digest
        self._folder = None if root is None else root / model_digest[:16]
        self.warnings: list[str] = []

    @classmethod
    def default(cls, model_digest: str) -> PrefixStore:
        """The store in the user's cache folder."""
        return cls(cache_dir() / "prefixes", model_digest)

    def take(
        self, config: NativeConfig, tokens: Sequence[int], capacity: int, device: str = "cpu"
    ) -> NativeCache | None:
        """A cache that holds the longest saved beginning of `tokens`, with room for `capacity`.

        None where nothing worth it is saved. A damaged file, or one of another model or version,
        is told of, deleted and passed over.
        """
        wanted = np.asarray(tokens, dtype=np.int32)
        for shared, path in sorted(self._shared(wanted), reverse=True, key=lambda found: found[0]):
            if shared < LEAST_TOKENS:
                break
            try:
                room = max(capacity, len(_read(path)))
                file = path.with_suffix(_CACHE)
                held = load_cache(config, file, self._digest, capacity=room, device=device)
            except (StoreError, ValueError) as error:
                self.warnings.append(str(error))
                self._forget(path)
                continue
            held.crop(shared)
            with contextlib.suppress(OSError):
                os.utime(path)
            return held
        return None

    def keep(self, tokens: Sequence[int], cache: NativeCache) -> None:
        """Save what `cache` holds of `tokens`; prefixes that only begin it are deleted.

        A prefix that cannot be written is told of: it is no reason not to answer.
        """
        if self._folder is None or cache.length < LEAST_TOKENS:
            return
        held = np.asarray(tokens[: cache.length], dtype=np.int32)
        path = self._folder / (_name(held) + _TOKENS)
        try:
            ensure(self._folder)
            save_cache(cache, path.with_suffix(_CACHE), self._digest)
            write_file(path, held.tobytes())
        except (LongctxError, OSError) as error:
            self.warnings.append(f"the prefix is not kept for the next time: {error}")
            return
        for other in self._saved():
            if other != path and self._begins(other, held):
                self._forget(other)
        for old in sorted(self._saved(), key=_age)[:-MOST_PREFIXES]:
            self._forget(old)
        for left in self._folder.glob(f"*{_CACHE}"):
            old = time.time() - _age(left) > _ORPHAN_SECONDS
            if old and not left.with_suffix(_TOKENS).exists():
                self._forget(left)

    def _saved(self) -> list[Path]:
        return [] if self._folder is None else list(self._folder.glob(f"*{_TOKENS}"))

    def _shared(self, wanted: np.ndarray) -> list[tuple[int, Path]]:
        """How many first tokens every saved prefix has in common with `wanted`."""
        found = []
        for path in self._saved():
            tokens = _read(path)
            if _name(tokens) == path.stem:
                found.append((_common(tokens, wanted), path))
            elif path.exists():  # else another process has just deleted it
                self.warnings.append(f"{path}: its tokens are damaged; it is made again")
                self._forget(path)
        return found

    def _begins(self, path: Path, held: np.ndarray) -> bool:
        tokens = _read(path)
        return len(tokens) <= len(held) and _common(tokens, held) == len(tokens)

    def _forget(self, path: Path) -> None:
        for file in (path.with_suffix(_TOKENS), path.with_suffix(_CACHE)):
            with contextlib.suppress(OSError):
                file.unlink(missing_ok=True)


def _read(path: Path) -> np.ndarray:
    try:
        data = path.read_bytes()
    except OSError:
        return np.zeros(0, dtype=np.int32)
    return np.frombuffer(data[: len(data) // 4 * 4], dtype=np.int32)


def _name(tokens: np.ndarray) -> str:
    """What the files of a prefix are called: tokens of another name are not its tokens."""
    return hashlib.sha256(tokens.tobytes()).hexdigest()[:32]


def _common(a: np.ndarray, b: np.ndarray) -> int:
    size = min(len(a), len(b))
    differ = np.flatnonzero(a[:size] != b[:size])
    return int(differ[0]) if len(differ) else size


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
