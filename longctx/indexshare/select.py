"""From block scores to the passages that are read: fusion, choice, neighbours.

Numbers only: it sees scores and where documents begin, never their text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float32]


@dataclass(frozen=True)
class Run:
    """Neighbouring blocks `first..last` (inclusive) of one document; `score` is the best one's."""

    document: int
    first: int
    last: int
    score: float


def log_softmax(scores: Scores) -> Scores:
    """Log-probabilities over blocks of raw scores, float32."""
    shifted = scores.astype(np.float64) - scores.max(initial=-np.inf)
    return (shifted - np.log(np.exp(shifted).sum())).astype(np.float32)


def fuse(
    attention: Scores | None,
    lexical: Scores | None,
    lexical_weight: float,
    first: Sequence[int],
    documents: Scores | None = None,
    document_weight: float = 0.0,
) -> Scores:
    """Log-probabilities of attention plus `lexical_weight` times those of smoothed BM25.

    Either may be missing. `first` holds each document's first block and, last, the total: words
    of a neighbouring block of the same document count a third, since sentences cross blocks.
    With `documents` `[documents]`, the log-probability of its document is added to each block,
    times `document_weight`.
    """
    if lexical is None:
        assert attention is not None
        return log_softmax(attention)
    words = log_softmax(_smooth(lexical, first))
    total = words if attention is None else log_softmax(attention) + lexical_weight * words
    if documents is not None and len(documents):
        blocks = np.diff(np.asarray(first))
        total = total + document_weight * np.repeat(log_softmax(documents), blocks)
    return total.astype(np.float32)


def _smooth(scores: Scores, first: Sequence[int], share: float = 0.3) -> Scores:
    inner = np.ones(len(scores), dtype=bool)  # blocks that follow one of the same document
    inner[[block for block in first if block < len(scores)]] = False
    after = np.flatnonzero(inner)
    out = scores.copy()
    out[after] += np.float32(share) * scores[after - 1]
    out[after - 1] += np.float32(share) * scores[after]
    return out


def best(scores: Scores, most: int) -> list[int]:
    """The `most` best blocks in context order; ties go to the earlier block."""
    return sorted(int(block) for block in np.argsort(-scores, kind="stable")[:most])


def place(block: int, first: Sequence[int]) -> tuple[int, int]:
    """The document a block of the context lies in, and its number there; `first` as in `fuse`."""
    document = int(np.searchsorted(first, block, side="right")) - 1
    return document, block - first[document]


def choose(scores: Scores, first: Sequence[int], top: int, neighbours: int) -> list[Run]:
    """The `top` best blocks with `neighbours` on each side, joined where they touch.

    `first` as in `fuse`. Ties go to the earlier block. Runs come in context order.
    """
    runs: list[Run] = []
    for block in best(scores, top):
        document, _ = place(block, first)
        start, end = first[document], first[document + 1] - 1
        low, high = max(start, block - neighbours), min(end, block + neighbours)
        run = Run(document, low - start, high - start, float(scores[block]))
        if runs and runs[-1].document == document and run.first <= runs[-1].last + 1:
            last = runs.pop()
            run = Run(document, last.first, run.last, max(last.score, run.score))
        runs.append(run)
    return runs


def heat(scores: Scores, first: Sequence[int], slices: int) -> list[NDArray[np.float32]]:
    """Per document, the strongest block of each of at most `slices` equal slices, 0..1.

    1 is the strongest block of the context; values fall with the log-probability.
    """
    best = float(scores.max(initial=-np.inf))
    span = max(best - float(np.quantile(scores, 0.5)), 1e-6) if len(scores) else 1.0
    level = np.clip(1 - (best - scores) / span, 0, 1)
    rows = []
    for start, end in pairwise(first):
        part = level[start:end]
        edges = np.linspace(0, len(part), min(slices, len(part)) + 1).astype(int)
        rows.append(np.array([part[a:b].max() for a, b in pairwise(edges)]))
    return rows
