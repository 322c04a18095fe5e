"""Calibration: choose which heads index for a model, how deep, and with what weights.

Measured, not assumed: questions with known passages are hidden in other text, every head up to a
depth scores every block, and a sparse non-negative weighting is fitted by cross-entropy on half of
the questions and tested on the other half. Few parameters, so that other texts keep the gain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from longctx.indexshare.features import Features, measure
from longctx.indexshare.fitting import fit_weights, passage_loss
from longctx.indexshare.profile import LeaderHead, Profile
from longctx.indexshare.questions import CalibrationQuestion
from longctx.indexshare.second_look import choose_heads, listen
from longctx.indexshare.select import Scores, choose, fuse
from longctx.models.decoder import Decoder
from longctx.models.tokenizer import TextTokenizer

DEPTH_SHARES = (0.25, 0.33, 0.4, 0.5, 0.6)  # of the layers: what a leader may cost
STREAMS = 4  # int8 keys kept a token: 4 x 128 bytes on a 1.5B model, 0.53 GB a million tokens
L1 = 0.02
MIN_WEIGHT = 0.05
CLOSE_ENOUGH = 0.02  # a shallower leader is taken if its recall is this close to the best
BUDGETS = (4, 8, 16)  # blocks read: small ones tell settings apart where large ones saturate
LEXICAL_GRID = (0.1, 0.2, 0.3, 0.4, 0.5)
QUICK_QUESTIONS = 120

PREAMBLE = (
    "The following is an excerpt from a collection of documents. Read it carefully; questions "
    "about its contents will follow.\n\n"
)


@dataclass(frozen=True)
class DepthRow:
    """One leader depth: its streams and held-out recall by kind, attention alone and fused."""

    depth: int
    cost: float
    streams: tuple[tuple[int, int], ...]
    attention: dict[str, float]
    fused: dict[str, float]
    lexical_weight: float

    @property
    def score(self) -> float:
        both = [*self.attention.values(), *self.fused.values()]
        return sum(both) / len(both)


@dataclass(frozen=True)
class Calibration:
    """What was measured, and the profile it leads to."""

    profile: Profile
    table: list[DepthRow]
    lexical: dict[str, float]


def calibrate(
    name: str,
    decoder: Decoder,
    tokenizer: TextTokenizer,
    questions: Sequence[CalibrationQuestion],
    *,
    quick: bool = False,
    seed: int = 0,
    on_progress: Callable[[str, int, int], None] | None = None,
) -> Calibration:
    """Measure a model and make its profile; `on_progress(stage, done, total)` hears the work.

    `quick` takes fewer questions and depths: minutes become a minute or two.
    """
    base = Profile(model=name, heads=(LeaderHead(1, 0, 1.0),), preamble=PREAMBLE)
    layers = decoder.config.layers
    depths = sorted({max(1, round(layers * share)) for share in DEPTH_SHARES})
    if quick:
        questions = questions[:: max(1, len(questions) // QUICK_QUESTIONS)]
        depths = depths[1:4:2]
    features = measure(
        decoder, tokenizer, base, questions, depths[-1], quick=quick, seed=seed, say=on_progress
    )
    fold = np.arange(len(questions)) % 2 == 0
    rows = []
    for number, depth in enumerate(depths):
        rows.append(_depth_row(decoder, features, base, depth, fold))
        if on_progress:
            on_progress("fitting", number + 1, len(depths))
    best = max(row.score for row in rows)
    chosen = next(row for row in rows if row.score >= best - CLOSE_ENOUGH)
    heads = [h for h in features.heads if _stream(decoder, h) in chosen.streams]
    weights = fit(features, heads, np.ones(len(questions), dtype=bool))
    kept = tuple(
        LeaderHead(layer, head, round(float(w), 3))
        for (layer, head), w in zip(heads, weights, strict=True)
        if w > MIN_WEIGHT
    )
    lexical = _recall(features, features.lexical, base, np.ones(len(questions), dtype=bool))
    final = features.combine(heads, weights)
    fused = [
        fuse(a, w, chosen.lexical_weight, features.first)
        for a, w in zip(final, features.lexical, strict=True)
    ]
    heard = listen(
        decoder, tokenizer, features, questions, fused, base, quick=quick, say=on_progress
    )
    look = choose_heads(heard, layers)
    profile = replace(
        base,
        heads=kept,
        lexical_weight=chosen.lexical_weight,
        rerank_heads=look.heads,
        first_weight=look.first_weight,
        measured={
            "questions": len(questions),
            "blocks_read": list(BUDGETS),
            "context_tokens": features.tokens,
            "held_out_attention": chosen.attention,
            "held_out_fused": chosen.fused,
            "lexical_alone": lexical,
            "second_look": look.recall,
            "second_look_by_depth": look.depths,
        },
    )
    return Calibration(profile, rows, lexical)


def _depth_row(
    decoder: Decoder, features: Features, base: Profile, depth: int, fold: np.ndarray
) -> DepthRow:
    """Pick streams greedily on one half of the questions, measure on the other."""
    allowed = sorted({_stream(decoder, h) for h in features.heads if h[0] <= depth})
    streams: list[tuple[int, int]] = []
    while len(streams) < STREAMS:
        trials = {}
        for stream in allowed:
            if stream not in streams:
                heads = [h for h in features.heads if _stream(decoder, h) in (*streams, stream)]
                trials[stream] = fit_loss(features, heads, fold)
        streams.append(min(trials, key=lambda s: trials[s]))
        if len(streams) == len(allowed):
            break
    heads = [h for h in features.heads if _stream(decoder, h) in streams]
    attention = features.combine(heads, fit(features, heads, fold))
    held_out = ~fold
    fused: dict[float, dict[str, float]] = {}
    for weight in LEXICAL_GRID:
        scores = [
            fuse(a, w, weight, features.first)
            for a, w in zip(attention, features.lexical, strict=True)
        ]
        fused[weight] = _recall(features, scores, base, held_out)
    lexical_weight = max(fused, key=lambda w: sum(fused[w].values()))
    actual = max(layer for layer, _ in streams)
    return DepthRow(
        depth=actual,
        cost=actual / decoder.config.layers,
        streams=tuple(sorted(streams)),
        attention=_recall(features, attention, base, held_out),
        fused=fused[lexical_weight],
        lexical_weight=lexical_weight,
    )


def _stream(decoder: Decoder, head: tuple[int, int]) -> tuple[int, int]:
    return head[0], head[1] // (decoder.config.heads // decoder.config.kv_heads)


def fit(features: Features, heads: Sequence[tuple[int, int]], where: np.ndarray) -> np.ndarray:
    """Non-negative weights `[heads]` by cross-entropy over blocks with an L1 penalty."""
    return _fit(features, heads, where, steps=200)[0]


def fit_loss(features: Features, heads: Sequence[tuple[int, int]], where: np.ndarray) -> float:
    """The loss a short fit reaches: enough to rank candidates."""
    return _fit(features, heads, where, steps=50)[1]


def _fit(
    features: Features, heads: Sequence[tuple[int, int]], where: np.ndarray, steps: int
) -> tuple[np.ndarray, float]:
    rows = torch.from_numpy(where)
    inputs, target = features.of(heads)[rows].float(), features.target[rows]
    kinds = [kind for kind, inside in zip(features.kinds, where, strict=True) if inside]

    def loss(weights: Tensor) -> Tensor:
        return passage_loss(weights, inputs, target, kinds) + L1 * weights.sum()

    return fit_weights(loss, len(heads), start=0.1, rate=0.06, steps=steps)


def _recall(
    features: Features, scores: Sequence[Scores], base: Profile, where: np.ndarray
) -> dict[str, float]:
    """Share of questions by kind whose passage would be read, averaged over `BUDGETS`."""
    hits: dict[str, list[bool]] = {}
    for number in np.flatnonzero(where).tolist():
        for budget in BUDGETS:
            runs = choose(scores[number], features.first, budget, base.neighbours)
            read = {
                features.first[run.document] + block
                for run in runs
                for block in range(run.first, run.last + 1)
            }
            found = bool(read & features.blocks[number])
            hits.setdefault(features.kinds[number], []).append(found)
    return {kind: round(sum(found) / len(found), 3) for kind, found in sorted(hits.items())}
