"""Train the small model: `python -m longctx.jobs.native_training.train --out DIR --seed 0`.

Every two minutes and at the end of a stage the whole state goes to DIR at once; after any kind of
interruption `--resume` goes on from there, to the same weights. At the end DIR/export is a model
folder.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from longctx.errors import LongctxError, UsageError
from longctx.jobs.native_training import tasks
from longctx.jobs.native_training.export import export
from longctx.jobs.native_training.recipe import DEFAULT, DENSE
from longctx.jobs.native_training.shape import Shape
from longctx.jobs.native_training.trainer import Losses, Trainer

CHECKPOINT = "checkpoint.pt"
AFTER_DENSE = "dense.pt"
EXPORT = "export"
_SAVE_SECONDS = 120.0
_REPORT_STEPS = 50


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m longctx.jobs.native_training.train", description=__doc__
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of this run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="go on from the last saved state")
    parser.add_argument("--schedule", default=Shape().schedule, help="F and S, a letter a layer")
    parser.add_argument(
        "--after-dense", type=Path, metavar="RUN", help="begin where RUN's dense stages ended"
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    try:
        run(options, lambda line: print(line, flush=True))
    except LongctxError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def run(options: argparse.Namespace, say: Callable[[str], None]) -> None:
    """Train as the options say and export the result."""
    folder: Path = options.out
    folder.mkdir(parents=True, exist_ok=True)
    shape = Shape().with_schedule(options.schedule)
    trainer = Trainer(shape, DEFAULT, options.seed, options.device)
    if options.resume:
        trainer.resume(folder / CHECKPOINT)
    elif (folder / CHECKPOINT).exists():
        raise UsageError(f"{folder} holds a run already: go on with --resume or choose another")
    elif options.after_dense:
        trainer.begin_after_dense(options.after_dense / AFTER_DENSE)
    train(trainer, folder, say)
    export(trainer.model, folder / EXPORT, notes(trainer))
    say(f"exported to {folder / EXPORT} after {trainer.progress.seconds / 60:.0f} minutes")


def train(trainer: Trainer, folder: Path, say: Callable[[str], None]) -> None:
    """Carry out the recipe from where the trainer stands, saving and reporting on the way."""
    saved = time.monotonic()
    while (stage := trainer.stage) is not None:
        begun = time.process_time()
        losses = trainer.step(stage)
        trainer.progress.seconds += time.process_time() - begun
        report = line(trainer, losses)
        ended = trainer.advance(stage)
        if ended or trainer.progress.stage_step % _REPORT_STEPS == 0:
            say(report)
        if ended and stage.phase == DENSE:
            trainer.save(folder / AFTER_DENSE)
        if ended or time.monotonic() - saved > _SAVE_SECONDS:
            trainer.save(folder / CHECKPOINT)
            saved = time.monotonic()


def line(trainer: Trainer, losses: Losses) -> str:
    """One line of progress: where the run stands, the losses, the recent accuracy by task."""
    progress, stage = trainer.progress, trainer.stage
    assert stage is not None
    index = "" if losses.index is None else f"  index {losses.index:.3f}"
    shares = zip(tasks.NAMES, progress.accuracy(), strict=True)
    return (
        f"{stage.phase} {stage.length} step {progress.stage_step}/{stage.steps}"
        f"  {progress.seconds / 60:.1f} min  loss {losses.answers:.3f}{index}  "
        + "  ".join(f"{task} {share:.1%}" for task, share in shares)
    )


def notes(trainer: Trainer) -> str:
    """The README of an exported run: what it is and how to make it again."""
    shape = trainer.shape
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    longest = max(stage.length for stage in trainer.recipe.stages)
    return (
        "# A small trained IndexShare model\n\n"
        f"{parameters / 1e6:.2f}M parameters of the `glm_moe_dsa` shape, schedule "
        f"{shape.schedule}, top {shape.topk} of at most {longest} tokens in training. It knows "
        f"three generated tasks: {', '.join(tasks.NAMES)}.\n\n"
        "Made by `python -m longctx.jobs.native_training.train --out DIR "
        f"--seed {trainer.seed} --schedule {shape.schedule}`: {trainer.progress.step} steps, "
        f"{trainer.progress.seconds / 60:.0f} minutes on {trainer.device}, "
        f"{torch.get_num_threads()} threads.\n"
    )


if __name__ == "__main__":
    raise SystemExit(main())
