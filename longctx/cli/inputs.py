"""What a user hands in, checked before anything heavy begins: paths, questions, question files.

Every fault is a `UsageError` of one line that names the place.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longctx.errors import UsageError

STDIN = "-"


@dataclass(frozen=True)
class Question:
    """One line of a questions file."""

    id: str | int
    text: str


def checked_question(text: str) -> str:
    """The question as text that can be encoded, without blanks around it."""
    question = text.encode("utf-8", "replace").decode().strip()
    if not question:
        raise UsageError("the question is empty; put it first, in quotation marks")
    return question


def checked_paths(named: Sequence[str]) -> list[Path]:
    """The paths named but `-`; whether they exist is seen when they are read."""
    if not named:
        raise UsageError("nothing to read is named; name files or folders after the question")
    if "" in named:  # would be the current folder
        raise UsageError("a path is empty; name a file or a folder")
    return [Path(name) for name in named if name != STDIN]


def read_questions(file: Path) -> list[Question]:
    """The questions of a JSONL file, in order. An object without "id" gets its line's number."""
    try:
        lines = file.read_bytes().split(b"\n")
    except OSError as error:
        raise UsageError(f"{file}: cannot read the questions ({error.strerror})") from None
    questions = [
        _question(line, f"{file}, line {number}", number)
        for number, line in enumerate(lines, 1)
        if line.removeprefix(b"\xef\xbb\xbf").strip()
    ]
    if not questions:
        raise UsageError(f'{file}: no questions in it; write lines {{"id": …, "question": …}}')
    return questions


def _question(line: bytes, place: str, number: int) -> Question:
    try:
        found: Any = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        raise UsageError(f'{place}: not JSON; write {{"id": …, "question": …}}') from None
    if not isinstance(found, dict):
        raise UsageError(f'{place}: not an object; write {{"id": …, "question": …}}')
    question, name = found.get("question"), found.get("id", number)
    if not isinstance(question, str) or not question.strip():
        raise UsageError(f'{place}: "question" is missing, empty or not text')
    if not isinstance(name, str | int) or isinstance(name, bool):
        raise UsageError(f'{place}: "id" is neither text nor a whole number')
    return Question(name, checked_question(question))
