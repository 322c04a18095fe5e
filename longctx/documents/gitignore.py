"""The lines of an ignore file, compiled to mean what git makes of them.

Patterns are bytes, as git's are, and a rule speaks of one entry only, never of what lies below it:
the walk prunes ignored folders, so that a deeper file's verdict cannot be borrowed from its parent.
Stars compile to atomic groups, so no pattern, however hostile, makes matching explode.
It knows nothing of files or folders on disk.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from dataclasses import dataclass

_CLASSES = {
    b"alnum": string.ascii_letters + string.digits,
    b"alpha": string.ascii_letters,
    b"blank": " \t",
    b"cntrl": "".join(map(chr, [*range(32), 127])),
    b"digit": string.digits,
    b"graph": string.ascii_letters + string.digits + string.punctuation,
    b"lower": string.ascii_lowercase,
    b"print": string.ascii_letters + string.digits + string.punctuation + " ",
    b"punct": string.punctuation,
    b"space": string.whitespace,
    b"upper": string.ascii_uppercase,
    b"xdigit": string.hexdigits,
}
_STAR, _FOLDERS, _SOME_FOLDERS, _REST = b"*", b"**/", b"**\\/", b"**"
_WIDE = (_FOLDERS, _SOME_FOLDERS, _REST)


class _NeverMatches(ValueError):
    """The pattern is malformed; git keeps it and lets it match nothing."""


@dataclass(frozen=True)
class Rule:
    """One pattern. `regex` fully matches the paths (relative to its ignore file) it speaks of."""

    regex: re.Pattern[bytes]
    negated: bool
    folders_only: bool

    def matches(self, path: bytes, is_folder: bool) -> bool:
        """Whether the pattern speaks of `path`: forward slashes, none at either end."""
        return (is_folder or not self.folders_only) and self.regex.match(path) is not None


def parse_rules(data: bytes) -> list[Rule]:
    """The rules of an ignore file, in order: of those that match, the last one decides."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    lines = (line.removesuffix(b"\r") for line in data.split(b"\n"))
    return [rule for line in lines if (rule := _parse_line(line)) is not None]


def _parse_line(line: bytes) -> Rule | None:
    if line.startswith(b"#"):
        return None
    glob = _without_trailing_spaces(line)
    negated = glob.startswith(b"!")
    glob = glob[negated:]
    folders_only = glob.endswith(b"/")
    glob = glob[: len(glob) - folders_only]
    if not glob:
        return None
    try:
        tokens = list(_tokens(glob.removeprefix(b"/")))
    except _NeverMatches:
        return None
    if b"/" not in glob:  # such a pattern is tried on the name alone, at any depth
        tokens = [_FOLDERS, *(_STAR if token in _WIDE else token for token in tokens)]
    return Rule(re.compile(_regex(tokens), re.DOTALL), negated, folders_only)


def _without_trailing_spaces(line: bytes) -> bytes:
    end = len(line.rstrip(b" "))
    backslashes = end - len(line[:end].rstrip(b"\\"))
    return line[: end + 1] if backslashes % 2 else line[:end]


def _tokens(glob: bytes) -> Iterator[bytes]:
    """One-byte regexes, or one of the star tokens above."""
    at, literal_so_far = 0, True
    while at < len(glob):
        char = glob[at : at + 1]
        if char == b"*":
            end = at
            while glob[end : end + 1] == b"*":
                end += 1
            # git compares the part before the first wildcard on its own, so there "**" stands at
            # a beginning even after a letter
            opens = literal_so_far or glob[at - 1 : at] == b"/"
            if end - at < 2 or not opens or glob[end : end + 1] not in (b"", b"/", b"\\"):
                yield _STAR
            elif end == len(glob):
                yield _REST
            elif glob[end : end + 1] == b"/":
                yield _FOLDERS
                end += 1
            elif glob[end : end + 2] == b"\\/":
                yield _SOME_FOLDERS
                end += 2
            else:
                yield _STAR
            at = end
        elif char == b"?":
            yield b"[^/]"
            at += 1
        elif char == b"[":
            members, at = _bracket(glob, at + 1)
            yield b"[%s]" % _ranges(members) if members else b"(?!)"
        elif char == b"\\":
            if at + 1 == len(glob):
                raise _NeverMatches(glob)
            yield re.escape(glob[at + 1 : at + 2])
            at += 2
        else:
            yield re.escape(char)
            at += 1
        literal_so_far = literal_so_far and char not in b"*?[\\"


def _bracket(glob: bytes, at: int) -> tuple[list[int], int]:
    """The bytes a "[…]" that opened before `at` stands for, and where the pattern goes on."""
    negated = glob[at : at + 1] in (b"!", b"^")
    at += negated
    members: set[int] = set()
    first, low = True, None  # `low` is the byte that a following "-" makes the start of a range
    while first or glob[at : at + 1] != b"]":
        first = False
        char, at = _member(glob, at)
        if char == b"-" and low is not None and glob[at : at + 1] not in (b"", b"]"):
            high, at = _member(glob, at)
            members.update(range(low, high[-1] + 1))
            low = None
        elif char == b"[" and glob[at : at + 1] == b":":
            end = glob.find(b"]", at + 1)
            if end < 0:
                raise _NeverMatches(glob)
            name = glob[at + 1 : end]
            if not name.endswith(b":"):
                members.add(char[0])
                low = char[0]
                continue
            if name[:-1] not in _CLASSES:
                raise _NeverMatches(glob)
            members.update(_CLASSES[name[:-1]].encode())
            at, low = end + 1, None
        else:
            low = char[-1]
            members.add(low)
    if negated:
        members = set(range(256)) - members
    return sorted(members - {ord("/")}), at + 1


def _member(glob: bytes, at: int) -> tuple[bytes, int]:
    """One byte of a bracket with its escape if it has one, and where the next one begins."""
    length = 2 if glob[at : at + 1] == b"\\" else 1
    if at + length > len(glob):
        raise _NeverMatches(glob)
    return glob[at : at + length], at + length


def _ranges(members: list[int]) -> bytes:
    """Sorted bytes as the inside of a regex set."""
    ranges: list[list[int]] = []
    for member in members:
        if ranges and ranges[-1][1] == member - 1:
            ranges[-1][1] = member
        else:
            ranges.append([member, member])
    return b"".join(b"\\x%02x-\\x%02x" % (low, high) for low, high in ranges)


def _regex(tokens: list[bytes]) -> bytes:
    """The tokens as a regex in which only the last star of each kind may try again.

    Giving an earlier star its shortest match is enough: whatever it could take more of, the next
    star of its kind takes as well.
    """
    runs: list[tuple[bytes, list[bytes]]] = [(b"", [])]
    for token in tokens:
        if token in _WIDE:
            runs.append((token, []))
        else:
            runs[-1][1].append(token)
    parts = []
    for number, (opening, run) in enumerate(runs):
        last = number == len(runs) - 1
        wide = {
            b"": b"",
            _FOLDERS: b"(?:.*?/)??",
            _SOME_FOLDERS: b".*?/",
            _REST: b".*",
        }[opening]
        body = wide + _run(run, last)
        parts.append(body if last else b"(?>" + body + b")")
    return b"".join(parts) + rb"\Z"


def _run(tokens: list[bytes], last: bool) -> bytes:
    chunks: list[list[bytes]] = [[]]
    for token in tokens:
        if token == _STAR:
            chunks.append([])
        else:
            chunks[-1].append(token)
    parts = [b"".join(chunks[0])]
    for number, chunk in enumerate(chunks[1:], 1):
        body = b"[^/]*?" + b"".join(chunk)
        parts.append(body if last and number == len(chunks) - 1 else b"(?>" + body + b")")
    return b"".join(parts)
