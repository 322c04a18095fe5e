"""What was read and cited as the plain records an answer carries."""

from __future__ import annotations

from longctx.contexts.cite import Cited
from longctx.contexts.corpus import Corpus
from longctx.contexts.passages import Passage
from longctx.engines.base import Citation, EvidencePassage, HeatRow
from longctx.indexshare.select import Scores, heat

HEAT_SLICES = 120


def passage(number: int, read: Passage) -> EvidencePassage:
    """Passage `number` of the evidence, from 1."""
    place = read.place
    return EvidencePassage(
        number,
        read.path,
        place.start_line,
        place.end_line,
        place.page,
        place.time,
        round(read.score, 4),
        read.text,
    )


def citation(cited: Cited) -> Citation:
    """A quote with where it stands, if it stands anywhere."""
    place = cited.place
    return Citation(
        cited.passage,
        cited.quote,
        cited.path,
        place.start_line if place else None,
        place.end_line if place else None,
        place.page if place else None,
        place.time if place else None,
        cited.verified,
    )


def heat_rows(corpus: Corpus, scores: Scores) -> tuple[HeatRow, ...]:
    """Where in each document the scores `[blocks]` of the context are high."""
    rows = heat(scores, corpus.first_blocks, HEAT_SLICES)
    return tuple(
        HeatRow(e.document.path, e.segment.tokens, tuple(round(float(v), 3) for v in row))
        for e, row in zip(corpus.entries, rows, strict=True)
    )


def cut_warning(count: int, most: int, thinking: bool = False) -> tuple[str, ...]:
    """What to tell of an answer of `count` tokens where `most` were allowed."""
    if count < most:
        return ()
    what = "the model was still thinking when it was cut" if thinking else "the answer was cut"
    return (f"{what} after {count} tokens; see --max-answer-tokens",)
