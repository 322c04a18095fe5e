"""Passages to read: chosen blocks widened to whole sentences or lines, with their places."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from longctx.contexts.corpus import Corpus
from longctx.documents.document import Place
from longctx.indexshare.select import Run

WIDEN_CHARACTERS = 200  # how far a passage may grow to begin and end at a sentence

_SENTENCE_END = re.compile(r"[.!?][\"')\]]*\s|\n")


@dataclass(frozen=True)
class Passage:
    """Characters `start..end` of entry `document` of a corpus."""

    document: int
    path: str
    start: int
    end: int
    text: str
    place: Place
    score: float


def passages(corpus: Corpus, runs: Sequence[Run]) -> list[Passage]:
    """The text of each run, in context order; runs that meet after widening are joined."""
    spans: list[tuple[int, int, int, float]] = []
    for run in runs:
        entry = corpus.entries[run.document]
        start, end = widen(entry.document.text, *entry.characters(run.first, run.last))
        if spans and spans[-1][0] == run.document and start <= spans[-1][2]:
            document, first, last, score = spans.pop()
            spans.append((document, first, max(last, end), max(score, run.score)))
        else:
            spans.append((run.document, start, end, run.score))
    found = []
    for number, start, end, score in spans:
        document = corpus.entries[number].document
        text = document.text[start:end]
        start += len(text) - len(text.lstrip())
        text = text.strip()
        if text:
            place = document.place(start, start + len(text))
            found.append(
                Passage(number, document.path, start, start + len(text), text, place, score)
            )
    return found


def widen(text: str, start: int, end: int) -> tuple[int, int]:
    """Move the start back to a sentence's begin and the end on to a sentence's end, if near."""
    floor = max(0, start - WIDEN_CHARACTERS)
    breaks = [match.end() for match in _SENTENCE_END.finditer(text, floor, start)]
    if breaks:
        start = breaks[-1]
    elif floor == 0:
        start = 0
    ending = _SENTENCE_END.search(text, max(end - 1, 0), min(len(text), end + WIDEN_CHARACTERS))
    if ending:
        end = ending.end()
    elif end + WIDEN_CHARACTERS >= len(text):
        end = len(text)
    return start, end
