"""Calibration questions: passages with known answers, hidden in other text.

The shipped sets (see `calibration/README.md`) are joined by any JSONL file of the same shape. The
other text is Python's own reference topics, which every installation has.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from longctx.errors import UsageError

KINDS = ("facts", "paraphrase", "context", "code")
DOCUMENT_CHARACTERS = 12_000


@dataclass(frozen=True)
class CalibrationQuestion:
    """A question of one `kind`; `before` introduces the `passage` that answers it."""

    kind: str
    question: str
    passage: str
    answer: str = ""
    before: str = ""


@dataclass(frozen=True)
class Haystack:
    """Documents that hold every passage; `spans[i]` is question i's `(document, start, end)`."""

    documents: list[str]
    questions: list[CalibrationQuestion]
    spans: list[tuple[int, int, int]]


def shipped_questions(kinds: Iterable[str] = KINDS) -> list[CalibrationQuestion]:
    """The sets that come with the package."""
    found = []
    for kind in kinds:
        file = resources.files("longctx.indexshare").joinpath("calibration", f"{kind}.jsonl")
        found += _parse(file.read_text(encoding="utf-8"), kind, f"calibration/{kind}.jsonl")
    return found


def read_questions(path: Path) -> list[CalibrationQuestion]:
    """Questions of the user's own.

    JSONL lines with `passage`, `question` and perhaps `answer` and `before`, or an XQuAD-shaped
    `.json` file: `[{"paragraphs": [{"text", "questions": [{"question", "answer", "start"}]}]}]`,
    of which one question a paragraph is taken, so that no passage is hidden twice.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot read these questions ({error})") from None
    if path.suffix == ".json":
        return _parse_paragraphs(text, path)
    return _parse(text, path.stem, str(path))


def _parse_paragraphs(text: str, path: Path) -> list[CalibrationQuestion]:
    found = []
    try:
        for article in json.loads(text):
            for number, paragraph in enumerate(article["paragraphs"]):
                asked = paragraph["questions"][number % len(paragraph["questions"])]
                whole, start = paragraph["text"], int(asked["start"])
                first = max(whole.rfind(". ", 0, start) + 1, 0)
                last = whole.find(". ", start + len(asked["answer"]))
                passage = whole[first : last + 1 if last >= 0 else len(whole)].strip()
                before = whole[:first].strip()
                found.append(
                    CalibrationQuestion(
                        path.stem, asked["question"], passage, asked["answer"], before
                    )
                )
    except (ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError) as error:
        raise UsageError(f"{path}: not a question file ({error!r})") from None
    return found


def _parse(text: str, kind: str, where: str) -> list[CalibrationQuestion]:
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            raw = json.loads(line)
            found.append(
                CalibrationQuestion(
                    kind,
                    str(raw["question"]),
                    str(raw["passage"]),
                    str(raw.get("answer", "")),
                    str(raw.get("before", "")),
                )
            )
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{where}, line {number}: not a question ({error})") from None
    return found


def hide(questions: Sequence[CalibrationQuestion], filler_characters: int, seed: int) -> Haystack:
    """Scatter the passages over documents of other text, the same way for the same seed."""
    chance = random.Random(seed)
    filler = _filler(filler_characters, chance)
    order = list(range(len(questions)))
    chance.shuffle(order)
    slots = sorted(chance.randrange(len(filler) + 1) for _ in order)
    documents: list[str] = []
    spans: list[tuple[int, int, int]] = [(0, 0, 0)] * len(questions)
    text = ""
    waiting = list(zip(slots, order, strict=True))
    for position in range(len(filler) + 1):
        while waiting and waiting[0][0] == position:
            _, number = waiting.pop(0)
            item = questions[number]
            text += f"{item.before} " if item.before else ""
            spans[number] = (len(documents), len(text), len(text) + len(item.passage))
            text += item.passage + "\n\n"
        if position < len(filler):
            text += filler[position] + "\n\n"
        if len(text) > DOCUMENT_CHARACTERS:
            documents.append(text)
            text = ""
    if text:
        documents.append(text)
    return Haystack(documents, list(questions), spans)


def _filler(characters: int, chance: random.Random) -> list[str]:
    from pydoc_data.topics import topics

    names = sorted(topics)
    chance.shuffle(names)
    paragraphs: list[str] = []
    length = 0
    for name in names:
        for paragraph in topics[name].split("\n\n"):
            if len(paragraph) > 40 and length < characters:
                paragraphs.append(paragraph)
                length += len(paragraph)
    return paragraphs
