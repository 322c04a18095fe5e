"""One training run: the model, its optimiser, where it stands, and its state on disk.

A run is determined by its sizes, recipe and seed, whether or not it was interrupted. It prints
nothing and chooses no folders.
"""

from __future__ import annotations

import io
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from longctx.atomic import write_file
from longctx.errors import ModelError
from longctx.jobs.native_training import tasks
from longctx.jobs.native_training.model import NativeModel
from longctx.jobs.native_training.recipe import DENSE, DISTIL, RECENT, SPARSE, Recipe, Stage
from longctx.jobs.native_training.shape import Shape

_FORMAT = 1
_INDEXER = ".indexer."


@dataclass
class Progress:
    """Where a run stands: the stage, the step in it, all steps, recent answers by task."""

    stage: int = 0
    stage_step: int = 0
    step: int = 0
    seconds: float = 0.0  # of processor time, over all parts of an interrupted run
    recent: list[list[float]] = field(default_factory=list)  # a row a step, a share a task

    def accuracy(self) -> list[float]:
        """Share of right answers of each task over the last `RECENT` steps."""
        return [sum(column) / len(column) for column in zip(*self.recent, strict=True)]


@dataclass(frozen=True)
class Losses:
    """Of one batch: cross entropy of the answers, and the indexers' divergence (None if dense)."""

    answers: float
    index: float | None


class Trainer:
    """Teaches a `NativeModel` by a recipe, one `step` at a time."""

    def __init__(self, shape: Shape, recipe: Recipe, seed: int, device: str = "cpu"):
        torch.manual_seed(seed)
        self.shape, self.recipe, self.seed, self.device = shape, recipe, seed, device
        self.model = NativeModel(shape).to(device).train()
        self.optimiser = torch.optim.AdamW(
            _groups(self.model, recipe.weight_decay), lr=0.0, betas=recipe.betas, fused=True
        )
        self.progress = Progress()

    @property
    def stage(self) -> Stage | None:
        """The stage to go on with, or None when everything is done."""
        stages, at = self.recipe.stages, self.progress.stage
        return stages[at] if at < len(stages) else None

    def step(self, stage: Stage) -> Losses:
        """Teach one batch."""
        progress = self.progress
        made, marks, names = tasks.batch(
            stage.length, stage.size, self.seed, progress.step, stage.turn, stage.most_steps
        )
        tokens = torch.from_numpy(made).to(self.device)
        answers = torch.from_numpy(marks[:, 1:] >= 0).to(self.device)
        for group in self.optimiser.param_groups:
            group["lr"] = rate(self.recipe, stage, progress.stage_step)
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(stage.phase != DISTIL or _INDEXER in name)
        self.optimiser.zero_grad(set_to_none=True)
        positions = torch.from_numpy(tasks.spaced(made, stage.reach, self.seed, progress.step))
        out = self.model(
            tokens,
            sparse=stage.phase == SPARSE,
            distil=stage.phase != DENSE,
            positions=positions.to(self.device),
        )
        logits = self.model.lm_head(out.hidden[:, :-1][answers]).float()
        wanted = tokens[:, 1:][answers]
        loss = F.cross_entropy(logits, wanted)
        (loss if out.index_loss is None else loss + out.index_loss).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip_norm)
        self.optimiser.step()
        self.model.balance(0.0 if stage.phase == DISTIL else self.recipe.balance_rate)
        right = np.zeros(answers.shape, bool)
        right[answers.cpu().numpy()] = (logits.argmax(-1) == wanted).cpu().numpy()
        progress.recent = [
            *progress.recent[1 - RECENT :],
            by_task(right, marks[:, 1:] >= 0, names),
        ]
        progress.step += 1
        progress.stage_step += 1
        return Losses(loss.item(), None if out.index_loss is None else out.index_loss.item())

    def advance(self, stage: Stage) -> bool:
        """Go on to the next stage where this one has taught enough; says whether it did."""
        progress = self.progress
        learned = len(progress.recent) == RECENT and min(progress.accuracy()) >= stage.enough
        if not learned and progress.stage_step < stage.steps:
            return False
        progress.stage, progress.stage_step, progress.recent = progress.stage + 1, 0, []
        return True

    def save(self, path: Path) -> None:
        """Write the whole state, at once or not at all."""
        state = {
            "format": _FORMAT,
            "run": self._run(),
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "progress": asdict(self.progress),
        }
        content = io.BytesIO()
        torch.save(state, content)
        write_file(path, content.getvalue())

    def resume(self, path: Path) -> None:
        """Go on from a saved state. Raises `ModelError` when it is of another run or damaged."""
        state = self._read(path)
        if state["run"] != self._run():
            raise ModelError(f"{path}: of a run with other sizes, recipe or seed; choose its --out")
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.progress = Progress(**state["progress"])

    def begin_after_dense(self, path: Path) -> None:
        """Take another run's model as it was when its dense stages ended; indexers start fresh.

        The two runs may differ in their schedule: the same dense model under each of them is what
        a comparison of schedules starts from.
        """
        state = self._read(path)
        own = self.model.state_dict()
        taught = {name: value for name, value in state["model"].items() if _INDEXER not in name}
        try:
            self.model.load_state_dict({**own, **taught})
        except RuntimeError:
            raise ModelError(f"{path}: of a model with other sizes") from None
        phases = [stage.phase for stage in self.recipe.stages]
        first = next((i for i, phase in enumerate(phases) if phase != DENSE), len(phases))
        self.progress = Progress(stage=first, step=state["progress"]["step"])

    def _read(self, path: Path) -> dict[str, Any]:
        try:
            state = torch.load(path, map_location=self.device, weights_only=True)
        except FileNotFoundError:
            raise ModelError(f"{path}: no such checkpoint; begin without --resume") from None
        except Exception as error:  # a damaged file raises whatever the unpickler met
            raise ModelError(f"{path}: not a readable checkpoint ({error})") from None
        if not isinstance(state, dict) or state.get("format") != _FORMAT:
            raise ModelError(f"{path}: not a checkpoint of this version")
        return state

    def _run(self) -> str:
        return repr((self.shape, self.recipe, self.seed))


def rate(recipe: Recipe, stage: Stage, at: int) -> float:
    """The learning rate of step `at` of a stage: it warms up from zero in each."""
    warm = min(1.0, (at + 1) / max(min(recipe.warmup_steps, stage.steps // 4), 1))
    return stage.rate * warm * (1.0 - 0.9 * at / stage.steps if stage.decay else 1.0)


def by_task(right: np.ndarray, answers: np.ndarray, names: tuple[str, ...]) -> list[float]:
    """Share of right answers of each task, in the order of `tasks.NAMES`; 1 where none is asked.

    `right` and `answers` are bool [B, T]; `names` says each row's task.
    """
    of = np.array(names)
    shares = []
    for task in tasks.NAMES:
        asked = answers[of == task].sum()
        shares.append(float(right[of == task].sum() / asked) if asked else 1.0)
    return shares


def _groups(model: NativeModel, decay: float) -> list[dict[str, Any]]:
    """Matrices are decayed; norms, biases and the embedding are not."""
    decayed, free = [], []
    for name, parameter in model.named_parameters():
        whole = parameter.dim() < 2 or "embed_tokens" in name
        (free if whole else decayed).append(parameter)
    return [
        {"params": decayed, "weight_decay": decay},
        {"params": free, "weight_decay": 0.0},
    ]
