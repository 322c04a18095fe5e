"""What a file is taken for."""

from __future__ import annotations

import pytest

from longctx.documents.reasons import Unreadable
from longctx.documents.sniff import Kind, sniff


@pytest.mark.parametrize(
    ("name", "head", "kind"),
    [
        ("notes.txt", b"hello", Kind.TEXT),
        ("NOTES", b"hello", Kind.TEXT),
        ("README.MD", b"# hello", Kind.MARKDOWN),
        ("a.py", b"x = 1", Kind.CODE),
        ("Makefile", b"all:", Kind.CODE),
        ("run", b"#!/bin/sh\n", Kind.CODE),
        ("a.pdf", b"anything", Kind.PDF),
        ("scan.bin", b"%PDF-1.7\n\0\0\0", Kind.PDF),
        ("a.vtt", b"WEBVTT\n", Kind.VTT),
        ("call.txt", b"WEBVTT\n\n", Kind.VTT),
        ("a.srt", b"1\n", Kind.SRT),
        ("a.doc", b"plain words after all", Kind.TEXT),
        ("a.txt", "h\u00e9llo\n".encode("utf-16"), Kind.TEXT),
        ("a.txt", "hello there\n".encode("utf-16-le"), Kind.TEXT),
        ("a.log", b"\x1b[31mred\x1b[0m " * 20, Kind.TEXT),
        ("a.log", b"a long line with one stray zero byte \0" + b"x" * 60, Kind.TEXT),
    ],
)
def test_kinds(name: str, head: bytes, kind: Kind):
    assert sniff(name, head) is kind


@pytest.mark.parametrize(
    ("name", "head", "reason"),
    [
        ("a.txt", b"", "empty"),
        ("a.txt", b"\xef\xbb\xbf", "empty"),
        ("a", b"\x7fELF\x02\x01\x01\0\0\0\0\0\0", "binary"),
        ("a.txt", bytes(range(256)), "binary"),
        ("report.DOCX", b"PK\x03\x04", "unsupported format: .docx"),
        ("a.zip", b"PK\x03\x04", "unsupported format: .zip"),
        ("a.png", b"\x89PNG", "unsupported format: .png"),
        ("a.doc", bytes.fromhex("d0cf11e0a1b11ae1") + b"\0" * 8, "unsupported format: .doc"),
    ],
)
def test_reasons(name: str, head: bytes, reason: str):
    with pytest.raises(Unreadable) as unreadable:
        sniff(name, head)
    assert str(unreadable.value) == reason
