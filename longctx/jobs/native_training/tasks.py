"""Sequences whose answers follow from what stands before them, over a vocabulary of 512 words.

Three tasks, each spread through words that mean nothing: `recall` (a key has a value), `track` (a
key has the value of another key, up to three steps away) and `copy` (repeat a passage). A sequence
depends on its seed and its sizes only. Nothing here knows a model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from longctx.errors import UsageError

NAMES = ("recall", "track", "copy")
UNKNOWN, END, RECALL, TRACK, COPY, ASK, EQUALS, BAR = range(8)
NOISE = range(8, 64)  # words between the statements
KEYS = range(64, 288)
VALUES = range(288, 512)
VOCABULARY = 512
MAX_STEPS = 3  # from a tracked key to its value
MAX_PASSAGE = 320  # distinct words of a passage to copy
JUMPS = 4

MARKERS = {"recall": RECALL, "track": TRACK, "copy": COPY}


@dataclass(frozen=True)
class Sequence:
    """`tokens` int64 [length]; `steps` int8 [length] is -1 except at answers.

    An answer is a token that follows from the tokens before it; its `steps` counts the keys between
    it and the question: 0 for a direct value or a copied word.
    """

    task: str
    tokens: np.ndarray
    steps: np.ndarray

    @property
    def answers(self) -> np.ndarray:
        """Bool [length], true at the tokens to be predicted."""
        return self.steps >= 0


def words() -> list[str]:
    """The word of each id: `words()[288]` is `v0`."""
    named = ["<unk>", "<end>", "recall", "track", "copy", "?", "=", "|"]
    for letter, ids in (("w", NOISE), ("k", KEYS), ("v", VALUES)):
        named += [f"{letter}{number}" for number in range(len(ids))]
    return named


def make(
    task: str,
    length: int,
    rng: np.random.Generator,
    items: int | None = None,
    most_steps: int = MAX_STEPS,
) -> Sequence:
    """One sequence of exactly `length` tokens, at least 16.

    `items` is the number of keys, or of words to copy; without it, it is drawn between a few and as
    many as fit. Tracked keys are up to `most_steps` from their values. Raises `UsageError` when the
    task is unknown or the items do not fit.
    """
    if task not in MARKERS:
        raise UsageError(f"no task {task!r}; there are {', '.join(NAMES)}")
    room = (length - 2) // 5 if task != "copy" else (length - 3) // 2
    most = min(room, len(KEYS) if task != "copy" else MAX_PASSAGE)
    if most < 2 or (items is not None and not 1 <= items <= most):
        raise UsageError(f"{length} tokens of {task} hold 1 to {max(most, 0)} items, not {items}")
    count = items if items is not None else int(rng.integers(max(most // 4, 2), most + 1))
    if task == "copy":
        return _copy(length, count, rng)
    return _ask(task, length, count, rng, 0 if task == "recall" else most_steps)


def _ask(task: str, length: int, count: int, rng: np.random.Generator, most_steps: int) -> Sequence:
    """`count` statements `key = x` in noise, then every key once, each followed by its value."""
    keys = rng.permutation(KEYS)[:count]
    right, values, steps = _assign(keys, rng, most_steps)
    statements = np.stack([keys, np.full(count, EQUALS), right], axis=1)
    body = _spread(list(statements), length - 2 - 2 * count, rng)
    order = rng.permutation(count)
    asked = np.stack([keys[order], values[order]], axis=1).reshape(-1)
    tokens = np.concatenate([[MARKERS[task]], body, [ASK], asked]).astype(np.int64)
    marks = np.full(length, -1, np.int8)
    marks[length - 2 * count + 1 :: 2] = steps[order]
    return Sequence(task, tokens, marks)


def _assign(
    keys: np.ndarray, rng: np.random.Generator, most: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Per key: what stands right of its `=`, its value, and the steps to it (0 to `most`)."""
    values = rng.permutation(VALUES)[: len(keys)]
    right = values.copy()
    steps = np.zeros(len(keys), np.int8)
    wanted = rng.integers(0, most + 1, len(keys))
    for at in range(1, len(keys)):
        before = np.flatnonzero(steps[:at] == wanted[at] - 1)
        if len(before):
            source = rng.choice(before)
            right[at], values[at] = keys[source], values[source]
            steps[at] = wanted[at]
    return right, values, steps


def _copy(length: int, count: int, rng: np.random.Generator) -> Sequence:
    """`| passage` somewhere in noise, then `| passage` again at the very end."""
    passage = rng.permutation(np.arange(KEYS.start, VALUES.stop))[:count]
    marked = np.concatenate([[BAR], passage])
    body = _spread([marked], length - 2 - count, rng)
    tokens = np.concatenate([[COPY], body, marked]).astype(np.int64)
    marks = np.full(length, -1, np.int8)
    marks[length - count :] = 0
    return Sequence("copy", tokens, marks)


def _spread(pieces: list[np.ndarray], length: int, rng: np.random.Generator) -> np.ndarray:
    """The pieces in order with noise before, between and after them, `length` tokens in all."""
    free = length - sum(len(piece) for piece in pieces)
    noise = rng.integers(NOISE.start, NOISE.stop, free)
    cuts = np.sort(rng.integers(0, free + 1, len(pieces)))
    parts: list[np.ndarray] = []
    for stretch, piece in zip(np.split(noise, cuts), [*pieces, np.empty(0, int)], strict=True):
        parts += [stretch, piece]
    return np.concatenate(parts)


def batch(
    length: int,
    size: int,
    seed: int,
    step: int,
    turn: tuple[str, ...] = NAMES,
    most_steps: int = MAX_STEPS,
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """The training batch of one step: tokens int64 [size, length], steps int8, each row's task.

    The tasks of `turn` take turns over the rows.
    """
    rng = np.random.default_rng((seed, step, length))
    names = tuple(turn[(step + row) % len(turn)] for row in range(size))
    made = [make(name, length, rng, most_steps=most_steps) for name in names]
    tokens = np.stack([sequence.tokens for sequence in made])
    return tokens, np.stack([sequence.steps for sequence in made]), names


def spaced(tokens: np.ndarray, reach: int, seed: int, step: int) -> np.ndarray:
    """Positions int64 [size, length] of a batch, ever higher, to at most `reach` times the length.

    A row jumps ahead at up to `JUMPS` of its noise words, so a model meets the distances of longer
    texts at the cost of short ones; statements and passages stay together. `reach` 1 jumps nowhere.
    """
    rng = np.random.default_rng((seed, step, reach))
    ahead = np.ones(tokens.shape, np.int64)
    for row, forward in zip(tokens, ahead, strict=True):
        noise = np.flatnonzero((row >= NOISE.start) & (row < NOISE.stop))
        if len(noise):
            extra = rng.integers(0, (reach - 1) * len(row) + 1)
            shares = rng.dirichlet(np.ones(JUMPS)) * extra
            np.add.at(forward, rng.choice(noise, JUMPS), shares.astype(np.int64))
    ahead[:, 0] = 0
    return ahead.cumsum(1)
