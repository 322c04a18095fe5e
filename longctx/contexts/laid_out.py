"""Documents laid out as one prompt for a native model, and where each of its tokens comes from.

The prompt begins the same way for every question: instructions, then the documents in their order,
each behind its path. Blocks of 32 tokens of each document play the part an index segment's do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from longctx.contexts.corpus import Corpus, IndexedDocument
from longctx.contexts.segment import Segment
from longctx.documents.document import Document, Skipped
from longctx.indexshare.lexical import postings
from longctx.indexshare.recall import IndexKeys

BLOCK = 32


@dataclass
class LaidOut(Corpus):
    """A corpus whose whole text is a prompt.

    `text` is the opening with all documents; document i's own text begins at character
    `places[i]` of it. `positions[i]` are the prompt positions `[first, last)` of its tokens.
    """

    text: str = ""
    places: list[int] = field(default_factory=list)
    positions: list[tuple[int, int]] = field(default_factory=list)

    @property
    def has_keys(self) -> bool:
        """The model's own index keys are made with the prompt."""
        return True

    def blocks_at(self, positions: np.ndarray) -> np.ndarray:
        """The blocks, counted over the context, of those prompt positions that lie in documents."""
        if not self.positions:
            return np.zeros(0, dtype=np.int64)
        first, last = np.array(self.positions, dtype=np.int64).T
        number = np.searchsorted(first, positions, side="right") - 1
        inside = (number >= 0) & (positions < last[number])
        number, positions = number[inside], positions[inside]
        return np.array(self.first_blocks)[number] + (positions - first[number]) // BLOCK

    def tokens_before(self, position: int) -> int:
        """How many of the documents' tokens stand before a prompt position."""
        return sum(max(0, min(last, position) - first) for first, last in self.positions)


def lay_out(opening: str, documents: Sequence[Document], skipped: Sequence[Skipped]) -> LaidOut:
    """The text of all documents behind the opening; `locate` tells of its tokens."""
    text, places = opening, []
    for document in documents:
        text += f"\n\nDocument {document.path}:\n"
        places.append(len(text))
        text += document.text
    return LaidOut(
        entries=[IndexedDocument(document, _segment([])) for document in documents],
        skipped=list(skipped),
        text=text + "\n\n",
        places=places,
    )


def locate(corpus: LaidOut, begins: Sequence[int]) -> None:
    """Fill in blocks and positions, given the character at which each prompt token begins.

    Tokens before the text have -1.
    """
    at = np.asarray(begins)
    corpus.positions = []
    for number, (entry, place) in enumerate(zip(corpus.entries, corpus.places, strict=True)):
        first, last = np.searchsorted(at, [place, place + len(entry.document.text)])
        starts = np.maximum(at[first:last] - place, 0)
        corpus.positions.append((int(first), int(last)))
        corpus.entries[number] = IndexedDocument(entry.document, _segment(starts.tolist()))
    corpus.__dict__.pop("first_blocks", None)


def _segment(starts: Sequence[int]) -> Segment:
    blocks = np.array(starts[::BLOCK], dtype=np.int32)
    if len(blocks):
        blocks[0] = 0
    return Segment(len(starts), blocks, IndexKeys({}, {}), postings([""] * len(blocks)))
