"""A context in use: documents with their index segments, and where each block's text is."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from longctx.contexts.segment import Segment, joined
from longctx.contexts.store import SegmentStore
from longctx.documents.document import Document, Skipped
from longctx.documents.reasons import EMPTY
from longctx.indexshare.lexical import postings
from longctx.indexshare.profile import Profile
from longctx.indexshare.recall import IndexKeys, Recall, block_starts, block_texts
from longctx.models.device import release_memory
from longctx.models.tokenizer import TextTokenizer

GROUP_CHARACTERS = 400_000  # documents are tokenised and indexed in groups of about this size
PART_TOKENS = 100_000  # a longer document is indexed and kept in parts of about this size
# What is freed lies scattered over the heap: with a 1.5B model 10 kB a token stayed in the process.
RELEASE_TOKENS = 16_384

OnTokens = Callable[[int, int, bool], None]


@dataclass(frozen=True)
class IndexedDocument:
    """A document and its segment."""

    document: Document
    segment: Segment

    def characters(self, first: int, last: int) -> tuple[int, int]:
        """The character range of blocks `first..last` (inclusive)."""
        starts = self.segment.starts
        end = int(starts[last + 1]) if last + 1 < len(starts) else len(self.document.text)
        return int(starts[first]), end


@dataclass
class Corpus:
    """Everything a question is asked of, in a stable order."""

    entries: list[IndexedDocument] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    indexed_tokens: int = 0
    reused_tokens: int = 0

    def all_reused(self) -> None:
        """From the next question on, nothing of this context is indexed again."""
        self.indexed_tokens, self.reused_tokens = 0, self.tokens

    @property
    def tokens(self) -> int:
        return sum(entry.segment.tokens for entry in self.entries)

    @property
    def has_keys(self) -> bool:
        """Whether attention can search it all."""
        return all(entry.segment.has_keys for entry in self.entries)

    @cached_property
    def first_blocks(self) -> list[int]:
        """Each document's first block in the context, and the total at the end."""
        counts = [entry.segment.blocks for entry in self.entries]
        return [0, *np.cumsum(counts, dtype=np.int64).tolist()]


def build_corpus(
    documents: Sequence[Document],
    skipped: Sequence[Skipped],
    recall: Recall,
    tokenizer: TextTokenizer,
    store: SegmentStore,
    on_tokens: OnTokens | None = None,
    keys: bool = True,
) -> Corpus:
    """Take each document's segment from the store, or index it now and keep it there.

    Without `keys` only words are indexed, and the model does not run. `on_tokens(tokens, documents,
    reused)` hears what was done. Segments are kept one by one as they are finished, so an
    interrupted run loses only the documents in work. One of which the vocabulary can spell nothing
    becomes `Skipped`.
    """
    hear = on_tokens or (lambda tokens, documents, reused: None)
    segments: dict[str, Segment] = {}
    missing: dict[str, Document] = {}
    for document in documents:
        if document.digest in segments or document.digest in missing:
            hear(0, 1, True)
            continue
        segment = store.get(document.digest, keys)
        if segment is None:
            missing[document.digest] = document
            continue
        segments[document.digest] = segment
        hear(segment.tokens, 1, True)
    indexed = since = 0
    for group in _groups(list(missing.values())):
        made = (
            _index(group, recall, tokenizer, store, hear)
            if keys
            else _words(group, recall.profile.block, tokenizer, hear)
        )
        for document, segment, new in made:
            segments[document.digest] = store.put(document.digest, segment)
            indexed += new
            since += new
            if since >= RELEASE_TOKENS:
                release_memory()
                since = 0
    corpus = Corpus(skipped=list(skipped), warnings=list(store.warnings), indexed_tokens=indexed)
    for document in documents:
        if document.digest in segments:
            corpus.entries.append(IndexedDocument(document, segments[document.digest]))
        else:
            corpus.skipped.append(Skipped(document.path, EMPTY))
    corpus.reused_tokens = corpus.tokens - indexed
    return corpus


Made = Iterator[tuple[Document, Segment, int]]
"""Documents with their segments, and how many tokens of each were indexed now."""


def _index(
    group: Sequence[Document],
    recall: Recall,
    tokenizer: TextTokenizer,
    store: SegmentStore,
    hear: OnTokens,
) -> Made:
    """Tokenise and index documents together, those that are long one by one, in parts."""
    size = part_tokens(recall.profile)
    encoded = [_Encoded.of(document, tokenizer, recall.profile.block) for document in group]
    short = [one for one in encoded if len(one.ids) <= size]
    for position, keys in recall.index([one.ids for one in short], lambda n: hear(n, 0, False)):
        one = short[position]
        yield one.document, one.segment(keys), len(one.ids)
        hear(0, 1, False)
    for one in encoded:
        if len(one.ids) > size:
            yield from _index_parts(one, size, recall, store, hear)
            hear(0, 1, False)


def _index_parts(
    one: _Encoded, size: int, recall: Recall, store: SegmentStore, hear: OnTokens
) -> Made:
    """Index one long document, keeping each part as it is done: an interruption loses one part.

    A part's keys depend on as many windows before it as there are leader layers; those are run
    again, their own keys dropped. A part is the same whether or not it is the first of its run.
    """
    behind = recall.profile.leader * recall.profile.window
    names, parts, new = [], [], 0
    for first in range(0, len(one.ids), size):
        last = min(first + size, len(one.ids))
        names.append(f"{one.document.digest} tokens {first} to {last}")
        part = store.get(names[-1])
        if part is not None:
            hear(part.tokens, 0, True)
        else:
            skip = first - max(0, first - behind)
            told = _Later(skip, hear)
            ((_, keys),) = recall.index([one.ids[first - skip : last]], told.hear)
            part = store.put(names[-1], one.segment(_from(keys, skip), first, last))
            new += part.tokens
            release_memory()
        parts.append(part)
    yield one.document, joined(parts), new
    for name in names:
        store.discard(name)


class _Later:
    """Passes on the tokens of a run but the first `skip`, which were told before."""

    def __init__(self, skip: int, hear: OnTokens):
        self._skip, self._hear = skip, hear

    def hear(self, tokens: int) -> None:
        dropped = min(tokens, self._skip)
        self._skip -= dropped
        if tokens > dropped:
            self._hear(tokens - dropped, 0, False)


def _from(keys: IndexKeys, first: int) -> IndexKeys:
    return IndexKeys(
        {stream: rows[first:].clone() for stream, rows in keys.keys.items()},
        {stream: rows[first:].clone() for stream, rows in keys.scales.items()},
    )


def part_tokens(profile: Profile) -> int:
    """Whole windows and whole blocks of a document, about `PART_TOKENS` of it."""
    unit = math.lcm(profile.window, profile.block)
    return max(1, PART_TOKENS // unit) * unit


def _words(group: Sequence[Document], block: int, tokenizer: TextTokenizer, hear: OnTokens) -> Made:
    """Index the words of documents alone."""
    for document in group:
        one = _Encoded.of(document, tokenizer, block)
        if len(one.ids):
            hear(len(one.ids), 0, False)
            yield document, one.segment(IndexKeys({}, {})), len(one.ids)
            hear(0, 1, False)


@dataclass(frozen=True)
class _Encoded:
    """A document's tokens: `ids` four bytes each, `starts` the character each block begins at."""

    document: Document
    ids: array[int]
    starts: np.ndarray
    block: int

    @classmethod
    def of(cls, document: Document, tokenizer: TextTokenizer, block: int) -> _Encoded:
        """Tokenise; pieces of a long text are forgotten as soon as their blocks are known."""
        ids: array[int] = array("i")
        starts: list[int] = []
        for piece, offsets in tokenizer.iter_encode(document.text):
            first = -len(ids) % block
            starts += (start for start, _ in offsets[first::block])
            ids.extend(piece)
        found = block_starts(starts, 1)
        found[:1] = 0
        return cls(document, ids, found, block)

    def segment(self, keys: IndexKeys, first: int = 0, last: int | None = None) -> Segment:
        """The segment of tokens `first` to `last` (exclusive), `first` being a block's."""
        last = len(self.ids) if last is None else last
        starts = self.starts[first // self.block : -(-last // self.block)]
        after = self.starts[-(-last // self.block) :]
        end = int(after[0]) if len(after) else len(self.document.text)
        text = self.document.text[starts[0] : end]
        texts = block_texts(text, (starts - starts[0]).tolist())
        return Segment(last - first, starts.copy(), keys, postings(texts))


def _groups(documents: list[Document]) -> list[list[Document]]:
    groups: list[list[Document]] = []
    size = GROUP_CHARACTERS
    for document in documents:
        if size >= GROUP_CHARACTERS:
            groups.append([])
            size = 0
        groups[-1].append(document)
        size += len(document.text)
    return groups
