"""Bytes to text: every encoding in the table, and nothing guessed in silence."""

from __future__ import annotations

import codecs

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longctx.documents.encodings import clean, decode
from longctx.documents.reasons import Unreadable

LETTER = "Ünïcode — 日本 😀\nsecond line\n"
visible = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn", "Co"]), min_size=1)


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
        (b"", "utf-8"),
    ],
)
def test_marked_encodings_need_no_warning(mark: bytes, encoding: str):
    decoded = decode(mark + LETTER.encode(encoding))
    assert decoded.text == LETTER
    assert decoded.warnings == ()


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_wide_encodings_without_a_mark_are_told(encoding: str):
    decoded = decode(LETTER.encode(encoding))
    assert decoded.text == LETTER
    assert encoding.upper() in decoded.warnings[0]


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1252", "Le café est fermé à midi. Déjà passé ? Où êtes-vous, garçon ?\n"),
        ("cp1252", "The fee is £500 per month, due on the first day.\n"),
        ("cp1252", "Avtalet gäller från första maj. Säljaren måste åtgärda felet.\n"),
        ("cp1250", "Umowa została zawarta na okres trzech lat. Żadnych wyjątków.\n"),
        ("cp1250", "A felmondás írásban történő közléssel érvényes. Erősítő fűtés.\n"),
        ("cp1254", "Yaz\u0131l\u0131 değil mi? Şirket ücreti bu çağda öder.\n"),
        ("cp1257", "Pirkėjas privalo sumokėti kainą; šalys susitarė dėl sąlygų.\n"),
        ("cp1251", "Договор заключён между сторонами в городе Москве.\n"),
        ("koi8-r", "Покупатель обязан оплатить товар; расторжение производится в письме.\n"),
        ("cp1253", "Σύμβαση υπογράφηκε στην Αθήνα.\n"),
        ("shift_jis", "これは契約書です。当事者は以下のとおり合意する。\n"),
        ("gbk", "本合同由双方在北京签订,有效期三年。\n"),
        ("iso2022_jp", "これは契約書です。当事者は以下のとおり合意する。\n"),
        ("cp949", "이 계약은 서울에서 체결되었다.\n"),
    ],
)
def test_legacy_encodings_are_guessed_and_the_guess_is_told(encoding: str, text: str):
    decoded = decode(text.encode(encoding))
    assert decoded.text == text
    assert "a guess" in decoded.warnings[0]


def test_utf8_with_a_few_bad_bytes_stays_utf8_and_says_so():
    decoded = decode("naïve façade, déjà vu, ".encode() * 3 + b"\xff" + b" end\n")
    assert decoded.text.endswith("déjà vu, \ufffd end\n")
    assert "1 place not valid UTF-8" in decoded.warnings[0]


def test_marked_utf16_cut_in_half_says_so():
    decoded = decode("word\n".encode("utf-16") + b"x")
    assert decoded.text == "word\n\ufffd"
    assert "not all of it is valid UTF-16-LE" in decoded.warnings[0]


def test_nul_among_words_becomes_a_space_and_is_told():
    decoded = decode(b"first name\0second name " + b"x" * 80)
    assert decoded.text.startswith("first name second name")
    assert decoded.warnings == ("1 control character left out",)


@pytest.mark.parametrize(
    "data",
    [
        b"\0\1\2\3" * 50,
        bytes(range(256)) * 4,
        b"\x89\0\xff" * 40,
        "words first, ".encode("utf-16-le") * 400 + b"\x00\xdc\x01\x00" * 20,
        "words first, ".encode("utf-16-le") * 400 + b"\x01\x00\x02\x00" * 400,
    ],
)
def test_bytes_that_are_no_text_are_binary(data: bytes):
    with pytest.raises(Unreadable) as unreadable:
        decode(data)
    assert str(unreadable.value) == "binary"


def test_newlines_become_one_kind_and_colours_go():
    assert clean("a\r\nb\rc\n\x1b[1;31mred\x1b[0m\x08,\f.\v\t") == ("a\nb\nc\nred, . \t", 5)


@settings(deadline=None)
@given(st.lists(visible), st.sampled_from(["\n", "\r\n", "\r"]))
def test_lines_survive_every_newline(lines: list[str], newline: str):
    text = newline.join(lines)
    assert decode(text.encode("utf-8-sig")).text == "\n".join(lines)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_end_as_clean_text_or_a_reason(data: bytes):
    try:
        text = decode(data).text
    except Unreadable:
        return
    assert not any(char < " " and char not in "\t\n" for char in text)
    text.encode("utf-8")  # no lone surrogates
