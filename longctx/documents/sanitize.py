"""Making untrusted text safe to print on a terminal.

Model output, file names and document excerpts can carry escape sequences that move the cursor, set
the clipboard, fake links or turn text around. Nothing that leaves here can: control sequences are
taken out whole where they are well-formed and defused where they are not, so no words are lost.
"""

from __future__ import annotations

import re
import unicodedata

MAX_SEQUENCE = (
    4096  # characters of a title, link or clipboard string; a longer one is shown as text
)

_UNSAFE = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and newline, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f"  # direction marks, overrides, isolates
    "\ufeff\ufff9-\ufffb"  # byte order mark, interlinear annotation
    "\U000e0000-\U000e007f"  # tags
    "\ud800-\udfff"  # lone surrogates
    "]"
)
_CSI = r"(?:\x1b\[|\x9b)"
_STRING = r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])"  # OSC, DCS, SOS, PM, APC
_STRING_BODY = rf"[^\x00-\x08\x0a-\x1f\x7f-\x9f]{{0,{MAX_SEQUENCE}}}"
_SEQUENCE = re.compile(
    rf"{_CSI}[0-?]{{0,64}}[ -/]{{0,16}}[@-~]"
    rf"|{_STRING}{_STRING_BODY}(?:\x07|\x9c|\x1b\\)"
    r"|\x1b[ -/]{1,16}[0-~]|\x1b[0-OQ-WYZ\\`-~]"
)
_UNFINISHED = re.compile(
    rf"(?:{_CSI}[0-?]{{0,64}}[ -/]{{0,16}}|{_STRING}{_STRING_BODY}\x1b?|\x1b[ -/]{{0,16}})\Z"
)
_INTRODUCER = re.compile(rf"{_CSI}|{_STRING}|.", re.DOTALL)
_INVISIBLE = frozenset("\u115f\u1160\u2800\u3164\uffa0")  # letters and signs in name only
_INTRODUCERS = frozenset("\x1b\x90\x98\x9b\x9d\x9e\x9f")


class Sanitizer:
    """`sanitize` for a stream: pieces may end anywhere, also inside a sequence."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> str:
        """What of the stream so far can be printed now."""
        if not self._held and _UNSAFE.search(piece) is None:
            return piece
        safe, self._held = _scan(self._held + piece, at_end=False)
        return safe

    def flush(self) -> str:
        """What was held back in case its sequence went on. The stream ends here."""
        safe, self._held = _scan(self._held, at_end=True)
        return safe


def sanitize(text: str) -> str:
    """`text` without anything a terminal would obey; newlines, tabs and all else as they were.

    Lone surrogates become U+FFFD, other control characters go.
    """
    return text if _UNSAFE.search(text) is None else _scan(text, at_end=True)[0]


def sanitize_line(text: str) -> str:
    """`sanitize` for what must stay on one line, such as a file name: line ends become spaces."""
    return sanitize(re.sub("[\t-\r\x85\u2028\u2029]", " ", text))


def is_blank(text: str) -> bool:
    """Whether nothing of `text` could be seen: blanks, controls and zero-width characters alone."""
    return all(char in _INVISIBLE or unicodedata.category(char)[0] in "CMZ" for char in text)


def _scan(text: str, at_end: bool) -> tuple[str, str]:
    """The safe text, and an unfinished sequence at the end that more text could complete."""
    safe, at = [], 0
    while unsafe := _UNSAFE.search(text, at):
        start, char = unsafe.start(), unsafe[0]
        safe.append(text[at:start])
        at = start + 1
        if "\ud800" <= char <= "\udfff":
            safe.append("\ufffd")
        elif char in _INTRODUCERS:
            if sequence := _SEQUENCE.match(text, start):
                at = sequence.end()
            elif not at_end and _UNFINISHED.match(text, start):
                return "".join(safe), text[start:]
            elif introducer := _INTRODUCER.match(text, start):
                at = introducer.end()
    safe.append(text[at:])
    return "".join(safe), ""
