"""Measure a trained folder: `python -m longctx.jobs.native_training.evaluate FOLDER`.

A table of the share of right answers by task (`track` by its steps), length, schedule and number of
selected tokens, next to dense attention, on sequences that training never made.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from longctx.errors import LongctxError
from longctx.jobs.native_training import tasks
from longctx.jobs.native_training.export import load, read_shape
from longctx.jobs.native_training.model import NativeModel

ITEMS = 64  # keys or words in a sequence of any length, so that only the distance grows
_HELD_OUT = 1_000_000  # added to the seed: training uses small ones


@dataclass(frozen=True)
class Score:
    """Right answers of those asked."""

    right: int
    asked: int

    @property
    def share(self) -> float:
        return self.right / self.asked if self.asked else 1.0


def held_out(task: str, length: int, count: int, seed: int = 0) -> Iterator[tasks.Sequence]:
    """`count` sequences of `ITEMS` items, fewer where they do not fit, none of them trained on."""
    room = (length - 2) // 5 if task != "copy" else (length - 3) // 2
    for number in range(count):
        rng = np.random.default_rng((_HELD_OUT + seed, number, length))
        yield tasks.make(task, length, rng, min(ITEMS, room))


@torch.inference_mode()
def score(
    model: NativeModel, task: str, length: int, count: int, sparse: bool, seed: int = 0
) -> list[Score]:
    """Accuracy over `count` sequences, each run alone, by the steps from the key to its value.

    One score for `recall` and `copy`, which have no steps; four for `track`, 0 to 3.
    """
    right = np.zeros(_kinds(task), int)
    asked = np.zeros(_kinds(task), int)
    for sequence in held_out(task, length, count, seed):
        tokens = torch.from_numpy(sequence.tokens)
        at = np.flatnonzero(sequence.answers)
        hidden = model(tokens[None], sparse=sparse).hidden[0, torch.from_numpy(at - 1)]
        said = model.lm_head(hidden).argmax(-1).numpy()
        steps = sequence.steps[at]
        asked += np.bincount(steps, minlength=len(asked))
        right += np.bincount(steps[said == sequence.tokens[at]], minlength=len(asked))
    return [Score(int(r), int(a)) for r, a in zip(right, asked, strict=True)]


def _kinds(task: str) -> int:
    return tasks.MAX_STEPS + 1 if task == "track" else 1


def columns() -> list[str]:
    """What the shares of a row are of, in order."""
    return [
        f"{task} {steps}" if _kinds(task) > 1 else task
        for task in tasks.NAMES
        for steps in range(_kinds(task))
    ]


@dataclass(frozen=True)
class Way:
    """One way to run the weights: a schedule and a number of selected tokens; dense if 0."""

    schedule: str
    topk: int

    def __str__(self) -> str:
        return f"{self.schedule} top {self.topk}" if self.topk else "dense"


def table(
    folder: Path, ways: Sequence[Way], lengths: Sequence[int], count: int, seed: int = 0
) -> Iterator[str]:
    """Lines of a Markdown table, a row a way and length, as they are measured."""
    yield f"| attention | length | {' | '.join(columns())} |"
    yield "|---|---:|" + "---:|" * len(columns())
    shape = read_shape(folder)
    for way in ways:
        model = load(folder, shape.with_schedule(way.schedule))
        model.topk = way.topk
        for length in lengths:
            shares = [
                f"{part.share:.1%}"
                for task in tasks.NAMES
                for part in score(model, task, length, count, way.topk > 0, seed)
            ]
            yield f"| {way} | {length} | {' | '.join(shares)} |"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m longctx.jobs.native_training.evaluate", description=__doc__
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 1024, 2048, 4096, 8192])
    parser.add_argument("--topk", type=int, nargs="+", help="numbers of tokens; 0 is dense")
    parser.add_argument(
        "--schedules", nargs="+", help="F and S; S may replace an F, not vice versa"
    )
    parser.add_argument("--count", type=int, default=4, help="sequences a task and length")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    try:
        shape = read_shape(options.folder)
        selected = options.topk or [0, shape.topk]
        schedules = options.schedules or [shape.schedule]
        ways = [Way(shape.schedule, 0)] if 0 in selected else []
        ways += [Way(s, k) for s in schedules for k in selected if k]
        for line in table(options.folder, ways, options.lengths, options.count, options.seed):
            print(line, flush=True)
    except LongctxError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
