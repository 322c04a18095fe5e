"""What a user hands in, checked before anything heavy begins: paths, questions, question files.

Every fault is a `UsageError` of one line that names the place.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longctx.documents.sanitize import is_blank
from longctx.errors import ModelError, UsageError

STDIN = "-"
_HUB_ID = re.compile(r"[^./~:][^/:]*/(?![^/:]*\.gguf$)[^/:]+(:.+)?")  # org/name, org/name:file


@dataclass(frozen=True)
class Question:
    """One line of a questions file."""

    id: str | int
    text: str


def checked_question(text: str) -> str:
    """The question as text that can be encoded, without blanks around it."""
    question = text.encode("utf-8", "replace").decode().strip()
    if is_blank(question):
        raise UsageError("the question is empty; put it first, in quotation marks")
    return question


def checked_paths(named: Sequence[str]) -> list[Path]:
    """The paths named but `-`; whether they exist is seen when they are read."""
    if not named:
        raise UsageError("nothing to read is named; name files or folders after the question")
    if "" in named:  # would be the current folder
        raise UsageError("a path is empty; name a file or a folder")
    return [Path(name) for name in named if name != STDIN]


def checked_model(name: str) -> str:
    """The name of a model; that it can be one is seen before any document is read.

    A name that stands for nothing anywhere is wrong usage. Whether a model that is there is whole,
    or one on the hub can be had, is seen when it is loaded.
    """
    from longctx.models import registry
    from longctx.models.sources import entry_named

    if entry_named(name) or _HUB_ID.fullmatch(name) or os.path.lexists(os.path.expanduser(name)):
        return name
    try:
        registry.resolve(name, download=False)
    except ModelError as error:
        raise UsageError(f"{error}; see `longctx models list`") from None
    return name


def questions_and_paths(
    file: str, question: str | None, paths: Sequence[str]
) -> tuple[list[Question], list[str]]:
    """What `--questions FILE` asks, and of what: every argument is a path then.

    The first one stands where a question would: if there is no such path it was meant as one.
    """
    named = [*paths] if question is None else [question, *paths]
    if question and question != STDIN and not os.path.lexists(question):
        raise UsageError(
            f"{question!r} is no file or folder: with --questions every argument is a path, "
            "so leave out either the question or --questions"
        )
    if file == STDIN and STDIN in named:
        raise UsageError("standard input cannot give both the questions and the paths")
    return read_questions(file), named


def read_questions(file: str) -> list[Question]:
    """The questions of a JSONL file, or of stdin for `-`, in order.

    Lines end as editors see them: `\\n`, `\\r\\n` or `\\r`. An object without "id" gets its line's
    number.
    """
    place = "standard input" if file == STDIN else file
    try:
        data = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"{place}: cannot read the questions ({error.strerror})") from None
    except ValueError:
        raise UsageError(f"not a path: {file!r}") from None
    questions = [
        _question(line, f"{place}, line {number}", number)
        for number, line in enumerate(re.split(b"\r\n|\r|\n", data), 1)
        if line.removeprefix(b"\xef\xbb\xbf").strip()
    ]
    if not questions:
        raise UsageError(f'{place}: no questions in it; write lines {{"id": …, "question": …}}')
    return questions


def _question(line: bytes, place: str, number: int) -> Question:
    try:
        found: Any = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        raise UsageError(f'{place}: not JSON; write {{"id": …, "question": …}}') from None
    if not isinstance(found, dict):
        raise UsageError(f'{place}: not an object; write {{"id": …, "question": …}}')
    question, name = found.get("question"), found.get("id", number)
    if not isinstance(question, str) or is_blank(question):
        raise UsageError(f'{place}: "question" is missing, empty or not text')
    if not isinstance(name, str | int) or isinstance(name, bool):
        raise UsageError(f'{place}: "id" is neither text nor a whole number')
    return Question(name, checked_question(question))
