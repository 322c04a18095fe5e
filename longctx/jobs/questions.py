"""Question files with truth, and how an answer and its evidence are judged.

One JSON object a line: `id, question, answer, kind, accept, evidence[{path, quote, ...}]`. An
answer is right if it holds, for every list of `accept`, one of its strings; an unanswerable
question (no `accept`) is right if the answer says that it was not found.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from longctx.errors import UsageError


@dataclass(frozen=True)
class Truth:
    """A place that must be read: the quote stands in the file whose path ends with `path`."""

    path: str
    quote: str


@dataclass(frozen=True)
class Question:
    """A question with its truth."""

    id: str
    text: str
    kind: str
    answer: str
    accept: tuple[tuple[str, ...], ...]
    evidence: tuple[Truth, ...]

    @property
    def answerable(self) -> bool:
        return bool(self.accept)


class Read(Protocol):
    """A passage that was read: `contexts.passages.Passage` or an answer's evidence."""

    @property
    def path(self) -> str: ...
    @property
    def text(self) -> str: ...


def load_questions(path: Path) -> list[Question]:
    """Read a question file. Raises `UsageError` that names the line."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            raw = json.loads(line)
            found.append(
                Question(
                    str(raw["id"]),
                    str(raw["question"]),
                    str(raw.get("kind", "fact")),
                    str(raw.get("answer", "")),
                    tuple(tuple(str(s) for s in group) for group in raw.get("accept", [])),
                    tuple(Truth(e["path"], e["quote"]) for e in raw.get("evidence", [])),
                )
            )
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path}, line {number}: not a question ({error})") from None
    return found


def load_encyclopedic(path: Path) -> tuple[list[str], list[Question]]:
    """Paragraphs and questions of an XQuAD-shaped file: `[{paragraphs: [{text, questions}]}]`."""
    texts, questions = [], []
    for article in json.loads(path.read_text(encoding="utf-8")):
        for paragraph in article["paragraphs"]:
            number = len(texts)
            texts.append(paragraph["text"])
            for asked in paragraph["questions"]:
                start = max(0, asked["start"] - 40)
                end = asked["start"] + len(asked["answer"])
                quote = paragraph["text"][start:end]
                questions.append(
                    Question(
                        f"{number}-{len(questions)}",
                        asked["question"],
                        "fact",
                        asked["answer"],
                        ((asked["answer"],),),
                        (Truth("", quote),),
                    )
                )
    return texts, questions


def plain(text: str) -> str:
    """Lower case, single spaces: how texts are compared."""
    return re.sub(r"\s+", " ", text).strip().lower()


def evidence_found(question: Question, passages: Iterable[Read]) -> bool:
    """Whether every place of the truth is among what was read."""
    read = [(p.path, plain(p.text)) for p in passages]
    return all(
        any(path.endswith(truth.path) and plain(truth.quote) in text for path, text in read)
        for truth in question.evidence
    )


def answer_right(question: Question, answer: str, found: bool) -> bool:
    """Whether an answer is right, by the file's own rule."""
    if not question.answerable:
        return not found
    return found and _holds(plain(answer), question.accept)


def _holds(text: str, groups: Sequence[Sequence[str]]) -> bool:
    return all(any(plain(option) in text for option in group) for group in groups)
