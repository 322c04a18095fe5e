"""Recall: ordinary attention heads as the shared indexer of a whole context.

Documents pass through the leader layers once and leave one small key per token and stream; a
question scores every key exactly. Keys are stored un-rotated and without the projection's bias:
it adds the same to every score of a query, and int8 has more room for what differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from longctx.indexshare.leader import Captured, LeaderPass, batches
from longctx.indexshare.profile import Profile
from longctx.kernels.block_scores import block_scores
from longctx.models.decoder import Decoder

Stream = tuple[int, int]
FLOAT16_MAX = 65504.0


@dataclass(frozen=True)
class IndexKeys:
    """One document's keys: for each stream int8 `[T, head_dim]` and float16 scales `[T]`."""

    keys: dict[Stream, Tensor]
    scales: dict[Stream, Tensor]

    @property
    def tokens(self) -> int:
        return len(next(iter(self.scales.values())))


class Recall:
    """The indexer of one model under one profile. `preamble` are its token ids."""

    def __init__(self, decoder: Decoder, profile: Profile, preamble: Sequence[int]):
        config = decoder.config
        self.decoder, self.profile = decoder, profile
        self.streams = profile.streams(config.heads, config.kv_heads)
        self._preamble = preamble
        self.sinks = len(preamble)
        self._group = config.heads // config.kv_heads
        self._question_pass: LeaderPass | None = None

    def index(
        self,
        documents: Sequence[Sequence[int]],
        on_tokens: Callable[[int], None] | None = None,
    ) -> Iterator[tuple[int, IndexKeys]]:
        """Index documents of token ids; yields `(position, keys)` as each is complete, in order.

        Empty documents yield nothing. `on_tokens` hears a batch's tokens layer by layer, so that
        progress moves several times a second.
        """
        profile, streams = self.profile, self.streams
        leader = LeaderPass(self.decoder, profile.leader, self._preamble, profile.window)
        layers = frozenset(layer for layer, _ in streams)
        parts: dict[Stream, list[tuple[Tensor, Tensor]]] = {stream: [] for stream in streams}

        def keep(captured: Captured) -> None:
            keys = captured.keys
            assert keys is not None
            bias = self.decoder.layers[captured.layer].k.bias
            for layer, kv_head in streams:
                if layer == captured.layer:
                    rows = keys[:, kv_head].float()
                    if bias is not None and self.decoder.layers[layer].k_norm is None:
                        rows = rows - bias.view(self.decoder.config.kv_heads, -1)[kv_head].float()
                    parts[layer, kv_head].append(quantise(rows))

        pending: list[tuple[int, int]] = []  # (document, tokens) in the order of the rows held
        for batch in batches(documents, profile.window):
            share = _Share(sum(len(chunk.tokens) for chunk in batch), profile.leader, on_tokens)
            leader.run(batch, keep, key_layers=layers, on_layer=share.layer_done)
            share.finish()
            for chunk in batch:
                if pending and pending[-1][0] == chunk.document:
                    pending[-1] = (chunk.document, pending[-1][1] + len(chunk.tokens))
                else:
                    pending.append((chunk.document, len(chunk.tokens)))
            done = [p for p in pending if p[1] == len(documents[p[0]])]
            pending = pending[len(done) :]
            if done:
                yield from _split(done, parts)

    def score(
        self, question: Sequence[int], documents: Sequence[IndexKeys]
    ) -> tuple[Tensor, dict[tuple[int, int], Tensor]]:
        """Score every block of the documents for a question's token ids.

        Returns the weighted score per block, float32 `[blocks]` (a sum of log-probabilities over
        blocks, the documents' blocks in order), and each head's own `[blocks]` log-softmax.
        """
        queries = self._queries(question)
        heads: dict[tuple[int, int], Tensor] = {}
        for layer, kv_head in self.streams:
            wanted = [
                h for h in self.profile.heads if self._serves(h.layer, h.head, layer, kv_head)
            ]
            rows = torch.cat([queries[layer][:, head.head] for head in wanted])
            best = torch.cat(
                [
                    block_scores(
                        rows,
                        d.keys[layer, kv_head].to(self.decoder.device, non_blocking=True),
                        d.scales[layer, kv_head].to(self.decoder.device, non_blocking=True),
                        self.profile.block,
                    )
                    for d in documents
                ],
                dim=1,
            )
            shares = best.log_softmax(dim=-1).view(len(wanted), -1, best.shape[1]).amax(dim=1)
            for head, share in zip(wanted, shares, strict=True):
                heads[head.layer, head.head] = share
        total = torch.stack([heads[h.layer, h.head] * h.weight for h in self.profile.heads])
        return total.sum(dim=0).cpu(), {key: value.cpu() for key, value in heads.items()}

    def _serves(self, layer: int, head: int, stream_layer: int, kv_head: int) -> bool:
        return layer == stream_layer and head // self._group == kv_head

    def _queries(self, question: Sequence[int]) -> dict[int, Tensor]:
        """Un-rotated queries `[T, heads, head_dim]` of the question in each leader layer."""
        profile = self.profile
        layers = frozenset(layer for layer, _ in self.streams)
        if self._question_pass is None:
            self._question_pass = LeaderPass(
                self.decoder, profile.leader, self._preamble, profile.window
            )
        found: dict[int, list[Tensor]] = {layer: [] for layer in layers}

        def keep(captured: Captured) -> None:
            assert captured.queries is not None
            found[captured.layer].append(captured.queries)

        for batch in batches([question], profile.window):
            self._question_pass.run(batch, keep, query_layers=layers)
        return {layer: torch.cat(rows) for layer, rows in found.items()}


class _Share:
    """Tells a batch's tokens in equal parts as its layers are done, whole tokens only."""

    def __init__(self, tokens: int, layers: int, hear: Callable[[int], None] | None):
        self._tokens, self._layers, self._hear, self._told = tokens, layers, hear, 0

    def layer_done(self, layer: int) -> None:
        self._tell(self._tokens * (layer + 1) // (self._layers + 1))

    def finish(self) -> None:
        self._tell(self._tokens)

    def _tell(self, upto: int) -> None:
        if self._hear and upto > self._told:
            self._hear(upto - self._told)
            self._told = upto


def quantise(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows `[T, d]` to int8 with one float16 scale a row: `row ~ int8 * scale`."""
    scale = (rows.abs().amax(dim=-1) / 127).clamp(1e-7, FLOAT16_MAX).to(torch.float16)
    whole = (rows / scale.float()[:, None]).round().clamp(-127, 127).to(torch.int8)
    return whole.cpu(), scale.cpu()


def _split(
    done: list[tuple[int, int]], parts: dict[Stream, list[tuple[Tensor, Tensor]]]
) -> Iterator[tuple[int, IndexKeys]]:
    """Cut the rows held in `parts` into the finished documents and keep the rest there."""
    joined = {
        stream: (torch.cat([k for k, _ in held]), torch.cat([s for _, s in held]))
        for stream, held in parts.items()
    }
    start = 0
    for document, count in done:
        rows = slice(start, start + count)
        start += count
        yield (
            document,
            IndexKeys(
                {stream: keys[rows].clone() for stream, (keys, _) in joined.items()},
                {stream: scales[rows].clone() for stream, (_, scales) in joined.items()},
            ),
        )
    for stream, (keys, scales) in joined.items():
        parts[stream][:] = [(keys[start:].clone(), scales[start:].clone())]


def block_starts(token_starts: Sequence[int], block: int) -> np.ndarray:
    """Character at which each block begins, int32 `[blocks]`, from each token's first character."""
    return np.array(token_starts[::block], dtype=np.int32)


def block_texts(text: str, starts: Sequence[int]) -> list[str]:
    """The text of each block, given the character each begins at."""
    ends = [*starts[1:], len(text)]
    return [text[a:b] for a, b in zip(starts, ends, strict=True)]
