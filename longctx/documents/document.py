"""What a reader hands on: text with places, or a reason why there is none.

A `Document` knows where each character of its text lies in the file (line, page or time). It does
not know tokens, models or how it was read.
"""

from __future__ import annotations

import bisect
import hashlib
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True)
class Mark:
    """A page or a moment that begins at a character of the text and holds until the next mark."""

    start: int
    page: int | None = None
    time: str | None = None


@dataclass(frozen=True)
class Place:
    """Where a character range lies in its file. Lines and pages count from 1; time is HH:MM:SS."""

    start_line: int
    end_line: int
    page: int | None = None
    time: str | None = None


@dataclass(frozen=True)
class Document:
    """One readable file.

    `path` is what the user would type to open it, with forward slashes; `text` is normalised
    (newlines are `\\n`, no NUL); `marks` are sorted by `start` and empty for plain text, whose
    places are lines alone. Where the lines of `text` are not those of the file (VTT cues, for
    instance), `source_lines` says which line of the file each came from, in order. Where a line of
    `text` joins several of the file, `source_starts` gives the character at which each entry of
    `source_lines` begins, the first being 0.
    """

    path: str
    text: str
    kind: str
    marks: tuple[Mark, ...] = ()
    source_lines: tuple[int, ...] = field(default=(), repr=False)
    source_starts: tuple[int, ...] = field(default=(), repr=False)
    warnings: tuple[str, ...] = ()

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the normalised text, hex: the document's half of every index key."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()

    @cached_property
    def _line_starts(self) -> list[int]:
        starts = [0]
        starts.extend(i + 1 for i, char in enumerate(self.text) if char == "\n")
        return starts

    def line_at(self, char: int) -> int:
        """The line (from 1) in the source file that holds character `char` of the text."""
        if self.source_starts:
            return self.source_lines[max(bisect.bisect_right(self.source_starts, char), 1) - 1]
        line = bisect.bisect_right(self._line_starts, char)
        if self.source_lines:
            return self.source_lines[min(line, len(self.source_lines)) - 1]
        return line

    def place(self, start: int, end: int) -> Place:
        """The lines, page and time of the characters `start` to `end` (exclusive)."""
        last = max(start, end - 1)
        at = bisect.bisect_right(self.marks, start, key=lambda mark: mark.start) - 1
        mark = self.marks[at] if at >= 0 else Mark(0)
        return Place(self.line_at(start), self.line_at(last), mark.page, mark.time)


@dataclass(frozen=True)
class Skipped:
    """A file that was not read. `reason` is one of the typed reasons of `longctx.documents`."""

    path: str
    reason: str
