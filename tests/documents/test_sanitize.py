"""Untrusted text on a terminal: no sequence gets through, no word gets lost."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from longctx.documents import Sanitizer, is_blank, sanitize, sanitize_line

FORBIDDEN = [
    *map(chr, [*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0)]),
    *"\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069",
    *"\ufeff\ufff9\ufffa\ufffb\U000e0001\U000e0041\U000e007f\ud800\udbff\udc00\udfff",
]
hostile = st.lists(
    st.one_of(
        st.sampled_from([*FORBIDDEN, "\x1b[", "\x1b]", "\x1bP", "\x1b\\", "\x9b", "\x9c", "\x07"]),
        st.sampled_from(["52;c;", "31", "m", "8;;", "(", "B", ";", "?", " ", "\n", "é", "word"]),
        st.characters(),
    ),
    max_size=30,
).map("".join)


EXAMPLES = [
    ("\x1b[31mred\x1b[0m", "red"),
    ("\x1b[2J\x1b[1;1Hgone", "gone"),
    ("\x9b31mred", "red"),
    ("\x1b]0;title\x07text", "text"),
    ("\x1b]52;c;cm0gLXJm\x1b\\text", "text"),
    ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
    ("\x9d52;c;cm0\x9ctext", "text"),
    ("\x1bPq#0~~\x1b\\text", "text"),
    ("\x1b_payload\x1b\\\x1b^more\x1b\\\x1bXlast\x1b\\text", "text"),
    ("\x1bc\x1b(B\x1b#8text", "text"),
    ("a\x08b\x7fc\x00d\re", "abcde"),
    ("one\r\ntwo\tthree", "one\ntwo\tthree"),
    ("invoice\u202efdp.exe", "invoicefdp.exe"),
    ("\ufeffa\U000e0041b\ufff9c", "abc"),
    ("\ud83d lone", "\ufffd lone"),
    (
        "\x1b]0;a title that never ends\nand then words",
        "0;a title that never ends\nand then words",
    ),
    ("\x1b[12\nwords", "12\nwords"),
    ("ends in \x1b", "ends in "),
    ("ends in \x1b[3", "ends in 3"),
    ("\x1b]52;c;" + "A" * 5000 + "\x07", "52;c;" + "A" * 5000),
    ("\x1b[" + "1" * 64 + "mred", "red"),
    ("\x1b[" + "1" * 65 + "mred", "1" * 65 + "mred"),
]


@pytest.mark.parametrize(("text", "safe"), EXAMPLES)
def test_examples(text: str, safe: str):
    assert sanitize(text) == safe


@pytest.mark.parametrize(("text", "safe"), EXAMPLES)
def test_examples_character_by_character(text: str, safe: str):
    sanitizer = Sanitizer()
    assert "".join([*map(sanitizer.feed, text), sanitizer.flush()]) == safe


@settings(deadline=None)
@given(hostile)
@example("\x1b\x1b[[31m")
@example("\x1b]\x1b[mx\x07")
def test_nothing_forbidden_comes_out(text: str):
    safe = sanitize(text)
    assert not set(safe) & set(FORBIDDEN)
    assert not any(unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t" for c in safe)
    assert sanitize(safe) == safe


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cc", "Cs"]) | st.sampled_from("\n\t")))
def test_plain_text_passes_unchanged(text: str):
    if not set(text) & set(FORBIDDEN) and not any(
        "\u206a" <= c <= "\u206f" or c >= "\U000e0000" for c in text
    ):
        assert sanitize(text) == text


@settings(deadline=None)
@given(hostile, st.data())
def test_a_stream_is_cleaned_as_if_it_came_at_once(text: str, data: st.DataObject):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    sanitizer = Sanitizer()
    assert "".join([*map(sanitizer.feed, pieces), sanitizer.flush()]) == sanitize(text)


def test_plain_pieces_are_not_held_back():
    sanitizer = Sanitizer()
    assert sanitizer.feed("words \x1b[3") == "words "
    assert sanitizer.feed("1mred") == "red"
    assert sanitizer.feed("more") == "more"
    assert sanitizer.flush() == ""


def test_a_name_stays_on_one_line():
    assert sanitize_line("a\nb\r\tc\u2028d  e\x1b[2J") == "a b  c d  e"


@pytest.mark.parametrize(
    "text", ["", " \t\n", "\x00\x1b", "\u200b\u200d\ufeff", "\u202e", "\ufe0f", "\u3164", "\u2800"]
)
def test_what_nobody_can_see_is_blank(text: str):
    assert is_blank(text)


@pytest.mark.parametrize("text", ["?", "\u200bwhy", "é", "e\u0301", "東", "🦀", "\ufffd"])
def test_what_anybody_can_see_is_not(text: str):
    assert not is_blank(text)
