"""A context in use: documents with their index segments, and where each block's text is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from longctx.contexts.segment import Segment
from longctx.contexts.store import SegmentStore
from longctx.documents.document import Document, Skipped
from longctx.documents.reasons import EMPTY
from longctx.indexshare.lexical import postings
from longctx.indexshare.recall import Recall, block_starts, block_texts
from longctx.models.tokenizer import TextTokenizer

GROUP_CHARACTERS = 400_000  # documents are tokenised and indexed in groups of about this size


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
    indexed_tokens: int = 0
    reused_tokens: int = 0

    def all_reused(self) -> None:
        """From the next question on, nothing of this context is indexed again."""
        self.indexed_tokens, self.reused_tokens = 0, self.tokens

    @property
    def tokens(self) -> int:
        return sum(entry.segment.tokens for entry in self.entries)

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
    on_tokens: Callable[[int, int, bool], None] | None = None,
) -> Corpus:
    """Take each document's segment from the store, or index it now and keep it there.

    `on_tokens(tokens, documents, reused)` hears what was done. Segments are kept one by one as
    they are finished, so an interrupted run loses only the documents in work. One of which the
    vocabulary can spell nothing becomes `Skipped`.
    """
    segments: dict[str, Segment] = {}
    missing: dict[str, Document] = {}
    for document in documents:
        if document.digest in segments or document.digest in missing:
            if on_tokens:
                on_tokens(0, 1, True)
            continue
        segment = store.get(document.digest)
        if segment is None:
            missing[document.digest] = document
            continue
        segments[document.digest] = segment
        if on_tokens:
            on_tokens(segment.tokens, 1, True)
    indexed = 0
    for group in _groups(list(missing.values())):
        for document, segment in index_group(group, recall, tokenizer, on_tokens):
            segments[document.digest] = store.put(document.digest, segment)
            indexed += segment.tokens
    corpus = Corpus(skipped=list(skipped), indexed_tokens=indexed)
    for document in documents:
        if document.digest in segments:
            corpus.entries.append(IndexedDocument(document, segments[document.digest]))
        else:
            corpus.skipped.append(Skipped(document.path, EMPTY))
    corpus.reused_tokens = corpus.tokens - indexed
    return corpus


def index_group(
    group: Sequence[Document],
    recall: Recall,
    tokenizer: TextTokenizer,
    on_tokens: Callable[[int, int, bool], None] | None = None,
):
    """Tokenise and index documents together; yields `(document, segment)` as each is done."""
    encoded = [tokenizer.encode_text(document.text) for document in group]
    block = recall.profile.block

    def hear(tokens: int) -> None:
        if on_tokens:
            on_tokens(tokens, 0, False)

    for position, keys in recall.index([ids for ids, _ in encoded], hear):
        document, (ids, offsets) = group[position], encoded[position]
        starts = block_starts([start for start, _ in offsets], block)
        starts[0] = 0
        texts = block_texts(document.text, starts.tolist())
        yield document, Segment(len(ids), starts, keys, postings(texts))
        if on_tokens:
            on_tokens(0, 1, False)


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
