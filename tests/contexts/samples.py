"""Documents, segments and corpora made by hand, for tests that need no model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from longctx.contexts.corpus import Corpus, IndexedDocument
from longctx.contexts.segment import Segment
from longctx.documents.document import Document
from longctx.indexshare.lexical import postings
from longctx.indexshare.recall import IndexKeys

BLOCK = 32


def segment(tokens: int, seed: int = 0, dim: int = 8, blocks: Sequence[str] = ()) -> Segment:
    """A segment of random keys; `blocks` are the texts its words come from."""
    draw = torch.Generator().manual_seed(seed)
    count = -(-tokens // BLOCK)
    texts = [*blocks, *[""] * count][:count]
    keys = {
        stream: torch.randint(-127, 128, (tokens, dim), dtype=torch.int8, generator=draw)
        for stream in ((1, 0), (3, 1))
    }
    scales = {stream: torch.rand(tokens, generator=draw).half() for stream in keys}
    starts = np.arange(0, 4 * BLOCK * count, 4 * BLOCK, dtype=np.int32)
    return Segment(tokens, starts, IndexKeys(keys, scales), postings(texts))


def same(a: Segment, b: Segment) -> bool:
    """Whether two segments hold the same, types included."""
    words = ("terms", "counts", "ptr")
    pairs = [(a.starts, b.starts)]
    pairs += [(getattr(a.postings, name), getattr(b.postings, name)) for name in words]
    return (
        a.tokens == b.tokens
        and all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in pairs)
        and a.keys.keys.keys() == b.keys.keys.keys()
        and a.keys.scales.keys() == b.keys.scales.keys()
        and all(torch.equal(b.keys.keys[s], keys) for s, keys in a.keys.keys.items())
        and all(torch.equal(b.keys.scales[s], scales) for s, scales in a.keys.scales.items())
        and all(b.keys.keys[s].dtype == keys.dtype for s, keys in a.keys.keys.items())
    )


def document(text: str, path: str = "a.txt", kind: str = "text") -> Document:
    return Document(path, text, kind)


def corpus(documents: Sequence[Document], block_characters: int = 40) -> Corpus:
    """A corpus whose blocks are equal stretches of characters, without keys."""
    entries = []
    for item in documents:
        starts = np.arange(0, max(len(item.text), 1), block_characters, dtype=np.int32)
        texts = [item.text[a : a + block_characters] for a in starts]
        empty = Segment(len(starts) * BLOCK, starts, IndexKeys({}, {}), postings(texts))
        entries.append(IndexedDocument(item, empty))
    return Corpus(entries)
