"""One reader per kind of file: to support a format, write its reader and enter it in `READERS`.

A reader is opened at the first file of its kind in a run and closed at the end of the run, so that
it can keep what is costly to start.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from longctx.documents.readers.captions import read_captions
from longctx.documents.readers.pdf import PdfReader
from longctx.documents.readers.source import Reader, Source
from longctx.documents.readers.text import read_text
from longctx.documents.sniff import Kind

__all__ = ["READERS", "Reader", "Source"]

READERS: dict[Kind, Callable[[], AbstractContextManager[Reader]]] = {
    Kind.TEXT: lambda: nullcontext(read_text),
    Kind.MARKDOWN: lambda: nullcontext(read_text),
    Kind.CODE: lambda: nullcontext(read_text),
    Kind.PDF: PdfReader,
    Kind.VTT: lambda: nullcontext(read_captions),
    Kind.SRT: lambda: nullcontext(read_captions),
}
