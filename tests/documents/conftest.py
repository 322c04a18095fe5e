"""What the tests of this floor share: folders from a table, and PDFs from a few lines of text."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

MakeTree = Callable[[Mapping[str, str | bytes]], Path]
MakePdf = Callable[[Sequence[str]], bytes]


@pytest.fixture
def tree(tmp_path: Path) -> MakeTree:
    """Writes files from {relative path: contents} and returns their folder."""

    def make(files: Mapping[str, str | bytes]) -> Path:
        for name, contents in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(contents.encode() if isinstance(contents, str) else contents)
        return tmp_path

    return make


@pytest.fixture
def pdf() -> MakePdf:
    return make_pdf


def make_pdf(pages: Sequence[str]) -> bytes:
    """A PDF with one page per string, a text line per line; an empty string is an empty page."""
    kids = " ".join(f"{4 + 2 * n} 0 R" for n in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for number, page in enumerate(pages):
        content = zlib.compress(page.encode("cp1252") if page.startswith("%raw") else _show(page))
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources "
            b"<< /Font << /F1 3 0 R >> >> /Contents %d 0 R >>" % (5 + 2 * number)
        )
        objects.append(
            b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream"
            % (len(content), content)
        )
    out, offsets = bytearray(b"%PDF-1.4\n"), []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    xref = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out += b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (
        len(objects) + 1,
        xref,
    )
    return bytes(out)


def _show(page: str) -> bytes:
    if not page:
        return b""
    lines = [
        line.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")
        for line in page.split("\n")
    ]
    shown = " T* ".join(f"({line}) Tj" for line in lines)
    return f"BT /F1 12 Tf 14 TL 72 720 Td {shown} ET".encode("cp1252")
