"""Finding the files to read: folders in a stable order, what git ignores left out.

Nothing but folders and ignore files is opened here. What is left out against the user's likely wish
(links, devices, what cannot be read) comes out as `Skipped`; what the user's own ignore files or a
leading dot leave out is only counted.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from longctx.documents.document import Skipped
from longctx.documents.ignores import Level, ignored_by, levels_above, load_level
from longctx.documents.reasons import SPECIAL, SYMLINK, because, os_reason
from longctx.errors import UsageError

HIDDEN = "(hidden)"

_SPECIAL_NAMES = {
    stat.S_IFIFO: "named pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "character device",
    stat.S_IFBLK: "block device",
}


@dataclass(frozen=True)
class Found:
    """A regular file to read."""

    path: Path

    @property
    def shown(self) -> str:
        """The path as the user would type it, with forward slashes."""
        return self.path.as_posix()


def find_files(
    paths: Sequence[Path],
    *,
    follow_symlinks: bool = False,
    hidden: bool = False,
    ignored: Counter[str] | None = None,
) -> Iterator[Found | Skipped]:
    """The files under `paths`, in the order given, each folder in byte order of relative paths.

    A path the user names is read even if it is hidden, ignored or a link, and no real file comes
    twice. With `follow_symlinks`, links found in a folder are followed as long as they stay inside
    it, after everything that needs no link; without, they are skipped. `ignored`, when given,
    counts the entries left out (a folder counts as one) per ignore file and under `HIDDEN`.

    Raises UsageError, before anything is walked, when a path does not exist.
    """
    checked = [(path, _stat_named(path)) for path in paths]
    walk = _Walk(follow_symlinks, hidden, Counter() if ignored is None else ignored)
    return walk.named(checked)


def _stat_named(path: Path) -> os.stat_result | OSError:
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        what = "a link to nowhere" if os.path.islink(path) else "no such file or folder"
        raise UsageError(f"{what}: {path}") from None
    except OSError as error:
        return error
    except ValueError:
        raise UsageError(f"not a path: {str(path)!r}") from None


@dataclass(frozen=True)
class _Entry:
    """An entry of a folder that is to be read or walked.

    `path` opens it; `real` is its real path (for a link, the link's own); `below` is its path below
    the repository's top, with a slash at its end for a folder; `levels` are the ignore levels of
    the folders above it.
    """

    kind: str
    path: str
    real: str
    below: bytes
    levels: tuple[Level, ...]


_FOLDER, _FILE, _LINK, _OTHER = "folder", "file", "link", "other"


@dataclass
class _Walk:
    follow_symlinks: bool
    hidden: bool
    ignored: Counter[str]
    seen: set[str] = field(default_factory=set)

    def named(
        self, paths: Sequence[tuple[Path, os.stat_result | OSError]]
    ) -> Iterator[Found | Skipped]:
        told: set[Skipped] = set()
        for path, found in paths:
            if isinstance(found, OSError):
                results = iter([Skipped(path.as_posix(), os_reason(found))])
            elif stat.S_ISDIR(found.st_mode):
                results = self._root(path)
            else:
                results = self._file(str(path), os.path.realpath(path), found.st_mode)
            for result in results:
                if isinstance(result, Found) or result not in told:
                    yield result
                if isinstance(result, Skipped):
                    told.add(result)

    def _file(self, path: str, real: str, mode: int) -> Iterator[Found | Skipped]:
        if not stat.S_ISREG(mode):
            yield Skipped(_posix(path), _special(mode))
        elif real not in self.seen:
            self.seen.add(real)
            yield Found(Path(path))

    def _root(self, root: Path) -> Iterator[Found | Skipped]:
        real = os.path.realpath(root)
        levels, below, skipped = levels_above(real)
        yield from skipped
        walked: set[str] = set()
        links: list[_Entry] = []
        start = "" if root == Path() else str(root)
        yield from self._tree(_Entry(_FOLDER, start, real, below, tuple(levels)), walked, links)
        for link in links:  # grows while linked folders are walked
            yield from self._linked(link, real, walked, links)

    def _tree(
        self, top: _Entry, walked: set[str], links: list[_Entry]
    ) -> Iterator[Found | Skipped]:
        """Everything below `top` that no link is needed for; the links it meets go to `links`."""
        listings = [self._list(top, walked)]
        while listings:
            entry = next(listings[-1], None)
            if entry is None:
                listings.pop()
            elif isinstance(entry, Skipped):
                yield entry
            elif entry.kind == _FOLDER:
                if entry.real not in walked:
                    listings.append(self._list(entry, walked))
            elif entry.kind == _FILE:
                yield from self._file(entry.path, entry.real, stat.S_IFREG)
            elif self.follow_symlinks:
                links.append(entry)
            else:
                yield Skipped(_posix(entry.path), because(SYMLINK, "not followed"))

    def _list(self, folder: _Entry, walked: set[str]) -> Iterator[_Entry | Skipped]:
        """The entries of a folder that are to be read, in byte order of whole relative paths."""
        walked.add(folder.real)
        try:
            with os.scandir(folder.path or ".") as scan:
                kinds = {entry.name: _kind(entry) for entry in scan}
        except OSError as error:
            yield Skipped(_posix(folder.path) or ".", os_reason(error))
            return
        level, skipped = load_level(folder.path, _posix(folder.path), len(folder.below), kinds)
        yield from skipped
        levels = (*folder.levels, level) if level else folder.levels
        slashed = {name: os.fsencode(name) + b"/" * (kinds[name] == _FOLDER) for name in kinds}
        for name in sorted(kinds, key=slashed.__getitem__):
            kind = kinds[name]
            path = os.path.join(folder.path, name)
            entry = _Entry(
                kind, path, os.path.join(folder.real, name), folder.below + slashed[name], levels
            )
            if name == ".git":
                continue
            if name.startswith(".") and not self.hidden:
                self.ignored[HIDDEN] += 1
            elif source := ignored_by(levels, entry.below.removesuffix(b"/"), kind == _FOLDER):
                self.ignored[source] += 1
            elif kind == _OTHER:
                yield Skipped(_posix(path), _odd(path))
            else:
                yield entry

    def _linked(
        self, link: _Entry, root: str, walked: set[str], links: list[_Entry]
    ) -> Iterator[Found | Skipped]:
        try:
            mode = os.stat(link.path).st_mode
        except FileNotFoundError:
            yield Skipped(_posix(link.path), because(SYMLINK, "broken"))
            return
        except OSError as error:
            yield Skipped(_posix(link.path), os_reason(error))
            return
        real = os.path.realpath(link.path)
        inside = real.removeprefix(root).removeprefix(os.sep).split(os.sep)
        if real != root and not real.startswith(os.path.join(root, "")):
            yield Skipped(_posix(link.path), because(SYMLINK, "leads out of the folder"))
        elif ".git" in inside:
            yield Skipped(_posix(link.path), because(SYMLINK, "leads into .git"))
        elif not stat.S_ISDIR(mode):
            yield from self._file(link.path, real, mode)
        elif real not in walked:
            folder = replace(link, kind=_FOLDER, real=real, below=link.below + b"/")
            yield from self._tree(folder, walked, links)


def _kind(entry: os.DirEntry[str]) -> str:
    try:
        if entry.is_symlink():
            return _LINK
        if entry.is_dir(follow_symlinks=False):
            return _FOLDER
        return _FILE if entry.is_file(follow_symlinks=False) else _OTHER
    except OSError:
        return _OTHER


def _odd(path: str) -> str:
    """Why an entry that is no folder, file or link is not read; it may not even say what it is."""
    try:
        return _special(os.lstat(path).st_mode)
    except OSError as error:
        return os_reason(error)


def _special(mode: int) -> str:
    return because(SPECIAL, _SPECIAL_NAMES.get(stat.S_IFMT(mode), "neither file nor folder"))


def _posix(path: str) -> str:
    return Path(path).as_posix() if path else ""
