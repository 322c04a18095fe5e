"""Calibration questions: read from files, hidden in other text where their spans say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from longctx.errors import UsageError
from longctx.indexshare.questions import (
    DOCUMENT_CHARACTERS,
    KINDS,
    CalibrationQuestion,
    hide,
    read_questions,
    shipped_questions,
)

QUESTIONS = [
    CalibrationQuestion("facts", f"What is the code of {n}?", f"The code of {n} is {n * n}.")
    for n in range(40)
] + [CalibrationQuestion("context", "And then?", "It closed.", before="The quay opened in May.")]


def test_every_kind_ships():
    found = shipped_questions()

    assert {item.kind for item in found} == set(KINDS)
    assert all(item.question.strip() and item.passage.strip() for item in found)
    assert shipped_questions(["code"]) == [item for item in found if item.kind == "code"]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("characters", [0, 20_000, 100_000])
def test_a_passage_stands_where_its_span_says(seed: int, characters: int):
    haystack = hide(QUESTIONS, characters, seed)

    assert haystack.questions == QUESTIONS
    for item, (document, start, end) in zip(QUESTIONS, haystack.spans, strict=True):
        text = haystack.documents[document]
        assert text[start:end] == item.passage
        assert text[:start].endswith(f"{item.before} " if item.before else "")


def test_the_same_seed_hides_alike():
    assert hide(QUESTIONS, 20_000, 3) == hide(QUESTIONS, 20_000, 3)
    assert hide(QUESTIONS, 20_000, 3) != hide(QUESTIONS, 20_000, 4)


def test_as_much_other_text_as_was_asked_for():
    own = sum(len(item.passage) for item in QUESTIONS)
    texts = hide(QUESTIONS, 60_000, 0).documents

    assert 60_000 < sum(map(len, texts)) < 75_000 + 2 * own
    assert len(texts) > 3
    assert all(len(text) < 2 * DOCUMENT_CHARACTERS for text in texts)


def test_questions_of_ones_own(tmp_path: Path):
    file = tmp_path / "mine.jsonl"
    lines = [{"question": "Who?", "passage": "The pilot.", "answer": "the pilot", "id": 3}]
    file.write_text("\n\n" + "\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")

    assert read_questions(file) == [
        CalibrationQuestion("mine", "Who?", "The pilot.", "the pilot", "")
    ]


@pytest.mark.parametrize("line", ["{", "[]", "3", '{"question": "Who?"}', '{"passage": "It."}'])
def test_a_line_that_is_no_question_is_named(line: str, tmp_path: Path):
    file = tmp_path / "mine.jsonl"
    file.write_text('{"question": "Who?", "passage": "He."}\n' + line + "\n", encoding="utf-8")

    with pytest.raises(UsageError, match=r"mine\.jsonl, line 2: not a question"):
        read_questions(file)


def test_files_that_cannot_be_read(tmp_path: Path):
    binary = tmp_path / "mine.jsonl"
    binary.write_bytes(b"\xff\xfe\x00")

    for file in (binary, tmp_path / "absent.jsonl", tmp_path):
        with pytest.raises(UsageError, match="cannot read these questions"):
            read_questions(file)
