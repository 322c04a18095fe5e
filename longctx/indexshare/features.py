"""What calibration fits on: for every question, every head's log-softmax over all blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from longctx.indexshare.leader import Captured, LeaderPass, batches
from longctx.indexshare.lexical import bm25, postings, question_terms
from longctx.indexshare.profile import Profile
from longctx.indexshare.questions import CalibrationQuestion, Haystack, hide
from longctx.indexshare.recall import block_texts
from longctx.indexshare.select import Scores
from longctx.kernels.block_scores import block_scores
from longctx.models.decoder import Decoder
from longctx.models.tokenizer import TextTokenizer

FILLER_CHARACTERS, QUICK_FILLER_CHARACTERS = 120_000, 40_000

Head = tuple[int, int]
Say = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Features:
    """Measured once, fitted many times.

    `values` float16 `[questions, heads, blocks]` in the order of `heads`; `target` bool
    `[questions, blocks]`; `blocks[i]` the blocks of question i's passage; `lexical` BM25 scores;
    `texts[d]` the text of each block of document d.
    """

    heads: list[Head]
    values: Tensor
    target: Tensor
    blocks: list[set[int]]
    kinds: list[str]
    lexical: list[Scores]
    first: list[int]
    tokens: int
    texts: list[list[str]]

    def of(self, heads: Sequence[Head]) -> Tensor:
        """The values of some heads, `[questions, len(heads), blocks]`."""
        return self.values[:, [self.heads.index(head) for head in heads]]

    def combine(self, heads: Sequence[Head], weights: np.ndarray) -> list[Scores]:
        """Weighted scores of every question, float32 `[blocks]` each."""
        total = torch.einsum("h,nhb->nb", torch.from_numpy(weights), self.of(heads).float())
        return list(total.numpy())


def measure(
    decoder: Decoder,
    tokenizer: TextTokenizer,
    base: Profile,
    questions: Sequence[CalibrationQuestion],
    last_layer: int,
    *,
    quick: bool,
    seed: int,
    say: Say | None = None,
) -> Features:
    """Index a haystack with every head of layers 1..last_layer and ask it every question.

    Layer 0 is left out: its keys know a token and nothing around it, which words do better.
    """
    size = QUICK_FILLER_CHARACTERS if quick else FILLER_CHARACTERS
    haystack = hide(questions, size, seed)
    encoded = [tokenizer.encode_text(text) for text in haystack.documents]
    first = [0]
    for ids, _ in encoded:
        first.append(first[-1] + -(-len(ids) // base.block))
    preamble = tokenizer.encode_text(base.preamble)[0]
    leader = LeaderPass(decoder, last_layer, preamble, base.window)
    keys = _all_keys(decoder, leader, [ids for ids, _ in encoded], last_layer, base.window, say)
    values, lexical = [], []
    texts = [
        block_texts(text, [start for start, _ in offsets[:: base.block]])
        for text, (_, offsets) in zip(haystack.documents, encoded, strict=True)
    ]
    words = [postings(blocks) for blocks in texts]
    for number, item in enumerate(questions):
        ids = tokenizer.encode_text(base.question_format.format(question=item.question))[0]
        values.append(_scores(decoder, leader, ids, keys, last_layer, base))
        lexical.append(bm25(question_terms(item.question), words))
        if say:
            say("asking", number + 1, len(questions))
    blocks = _passage_blocks(haystack, encoded, first, base.block)
    target = torch.zeros(len(questions), first[-1], dtype=torch.bool)
    for number, found in enumerate(blocks):
        target[number, sorted(found)] = True
    heads = [(i, h) for i in range(1, last_layer + 1) for h in range(decoder.config.heads)]
    return Features(
        heads,
        torch.stack(values),
        target,
        blocks,
        [item.kind for item in questions],
        lexical,
        first,
        sum(len(ids) for ids, _ in encoded),
        texts,
    )


def _all_keys(
    decoder: Decoder,
    leader: LeaderPass,
    documents: Sequence[Sequence[int]],
    last_layer: int,
    window: int,
    say: Say | None,
) -> list[dict[int, Tensor]]:
    """Un-rotated keys `[kv_heads, T, d]` of every layer, per document, the bias taken off."""
    held: list[dict[int, list[Tensor]]] = [{} for _ in documents]

    def keep(captured: Captured) -> None:
        assert captured.keys is not None
        rows, layer = captured.keys, decoder.layers[captured.layer]
        if layer.k.bias is not None and layer.k_norm is None:
            rows = rows - layer.k.bias.view(rows.shape[1:])
        at = 0
        for chunk in captured.chunks:
            part = rows[at : at + len(chunk.tokens)].transpose(0, 1).contiguous()
            held[chunk.document].setdefault(captured.layer, []).append(part)
            at += len(chunk.tokens)

    total, done = sum(len(ids) for ids in documents), 0
    layers = frozenset(range(1, last_layer + 1))
    for batch in batches(documents, window):
        leader.run(batch, keep, key_layers=layers)
        done += sum(len(chunk.tokens) for chunk in batch)
        if say:
            say("indexing", done, total)
    return [{i: torch.cat(parts, dim=1) for i, parts in layers.items()} for layers in held]


@torch.inference_mode()
def _scores(
    decoder: Decoder,
    leader: LeaderPass,
    question: Sequence[int],
    documents: Sequence[dict[int, Tensor]],
    last_layer: int,
    base: Profile,
) -> Tensor:
    queries: dict[int, list[Tensor]] = {}

    def keep(captured: Captured) -> None:
        assert captured.queries is not None
        queries.setdefault(captured.layer, []).append(captured.queries)

    for batch in batches([question], base.window):
        leader.run(batch, keep, query_layers=frozenset(range(1, last_layer + 1)))
    kv_heads = decoder.config.kv_heads
    group = decoder.config.heads // kv_heads
    found = []
    for layer in range(1, last_layer + 1):
        rows = torch.cat(queries[layer]).unflatten(1, (kv_heads, group))  # [T, kv, group, d]
        for kv_head in range(kv_heads):
            flat = rows[:, kv_head].transpose(0, 1).flatten(0, 1)
            best = torch.cat(
                [block_scores(flat, d[layer][kv_head], None, base.block) for d in documents], dim=1
            )
            shares = best.log_softmax(dim=-1).unflatten(0, (group, -1)).amax(dim=1)
            found.append(shares.to(torch.float16).cpu())
    return torch.cat(found)


def _passage_blocks(
    haystack: Haystack, encoded: Sequence, first: Sequence[int], block: int
) -> list[set[int]]:
    found = []
    for document, start, end in haystack.spans:
        offsets = encoded[document][1]
        found.append(
            {
                first[document] + i // block
                for i, (a, b) in enumerate(offsets)
                if a < end and b > start
            }
        )
    return found
