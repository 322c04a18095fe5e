"""What is taught in which order: dense, then the indexers by distillation, then sparse.

Numbers only; `train` carries them out.
"""

from __future__ import annotations

from dataclasses import dataclass

from longctx.jobs.native_training.tasks import MAX_STEPS, NAMES

DENSE, DISTIL, SPARSE = "dense", "distil", "sparse"


@dataclass(frozen=True)
class Stage:
    """At most `steps` steps of `size` sequences of `length` tokens at learning rate `rate`.

    A stage ends early once every task's share of right answers over `RECENT` steps reaches
    `enough`. `decay` lowers the rate linearly to a tenth over the stage. Positions run up to
    `reach` times the length (`tasks.spaced`); the tasks of `turn` take turns, and tracked keys are
    at most `most_steps` from their values.
    """

    phase: str
    length: int
    size: int
    steps: int
    rate: float
    enough: float = 2.0
    decay: bool = False
    reach: int = 1
    turn: tuple[str, ...] = NAMES
    most_steps: int = MAX_STEPS


@dataclass(frozen=True)
class Recipe:
    """The stages and the optimiser's settings. `balance_rate` is the step of the routers' bias."""

    stages: tuple[Stage, ...]
    warmup_steps: int = 100
    weight_decay: float = 0.02
    betas: tuple[float, float] = (0.9, 0.98)
    clip_norm: float = 1.0
    balance_rate: float = 2e-3

    @property
    def steps(self) -> int:
        """Steps at most."""
        return sum(stage.steps for stage in self.stages)


RECENT = 40

MOSTLY_TRACK = ("track", "recall", "track", "copy", "track")

DEFAULT = Recipe(
    stages=(
        Stage(DENSE, 64, 16, 1200, 2e-3, enough=0.90),
        Stage(DENSE, 128, 12, 800, 2e-3, enough=0.95, reach=8),
        Stage(DENSE, 128, 10, 1200, 2e-3, enough=0.93, reach=8, turn=MOSTLY_TRACK, most_steps=1),
        Stage(DENSE, 128, 10, 1000, 2e-3, enough=0.95, reach=8, turn=MOSTLY_TRACK, most_steps=2),
        Stage(DENSE, 128, 10, 700, 2e-3, enough=0.95, reach=8, turn=MOSTLY_TRACK),
        Stage(DENSE, 256, 5, 500, 1.2e-3, reach=8, turn=MOSTLY_TRACK),
        Stage(DENSE, 512, 4, 250, 8e-4, reach=8, turn=MOSTLY_TRACK),
        Stage(DENSE, 1024, 3, 120, 6e-4, decay=True, reach=8, turn=MOSTLY_TRACK),
        Stage(DISTIL, 512, 4, 200, 3e-3, reach=8),
        Stage(DISTIL, 1024, 2, 80, 2e-3, decay=True, reach=8),
        Stage(SPARSE, 1024, 2, 160, 4e-4, decay=True, reach=8),
    )
)
