"""Calibration of the second look: which heads of deeper layers tell the passage that answers.

For each question the candidates of the first look are surveyed once with every head of the upper
layers listening; then one to three heads, and the weight the first look keeps, are fitted by
cross-entropy over candidates. Depths are compared by two-fold cross-validation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from longctx.indexshare.features import Features, Head
from longctx.indexshare.fitting import fit_weights, passage_loss
from longctx.indexshare.profile import LeaderHead, Profile
from longctx.indexshare.questions import CalibrationQuestion
from longctx.indexshare.rerank import block_shares
from longctx.indexshare.select import Scores, best
from longctx.indexshare.survey import listed, survey
from longctx.models.chat import ChatTemplate
from longctx.models.decoder import Decoder
from longctx.models.tokenizer import TextTokenizer

LISTEN_FROM = 0.4  # of the layers: what stands below has been heard in the first look
DEPTHS = (0.6, 0.7, 0.8, 0.9)
MOST_HEADS = 3
SHORTLIST = 24  # best single heads, from which sets are built
CLOSE_ENOUGH = 0.05  # nats of cross-entropy a shallower depth may lose
QUESTIONS, QUICK_QUESTIONS = 120, 32
BUDGETS = (4, 8, 12)  # blocks


@dataclass(frozen=True)
class Heard:
    """`values` float32 `[questions, heads, candidates]` log-shares; `first` `[questions,
    candidates]` the first look's scores; `target` bool of that shape. Unused places hold -30."""

    heads: list[Head]
    values: Tensor
    first: Tensor
    target: Tensor
    kinds: list[str]


@dataclass(frozen=True)
class SecondLook:
    """What was chosen, its held-out recall by kind, and the held-out loss of each depth tried."""

    heads: tuple[LeaderHead, ...]
    first_weight: float
    recall: dict[str, float]
    depths: dict[int, float]


def listen(
    decoder: Decoder,
    tokenizer: TextTokenizer,
    features: Features,
    questions: Sequence[CalibrationQuestion],
    scores: Sequence[Scores],
    profile: Profile,
    *,
    quick: bool = False,
    say: Callable[[str, int, int], None] | None = None,
) -> Heard:
    """Survey the candidates of evenly chosen questions whose passage is among them.

    `scores[i]` are the fused first-look scores `[blocks]` of question i.
    """
    layers = decoder.config.layers
    span = range(round(LISTEN_FROM * layers), max(2, round(DEPTHS[-1] * layers)) + 1)
    heads = [(layer, head) for layer in span for head in range(decoder.config.heads)]
    template = ChatTemplate.for_tokenizer(tokenizer)

    def read(document: int, block: int) -> tuple[str, str]:
        return f"document-{document:02d}.txt", features.texts[document][block]

    asked = _spread([q.kind for q in questions], QUICK_QUESTIONS if quick else QUESTIONS)
    values, first, target, kinds = [], [], [], []
    for done, number in enumerate(asked):
        if say:
            say("looking again", done, len(asked))
        chosen = best(scores[number], profile.candidates)
        right = [block in features.blocks[number] for block in chosen]
        if not any(right):
            continue
        shown = listed(chosen, features.first, read)
        made = survey(tokenizer, template, questions[number].question, shown)
        spare = profile.candidates - len(chosen)
        shares = block_shares(decoder, made, heads)
        values.append(torch.nn.functional.pad(shares, (0, spare), value=-30.0))
        row = torch.from_numpy(scores[number][chosen])
        first.append(torch.nn.functional.pad(row, (0, spare), value=-30.0))
        target.append(torch.tensor(right + [False] * spare))
        kinds.append(questions[number].kind)
    return Heard(heads, torch.stack(values), torch.stack(first), torch.stack(target), kinds)


def choose_heads(heard: Heard, layers: int) -> SecondLook:
    """The shallowest depth whose held-out loss is near the best, fitted on all questions."""
    depths = sorted({max(1, round(share * layers)) for share in DEPTHS})
    tried = {depth: _cross_validate(heard, _allowed(heard, depth)) for depth in depths}
    best = min(loss for loss, _ in tried.values())
    depth = next(d for d in depths if tried[d][0] <= best + CLOSE_ENOUGH)
    everything = np.ones(len(heard.kinds), dtype=bool)
    found = _greedy(heard, _allowed(heard, depth), everything)
    weights = _fit(heard, found, everything, steps=300)[0]
    kept = tuple(
        LeaderHead(*heard.heads[number], round(float(weight), 3))
        for number, weight in zip(found, weights[1:], strict=True)
        if weight > 0.02
    )
    losses = {depth: round(loss, 3) for depth, (loss, _) in tried.items()}
    return SecondLook(kept, round(float(weights[0]), 3), tried[depth][1], losses)


def _allowed(heard: Heard, depth: int) -> list[int]:
    return [number for number, (layer, _) in enumerate(heard.heads) if layer <= depth]


def _cross_validate(heard: Heard, allowed: Sequence[int]) -> tuple[float, dict[str, float]]:
    """Mean held-out loss and recall by kind; every question is held out once."""
    fold = _halves(heard.kinds)
    losses, recalls = [], []
    for part in (fold, ~fold):
        found = _greedy(heard, allowed, part)
        weights = _fit(heard, found, part, steps=300)[0]
        losses.append(passage_loss(torch.from_numpy(weights), *_rows(heard, found, ~part)))
        recalls.append(_recall(heard, found, weights, ~part))
    kinds = sorted(set(heard.kinds))
    recall = {k: round(sum(r.get(k, 0.0) for r in recalls) / len(recalls), 3) for k in kinds}
    return sum(float(loss) for loss in losses) / len(losses), recall


def _spread(kinds: Sequence[str], most: int) -> list[int]:
    """At most `most` positions, evenly over kinds and evenly within each."""
    names = sorted(set(kinds))
    chosen: list[int] = []
    for name in names:
        places = [i for i, kind in enumerate(kinds) if kind == name]
        step = max(1.0, len(places) * len(names) / most)
        chosen += [places[int(i * step)] for i in range(int(len(places) / step))]
    return sorted(chosen)


def _halves(kinds: Sequence[str]) -> np.ndarray:
    """Every second question of each kind, bool `[questions]`."""
    return np.array([kinds[:i].count(kind) % 2 == 0 for i, kind in enumerate(kinds)])


def _greedy(heard: Heard, allowed: Sequence[int], fold: np.ndarray) -> list[int]:
    """Add the head that lowers the loss most, until it no longer falls by one in a hundred."""
    single = {number: _fit(heard, [number], fold, steps=40)[1] for number in allowed}
    short = sorted(allowed, key=lambda number: single[number])[:SHORTLIST]
    chosen, loss = [short[0]], single[short[0]]
    while len(chosen) < MOST_HEADS:
        trials = {
            number: _fit(heard, [*chosen, number], fold, steps=60)[1]
            for number in short
            if number not in chosen
        }
        if not trials or min(trials.values()) > 0.99 * loss:
            break
        chosen.append(min(trials, key=lambda number: trials[number]))
        loss = trials[chosen[-1]]
    return chosen


def _fit(
    heard: Heard, heads: Sequence[int], where: np.ndarray, steps: int
) -> tuple[np.ndarray, float]:
    """Weights `[1 + heads]`, the first look's first, and the loss they reach."""
    rows = _rows(heard, heads, where)
    return fit_weights(
        lambda weights: passage_loss(weights, *rows),
        1 + len(heads),
        start=0.5,
        rate=0.05,
        steps=steps,
    )


def _rows(
    heard: Heard, heads: Sequence[int], where: np.ndarray
) -> tuple[Tensor, Tensor, list[str]]:
    """The first look and some heads `[n, 1 + heads, candidates]`, targets and kinds."""
    rows = torch.from_numpy(where)
    inputs = torch.cat((heard.first[rows, None], heard.values[rows][:, list(heads)]), dim=1)
    kinds = [kind for kind, inside in zip(heard.kinds, where, strict=True) if inside]
    return inputs, heard.target[rows], kinds


def _recall(
    heard: Heard, heads: Sequence[int], weights: np.ndarray, where: np.ndarray
) -> dict[str, float]:
    """Share of questions by kind with their passage among the best few, averaged over BUDGETS."""
    inputs, target, kinds = _rows(heard, heads, where)
    scores = torch.einsum("h,nhb->nb", torch.from_numpy(weights), inputs)
    ranked = target.gather(1, scores.argsort(dim=-1, descending=True, stable=True))
    hits: dict[str, list[float]] = {}
    for kind, row in zip(kinds, ranked, strict=True):
        found = sum(bool(row[:budget].any()) for budget in BUDGETS) / len(BUDGETS)
        hits.setdefault(kind, []).append(found)
    return {kind: round(sum(v) / len(v), 3) for kind, v in sorted(hits.items())}
