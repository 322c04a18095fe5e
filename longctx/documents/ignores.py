"""Which ignore files hold for a folder, and which of them says that an entry is ignored.

Four files speak: `.git/info/exclude`, `.gitignore`, `.ignore` and `.longctxignore`, the later ones
louder. A deeper folder's files outrank a higher one's, and in a folder the last match decides.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from longctx.documents.document import Skipped
from longctx.documents.gitignore import Rule, parse_rules
from longctx.documents.reasons import SYMLINK, because, os_reason, too_large

IGNORE_FILES = (".gitignore", ".ignore", ".longctxignore")
MAX_IGNORE_BYTES = 500_000


@dataclass(frozen=True)
class IgnoreFile:
    """One ignore file. `shown` is its path as reported to the user."""

    shown: str
    rules: tuple[Rule, ...]


@dataclass(frozen=True)
class Level:
    """The ignore files of one folder, the loudest last.

    `prefix` counts the bytes that the folder's own path takes, with its slash, at the front of
    every path below it.
    """

    prefix: int
    files: tuple[IgnoreFile, ...]

    @cached_property
    def _any(self) -> re.Pattern[bytes]:
        patterns = {rule.regex.pattern for file in self.files for rule in file.rules}
        return re.compile(b"|".join(b"(?:%s)" % pattern for pattern in patterns), re.DOTALL)

    def decide(self, path: bytes, is_folder: bool) -> tuple[bool, str] | None:
        """(ignored, ignore file) by the last rule that matches, None when none does."""
        below = path[self.prefix :]
        if not self._any.match(below):  # one regex says no for most entries
            return None
        for file in reversed(self.files):
            for rule in reversed(file.rules):
                if rule.matches(below, is_folder):
                    return not rule.negated, file.shown
        return None


def ignored_by(levels: Sequence[Level], path: bytes, is_folder: bool) -> str | None:
    """The ignore file that hides `path`, or None. `levels` come highest folder first."""
    for level in reversed(levels):
        if (verdict := level.decide(path, is_folder)) is not None:
            ignored, shown = verdict
            return shown if ignored else None
    return None


def load_level(
    folder: str, shown: str, prefix: int, names: Iterable[str]
) -> tuple[Level | None, list[Skipped]]:
    """Read the ignore files among `names`, the entries of `folder`; say which could not be read.

    An ignore file that is a link is not followed, as in git, and nothing but a regular file is
    opened.
    """
    present = set(names)
    wanted = [(os.path.join(folder, name), name) for name in IGNORE_FILES if name in present]
    if ".git" in present and (git := _git_folder(os.path.join(folder, ".git"))) is not None:
        wanted.insert(0, (os.path.join(git, "info", "exclude"), ".git/info/exclude"))
    files, skipped = [], []
    for path, name in wanted:
        shown_file = f"{shown}/{name}" if shown else name
        try:
            rules = _load_rules(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            skipped.append(Skipped(shown_file, os_reason(error)))
            continue
        if isinstance(rules, str):
            skipped.append(Skipped(shown_file, rules))
        elif rules:
            files.append(IgnoreFile(shown_file, rules))
    return (Level(prefix, tuple(files)) if files else None), skipped


def _load_rules(path: str) -> tuple[Rule, ...] | str:
    """The rules, or the reason for which there are none."""
    found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode):
        return because(SYMLINK, "ignore files are not read through links")
    if not stat.S_ISREG(found.st_mode):
        return ()
    if found.st_size > MAX_IGNORE_BYTES:
        return too_large(found.st_size, MAX_IGNORE_BYTES)
    with open(path, "rb") as file:
        return tuple(parse_rules(file.read()))


def _git_folder(dot_git: str) -> str | None:
    """Where a repository's `info` lies: `.git` itself, or where the `.git` file of a worktree or
    submodule points."""
    try:
        if os.path.isdir(dot_git):
            return dot_git
        git = _one_line(dot_git).removeprefix("gitdir:").strip()
        git = os.path.join(os.path.dirname(dot_git), git)
        common = os.path.join(git, "commondir")
        return os.path.join(git, _one_line(common)) if os.path.exists(common) else git
    except OSError:
        return None  # a `.git` that cannot be read names no exclude file


def _one_line(path: str) -> str:
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(f"{path} is not a file")
    with open(path, "rb") as file:
        return os.fsdecode(file.read(4096)).strip()


def levels_above(root: str) -> tuple[list[Level], bytes, list[Skipped]]:
    """What holds in `root` (a real, absolute path) because of the repository it lies in.

    Returns the levels from the repository's top down to the parent of `root`, the path of `root`
    below that top with a slash at its end (empty when `root` is the top or in no repository), and
    the ignore files that could not be read. When the repository ignores `root` itself there are no
    levels: whoever names an ignored folder wants what is in it.
    """
    top = root
    while not os.path.lexists(os.path.join(top, ".git")):
        parent = os.path.dirname(top)
        if parent == top:
            return [], b"", []
        top = parent
    if top == root:
        return [], b"", []
    below = os.path.relpath(root, top).replace(os.sep, "/")
    levels: list[Level] = []
    skipped: list[Skipped] = []
    folder, path = top, b""
    for name in below.split("/"):
        present = [n for n in (*IGNORE_FILES, ".git") if os.path.lexists(os.path.join(folder, n))]
        level, unread = load_level(folder, folder.replace(os.sep, "/"), len(path), present)
        levels.extend([level] if level else [])
        skipped.extend(unread)
        path += os.fsencode(name)
        if ignored_by(levels, path, True):
            return [], os.fsencode(below) + b"/", []
        path += b"/"
        folder = os.path.join(folder, name)
    return levels, path, skipped
