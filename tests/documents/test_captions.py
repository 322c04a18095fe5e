"""Transcripts: cues, speakers, times, and the lines of the file they stand on."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longctx.documents import Document, Skipped, read_documents


def read(tmp_path: Path, name: str, contents: str) -> Document:
    path = tmp_path / name
    path.write_bytes(contents.encode())
    [document] = read_documents([path])
    assert isinstance(document, Document)
    return document


MEETING = """WEBVTT - Board meeting

STYLE
::cue { color: red }

REGION
id:bottom

NOTE recorded in
two halves

1
00:00:01.000 --> 00:00:04.500 align:start
<v Ann Lee>We will ship
on <b>Friday</b> &amp; not before.</v>

intro-2
01:00:59.999 --> 01:01:02.000
<v.loud Bob>Bob: agreed.
00:05.000 --> 00:06.000
Cara: and <00:00:05.500><c.x>so</c> on

100:00:00.000 --> 100:00:01.000
"""


def test_a_cue_is_a_line_with_its_speaker(tmp_path):
    document = read(tmp_path, "a.vtt", MEETING)
    assert document.kind == "vtt"
    assert document.warnings == ()
    assert document.text.split("\n") == [
        "Board meeting",
        "NOTE recorded in",
        "two halves",
        "Ann Lee: We will ship on Friday & not before.",
        "Bob: agreed.",
        "Cara: and so on",
        "",
    ]


@pytest.mark.parametrize(
    ("words", "start_line", "end_line", "time"),
    [
        ("Board meeting", 1, 1, None),
        ("recorded", 9, 9, None),
        ("halves", 10, 10, None),
        ("We will ship", 14, 14, "00:00:01"),
        ("Friday & not", 15, 15, "00:00:01"),
        ("ship on Friday", 14, 15, "00:00:01"),
        ("agreed", 19, 19, "01:00:59"),
        ("and so on", 21, 21, "00:00:05"),
    ],
)
def test_words_have_the_files_lines_and_the_cues_time(tmp_path, words, start_line, end_line, time):
    document = read(tmp_path, "a.vtt", MEETING)
    start = document.text.index(words)
    place = document.place(start, start + len(words))
    assert (place.start_line, place.end_line, place.time) == (start_line, end_line, time)


def test_subrip(tmp_path):
    document = read(
        tmp_path,
        "a.srt",
        "1\r\n00:00:01,000 --> 00:00:02,000\r\n{\\an8}<i>Ann:</i> a < b\r\n\r\n"
        "2\r\n00:00:03,5 --> 00:00:04,0\r\n<font color='red'>42</font>\r\n\r\nafter a blank\r\n"
        "3\r\n00:00:05,000 --> 00:00:06,000\r\n2024\r\nend --> here\r\n",
    )
    assert document.kind == "srt"
    assert document.text == "Ann: a < b\n42\nafter a blank\n2024 end --> here\n"
    assert document.place(document.text.index("2024"), len(document.text)).start_line == 12
    assert [mark.time for mark in document.marks] == ["00:00:01", "00:00:03", "00:00:05"]


def test_cues_need_no_blank_line_between_them(tmp_path):
    document = read(
        tmp_path,
        "a.srt",
        "1\n00:00:01,000 --> 00:00:02,000\none\n2\n00:00:03,000 --> 00:00:04,000\ntwo\n",
    )
    assert document.text == "one\ntwo\n"
    assert document.place(4, 7).start_line == 6


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("<v Ann>one</v> <v Bob>two</v>", "Ann: one Bob: two"),
        ("<v Ann>one</v><v Bob>two</v>", "Ann: one Bob: two"),
        ("<v>nobody</v>", "nobody"),
        ("<v Ann &amp; Bob>both", "Ann & Bob: both"),
        ("List<int> x = a <b> c </b>", "List<int> x = a  c"),
        ("5 &lt; 6 &#10;&#13; 7 &nbsp;", "5 < 6    7"),
        ("&#27;[31mred", "[31mred"),
    ],
)
def test_tags_and_entities(tmp_path, line, words):
    document = read(tmp_path, "a.vtt", f"WEBVTT\n\n00:01.000 --> 00:02.000\n{line}\n")
    assert document.text == words + "\n"


@pytest.mark.parametrize(
    "contents",
    [
        "WEBVTT\n\nno cue at all\n",
        "WEBVTT\n\n00:00:01.000 --> whenever\nhello\n",
        "WEBVTT\n\n00:99:01.000 --> 00:99:02.000\nhello\n",
        "just a note to self\n",
    ],
)
def test_a_malformed_file_is_read_as_plain_text_and_says_so(tmp_path, contents):
    document = read(tmp_path, "a.vtt", contents)
    assert document.text == contents
    assert document.kind == "text"
    assert document.marks == ()
    assert document.warnings == ("not a well-formed WebVTT file: read as plain text",)


def test_a_transcript_without_words_is_empty(tmp_path):
    (tmp_path / "a.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\n<i></i>\n")
    [skipped] = read_documents([tmp_path])
    assert isinstance(skipped, Skipped)
    assert skipped.reason == "empty"


cues = st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=1, max_size=6)


@settings(deadline=None)
@given(
    cues=cues, kind=st.sampled_from(["vtt", "srt"]), newline=st.sampled_from(["\n", "\r\n", "\r"])
)
def test_every_word_is_placed_on_its_line_and_time(tmp_path_factory, cues, kind, newline):
    lines, words = (["WEBVTT", ""] if kind == "vtt" else []), {}
    for second, cue in enumerate(cues):
        lines += [str(second), f"00:00:{second:02}.000 --> 00:01:00.000"]
        for length in cue:
            some = [f"word{len(words) + n}x" for n in range(length)]
            lines.append(f"<i>{' '.join(some)}</i>")
            words |= {word: (len(lines), f"00:00:{second:02}") for word in some}
        lines.append("")
    path = tmp_path_factory.getbasetemp() / f"property.{kind}"

    document = read(path.parent, path.name, newline.join(lines))

    assert document.text.count("\n") == len(cues)
    for word, (line, time) in words.items():
        start = document.text.index(word)
        place = document.place(start, start + len(word))
        assert (place.start_line, place.end_line, place.time) == (line, line, time)


@settings(deadline=None)
@given(
    st.text("0123456789:.,-> \n<v&;/#NOTE{}\\\x1b", max_size=80), st.sampled_from(["vtt", "srt"])
)
def test_any_file_is_read_without_a_crash(tmp_path_factory, contents, kind):
    path = tmp_path_factory.getbasetemp() / f"any.{kind}"
    path.write_text(contents, newline="")
    [result] = read_documents([path])
    if isinstance(result, Document):
        assert len(result.source_lines) == len(result.source_starts)
        last = result.place(len(result.text) - 1, len(result.text)).end_line
        assert 1 <= last <= contents.count("\n") + 1
    else:
        assert result.reason == "empty"
