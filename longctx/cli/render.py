"""The only place that prints: answers to stdout, everything else to stderr.

Whatever comes in here is taken to be hostile: every piece of text loses its control, C1 and
direction characters at this door, so that no caller can forget it.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TextIO

from longctx.cli.outcome import ReaderLeft
from longctx.cli.terminal import Terminal, look_at
from longctx.documents.sanitize import Sanitizer, sanitize, sanitize_line

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


@dataclass(frozen=True)
class Styled:
    """A piece of a line in a style, shown where the stream has colours."""

    text: str
    style: str


Piece = str | Styled
Line = tuple[Piece, ...]


class Output:
    """Both streams of one command.

    `quiet` keeps notes and warnings back; errors are always told. Raises `ReaderLeft` when a stream
    was closed at its other end.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.out = look_at(sys.stdout)
        self.err = look_at(sys.stderr)
        self._sanitizer = Sanitizer()
        self._at_line_start = True

    def piece(self, text: str) -> None:
        """A piece of the streamed answer, on stdout at once."""
        self._stream(self._sanitizer.feed(text))

    def end_answer(self) -> None:
        """The answer is over: what was held back, and the end of its line."""
        self._stream(self._sanitizer.flush())
        self._sanitizer = Sanitizer()
        if not self._at_line_start:
            self._stream("\n")

    @property
    def in_line(self) -> bool:
        """Whether a streamed answer stands in the middle of a line."""
        return not self._at_line_start

    def line(self, *pieces: Piece) -> None:
        """A line on stdout."""
        _write(sys.stdout, _styled(pieces, self.out) + "\n")

    def note(self, *pieces: Piece) -> None:
        """A line on stderr, unless quiet."""
        if not self.quiet:
            self.error_line(*pieces)

    def error_line(self, *pieces: Piece) -> None:
        """A line on stderr, also when quiet."""
        _write(sys.stdout, "")
        _write(sys.stderr, _styled(pieces, self.err) + "\n")

    def prompt(self, text: str) -> None:
        """What asks for a line of input, on stderr, without an end of line."""
        _write(sys.stdout, "")
        _write(sys.stderr, sanitize_line(text))

    def lines(self, lines: Iterable[Line]) -> None:
        """Several lines on stdout."""
        for line in lines:
            self.line(*line)

    def notes(self, lines: Iterable[Line]) -> None:
        """Several lines on stderr, unless quiet."""
        for line in lines:
            self.note(*line)

    def json(self, value: Any, *, indent: int | None = None) -> None:
        """One JSON value on stdout, in one line unless `indent` is given."""
        text = json.dumps(printable(value), ensure_ascii=False, indent=indent, allow_nan=False)
        _write(sys.stdout, text + "\n")

    def _stream(self, text: str) -> None:
        if text:
            self._at_line_start = text.endswith("\n")
            _write(sys.stdout, text)


def printable(value: Any) -> Any:
    """A JSON value with every string in it safe to print, as `jq -r` would.

    An object whose "path" loses something by that (its name is not UTF-8, or holds control
    characters) also gets "path_bytes": the name as the system has it, in base64.
    """
    if isinstance(value, str):
        return sanitize(value)
    if isinstance(value, dict):
        shown = {sanitize(str(key)): printable(item) for key, item in value.items()}
        path = value.get("path")
        if isinstance(path, str) and shown["path"] != path:
            shown["path_bytes"] = base64.b64encode(_name_bytes(path)).decode()
        return shown
    if isinstance(value, list | tuple):
        return [printable(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def _name_bytes(path: str) -> bytes:
    try:
        return os.fsencode(path)
    except UnicodeEncodeError:  # no name of this system's
        return path.encode("utf-8", "surrogatepass")


def _styled(pieces: Iterable[Piece], terminal: Terminal) -> str:
    return "".join(_piece(piece, terminal.colour) for piece in pieces)


def _piece(piece: Piece, colour: bool) -> str:
    if isinstance(piece, str):
        return sanitize_line(piece)
    text = sanitize_line(piece.text)
    return f"\x1b[{_STYLES[piece.style]}m{text}\x1b[0m" if colour and text else text


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        raise ReaderLeft from None
