"""Plain text, Markdown and code: the file itself, decoded, line for line."""

from __future__ import annotations

from longctx.documents.document import Document
from longctx.documents.encodings import decode
from longctx.documents.readers.source import Source
from longctx.documents.reasons import EMPTY, Unreadable


def read_text(source: Source) -> Document:
    """A document whose lines are the file's lines. Raises Unreadable when there is no text."""
    decoded = decode(source.read())
    if not decoded.text.strip():
        raise Unreadable(EMPTY)
    return Document(source.shown, decoded.text, source.kind.value, warnings=decoded.warnings)
