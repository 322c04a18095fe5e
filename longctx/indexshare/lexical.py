"""Words of blocks, kept beside the index keys, and exact BM25 over any set of documents.

Postings are stored per document and joined when a question comes, so that a changed file costs its
own words alone; ready-made BM25 libraries build one index over a fixed corpus instead. Formula:
Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009).
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

K1, B = 1.2, 0.75

_WORD = re.compile(r"\d[\d.,]*\d|[^\W\d_]+|\d", re.UNICODE)
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")


@dataclass(frozen=True)
class Postings:
    """The words of one document's blocks: block b holds `terms[ptr[b]:ptr[b + 1]]`.

    `terms` uint32 hashes, `counts` uint8 (occurrences, at most 255), `ptr` int64 `[blocks + 1]`.
    """

    terms: NDArray[np.uint32]
    counts: NDArray[np.uint8]
    ptr: NDArray[np.int64]


def words(text: str) -> list[str]:
    """Lower-case stems of the words and numbers of a text; identifiers are split at their joints.

    >>> words("Retries use backoffSeconds = 1,200")
    ['retry', 'use', 'backoff', 'second', '1200']
    """
    if not text.isascii():  # PDFs hold ligatures, some systems write accents apart
        text = unicodedata.normalize("NFKC", text)
    found = []
    for word in _WORD.findall(_CAMEL.sub(" ", text)):
        if word[0].isdigit():
            found.append(word.replace(",", ""))
        else:
            found.append(_stem(word.lower()))
    return found


def _stem(word: str) -> str:
    """Strip English plural and verb endings: enough to join forms, too little to confuse words."""
    if len(word) < 4 or not word.isascii():
        return word
    if word.endswith("ies"):
        return word[:-3] + "y" if len(word) > 4 else word
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-2] if word.endswith(("sses", "xes", "ches", "shes")) else word[:-1]
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            if word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    return word[:-1] if word.endswith("e") and len(word) > 4 else word


_FUNCTION_WORDS = (
    "a an and any are as at be been but by can could did do does for from had has have how i if in "
    "into is it its may might of on or our shall should so than that the their them then there "
    "these they this those to under was we were what when where which who whom whose why will with "
    "would you your"
)
STOP_WORDS = frozenset(_stem(word) for word in _FUNCTION_WORDS.split())  # as `words` gives them


def term_id(word: str) -> int:
    return zlib.crc32(word.encode("utf-8", "surrogatepass"))


def postings(blocks: Sequence[str]) -> Postings:
    """Count the words of each block's text."""
    terms: list[int] = []
    counts: list[int] = []
    ptr = [0]
    for text in blocks:
        for word, count in Counter(words(text)).items():
            terms.append(term_id(word))
            counts.append(min(count, 255))
        ptr.append(len(terms))
    return Postings(
        np.array(terms, dtype=np.uint32),
        np.array(counts, dtype=np.uint8),
        np.array(ptr, dtype=np.int64),
    )


def question_terms(question: str) -> list[int]:
    """Hashes of a question's distinct words, function words left out unless nothing else is."""
    found = list(dict.fromkeys(words(question)))
    content = [word for word in found if word not in STOP_WORDS]
    return [term_id(word) for word in content or found]


def bm25(terms: Sequence[int], documents: Sequence[Postings]) -> NDArray[np.float32]:
    """BM25 of every block of the documents, in order: float32 `[blocks]`, 0 without a match."""
    lengths = np.concatenate([_block_lengths(p) for p in documents] or [np.zeros(0)])
    if not len(lengths) or not terms:
        return np.zeros(len(lengths), dtype=np.float32)
    wanted = np.unique(np.array(terms, dtype=np.uint32))
    return _okapi(lengths, len(wanted), *_matches(wanted, documents))


def document_bm25(terms: Sequence[int], documents: Sequence[Postings]) -> NDArray[np.float32]:
    """BM25 of each document as a whole: float32 `[documents]`.

    A question often names the agreement, meeting or module it means, and the passage that answers
    it does not: the words of the rest of the document say that it is the right one.
    """
    lengths = np.array([float(p.counts.sum(dtype=np.int64)) for p in documents])
    if not len(lengths) or not terms:
        return np.zeros(len(lengths), dtype=np.float32)
    wanted = np.unique(np.array(terms, dtype=np.uint32))
    totals = np.zeros((len(documents), len(wanted)), dtype=np.int64)
    for number, document in enumerate(documents):
        hits = np.flatnonzero(np.isin(document.terms, wanted))
        slots = np.searchsorted(wanted, document.terms[hits])
        np.add.at(totals[number], slots, document.counts[hits])
    units, slots = np.nonzero(totals)
    return _okapi(lengths, len(wanted), units, slots, totals[units, slots])


def _okapi(
    lengths: NDArray[np.float64],
    terms: int,
    units: NDArray[np.int64],
    slots: NDArray[np.int64],
    counts: NDArray[np.integer],
) -> NDArray[np.float32]:
    """BM25 of units (blocks or documents) from `(unit, term slot, count)` triples."""
    scores = np.zeros(len(lengths), dtype=np.float32)
    frequency = np.bincount(slots, minlength=terms)
    idf = np.log1p((len(lengths) - frequency + 0.5) / (frequency + 0.5))
    mean = max(float(lengths.mean()), 1.0)
    tf = counts.astype(np.float64)
    gain = tf * (K1 + 1) / (tf + K1 * (1 - B + B * lengths[units] / mean))
    np.add.at(scores, units, (idf[slots] * gain).astype(np.float32))
    return scores


def _block_lengths(document: Postings) -> NDArray[np.float64]:
    sums = np.concatenate(([0], np.cumsum(document.counts, dtype=np.int64)))
    return np.diff(sums[document.ptr]).astype(np.float64)


def _matches(
    wanted: NDArray[np.uint32], documents: Sequence[Postings]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]:
    """Block number, slot in `wanted` and count of every posting of a wanted term."""
    blocks, slots, counts = [], [], []
    first = 0
    for document in documents:
        hits = np.flatnonzero(np.isin(document.terms, wanted))
        blocks.append(np.searchsorted(document.ptr, hits, side="right") - 1 + first)
        slots.append(np.searchsorted(wanted, document.terms[hits]))
        counts.append(document.counts[hits])
        first += len(document.ptr) - 1
    return np.concatenate(blocks), np.concatenate(slots), np.concatenate(counts)
