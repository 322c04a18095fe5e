"""Bytes to text: byte order marks, UTF-16/32 without one, strict UTF-8, then a guess that is told.

Nothing is decoded wrongly in silence: whatever is not sure ends in a warning, whatever is hopeless
raises `Unreadable`. It knows nothing of files.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass

from longctx.documents.legacy import guess_encoding
from longctx.documents.reasons import BINARY, ENCODING, Unreadable, because

_MARKS = (  # UTF-32 first: its little-endian mark begins with UTF-16's
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_WIDE = ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be")
_PROBE_BYTES = 8192
_MIN_WIDE_NULS = 0.2  # of ASCII bytes: half of them in UTF-16, three quarters in UTF-32
_MAX_CONTROL_SHARE = 0.02  # a log with colour codes stays below, a binary format does not
_TEXT_CONTROLS = b"\t\n\r\f\v\b\x1b"
_NOT_CONTROLS = bytes(set(range(256)) - (set(range(32)) - set(_TEXT_CONTROLS)) - {127})

_SGR = r"\x1b\[[0-9;:]{0,32}[mK]"  # colours and "clear to the end of the line", as logs have them
_CONTROL = re.compile(_SGR + r"|[\x00-\x08\x0b-\x1f\x7f]")
_SEPARATORS = "\x00\v\f\x1c\x1d\x1e\x1f"  # these stand between words, the others inside them


@dataclass(frozen=True)
class Decoded:
    """Text with `\\n` newlines and no control characters but tab, and what the user should know."""

    text: str
    warnings: tuple[str, ...] = ()


def decode(data: bytes) -> Decoded:
    """The text of a whole file.

    Raises Unreadable: `binary` when the bytes are no text, `encoding` when no encoding fits.
    """
    text, warnings = _decode(data)
    text, removed = clean(text)
    if removed:
        warnings.append(f"{_count(removed, 'control character')} left out")
    return Decoded(text, tuple(warnings))


def clean(text: str) -> tuple[str, int]:
    """Normalise newlines and take out control characters; also returns how many were taken out.

    `\\r\\n` and `\\r` become `\\n`, so that lines count as editors count them. Colour codes go
    whole; controls that separate (NUL, form feed, …) become a space.
    """
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROL.subn(lambda found: " " if found[0] in _SEPARATORS else "", text)


def looks_binary(head: bytes) -> bool:
    """Whether the beginning of a file is no text in any encoding."""
    if any(head.startswith(mark) for mark, _ in _MARKS) or not head:
        return False
    if b"\0" in head and _wide_encoding(head) is not None:
        return False
    return _has_many_controls(head)


def _has_many_controls(data: bytes) -> bool:
    controls = len(data.translate(None, delete=_NOT_CONTROLS))
    return controls > len(data) * _MAX_CONTROL_SHARE


def _decode(data: bytes) -> tuple[str, list[str]]:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _strictly(data[len(mark) :], encoding)
    if b"\0" in data:
        wide = _wide_encoding(data)
        if wide is not None and (whole := _begins(data, wide)) and not _is_strange(whole):
            text, warnings = _strictly(data, wide)
            told = f"read as {wide.upper()}, assumed for lack of a byte order mark"
            return text, [told, *warnings]
    if b"\x1b$" in data and (escaped := _escaped(data)):
        return escaped
    if _has_many_controls(data):
        raise Unreadable(BINARY)
    try:
        return data.decode("utf-8"), []
    except UnicodeDecodeError:
        if b"\0" in data:
            raise Unreadable(BINARY) from None
    return _damaged_utf8(data) or _legacy(data)


def _escaped(data: bytes) -> tuple[str, list[str]] | None:
    """The seven-bit encoding of Japanese mail, which switches by escape sequences."""
    try:
        return data.decode("iso2022_jp_2"), ["read as iso2022_jp, a guess: it is not UTF-8"]
    except UnicodeDecodeError:
        return None


def _strictly(data: bytes, encoding: str) -> tuple[str, list[str]]:
    try:
        return data.decode(encoding), []
    except UnicodeDecodeError:
        text = data.decode(encoding, "replace")
        return text, [f"not all of it is valid {encoding.upper()}: the rest became \ufffd"]


def _damaged_utf8(data: bytes) -> tuple[str, list[str]] | None:
    """Text that is UTF-8 but for a few bytes: better a visible gap than every accent misread."""
    text = data.decode("utf-8", "replace")
    bad = text.count("\ufffd") - data.count("\ufffd".encode())
    good = sum(map(len, re.findall(r"[^\x00-\x7f\ufffd]+", text)))
    if good < 3 or good < 2 * bad:  # legacy text hardly ever forms valid sequences by chance
        return None
    return text, [f"{_count(bad, 'place')} not valid UTF-8: became \ufffd"]


def _legacy(data: bytes) -> tuple[str, list[str]]:
    encoding = guess_encoding(data)
    if encoding is None:
        raise Unreadable(because(ENCODING, "not UTF-8, and no other encoding fits"))
    text, warnings = _strictly(data, encoding)
    return text, [f"read as {encoding}, a guess: it is not UTF-8", *warnings]


def _wide_encoding(data: bytes) -> str | None:
    """The UTF-16 or UTF-32 that makes a text of bytes with NULs among them, if one does."""
    head = data[:_PROBE_BYTES]
    if head.count(0) < _MIN_WIDE_NULS * len(head) and head.isascii():
        return None
    if not _has_many_controls(head) and _begins(head, "utf-8") is not None:
        return None  # words with a stray NUL, which as UTF-16 would all be Chinese
    best, best_ascii = None, 0
    for encoding in _WIDE:
        text = _begins(head, encoding)
        if text is None:
            continue
        ascii_count = sum(char < "\x80" for char in text)
        if ascii_count > best_ascii and not _is_strange(text):
            best, best_ascii = encoding, ascii_count
    return best


def _begins(head: bytes, encoding: str) -> str | None:
    """`head` decoded strictly, its last character possibly cut off."""
    try:
        return codecs.getincrementaldecoder(encoding)().decode(head)
    except UnicodeDecodeError:
        return None


def _is_strange(text: str) -> bool:
    """Whether more than 1% are control, private or unassigned characters, as in misread bytes."""
    strange = sum(
        count
        for char, count in Counter(text).items()
        if unicodedata.category(char) in ("Cc", "Cn", "Co") and char not in "\t\n\r\ufeff"
    )
    return strange > len(text) * 0.01


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' if number != 1 else ''}"
