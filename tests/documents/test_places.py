"""The lines a place names are those where an editor shows the quoted characters."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from longctx.documents import Document, Mark, read_documents

lines = st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12), min_size=1)
newlines = st.sampled_from(["\n", "\r\n", "\r"])


def read(path: Path, contents: str) -> Document | None:
    path.write_bytes(contents.encode())
    [result] = read_documents([path])
    return result if isinstance(result, Document) else None


@settings(deadline=None)
@given(parts=st.lists(st.tuples(lines, newlines), min_size=1, max_size=4), data=st.data())
def test_a_quote_stands_on_the_lines_of_its_place(tmp_path_factory, parts, data):
    contents = "".join(newline.join(some) + newline for some, newline in parts)
    document = read(tmp_path_factory.getbasetemp() / "places.txt", contents)
    if document is None or contents.startswith("\ufeff"):
        return
    start = data.draw(st.integers(0, len(document.text) - 1))
    end = data.draw(st.integers(start + 1, len(document.text)))

    place = document.place(start, end)

    in_editor = re.split("\r\n|\r|\n", contents)
    shown = "\n".join(in_editor[place.start_line - 1 : place.end_line]) + "\n"
    assert document.text[start:end] in shown
    first, last = document.text[start], document.text[end - 1]
    assert first in in_editor[place.start_line - 1] + "\n"
    assert last in in_editor[place.end_line - 1] + "\n"


def test_a_file_of_carriage_returns_has_lines(tmp_path):
    document = read(tmp_path / "old.txt", "one\rtwo\r\nthree\r\rfive")
    assert document is not None
    assert document.text == "one\ntwo\nthree\n\nfive"
    assert document.line_at(document.text.index("five")) == 5


def test_a_transcript_of_carriage_returns_has_lines(tmp_path):
    cues = "WEBVTT\r\r00:01.000 --> 00:02.000\rHello there\r\r00:03.000 --> 00:04.000\rBye\r"
    document = read(tmp_path / "call.vtt", cues)
    assert document is not None
    assert document.kind == "vtt"
    assert document.line_at(document.text.index("Bye")) == 7


def test_a_place_has_the_page_or_time_that_began_last():
    document = Document("a", "one\ntwo\nthree\n", "pdf", marks=(Mark(0, page=2), Mark(8, page=4)))
    assert document.place(0, 3).page == 2
    assert document.place(4, 13).page == 2
    assert document.place(8, 9).page == 4


def test_joined_lines_know_where_each_part_came_from():
    document = Document(
        "a", "one two\nthree\n", "vtt", source_lines=(4, 5, 9), source_starts=(0, 4, 8)
    )
    place = document.place(1, 6)
    assert (place.start_line, place.end_line) == (4, 5)
    assert document.line_at(7) == 5
    assert document.line_at(8) == 9
    assert document.line_at(13) == 9
