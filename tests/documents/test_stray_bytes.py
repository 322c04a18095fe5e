"""Files that are nearly UTF-8 or nearly ASCII: the smallest that were once misread."""

from __future__ import annotations

import pytest

from longctx.documents.encodings import decode
from longctx.documents.reasons import Unreadable


def test_one_stray_byte_does_not_change_the_rest():
    data = "The café in Zembla \u2013 über.\n".encode() + b"bad byte \x9d here\n"

    found = decode(data)

    assert found.text == "The café in Zembla \u2013 über.\nbad byte \ufffd here\n"
    assert found.warnings


@pytest.mark.parametrize("data", [b"The capital is Onhava.\0\n", b"Hello wor\0ld text"])
def test_one_nul_does_not_make_utf_16(data: bytes):
    try:
        text = decode(data).text
    except Unreadable:
        return
    assert text.isascii()


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le"])
def test_wide_ascii_without_a_mark_is_still_read(encoding: str):
    text = "The lease ends on 30 June.\nRent is due in advance.\n"

    assert decode(text.encode(encoding)).text == text
