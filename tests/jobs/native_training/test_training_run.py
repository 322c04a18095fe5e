"""A run learns, and an interrupted one ends with the weights of an unbroken one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from native_training_samples import EVERY_PHASE, TINY

from longctx.errors import ModelError
from longctx.jobs.native_training.recipe import DENSE, DISTIL, RECENT, Recipe, Stage
from longctx.jobs.native_training.train import AFTER_DENSE, CHECKPOINT, main, train
from longctx.jobs.native_training.trainer import Progress, Trainer, rate


def quiet(line: str) -> None:
    pass


def test_the_loss_falls_within_a_few_steps() -> None:
    trainer = Trainer(TINY, Recipe((Stage(DENSE, 32, 6, 60, 1e-2),), warmup_steps=5), seed=0)
    stage = trainer.recipe.stages[0]
    losses = [trainer.step(stage).answers for _ in range(60)]

    assert sum(losses[-5:]) < sum(losses[:5]) - 5 * 0.3


def test_distillation_lowers_the_indexers_loss_and_changes_nothing_else() -> None:
    stage = Stage(DISTIL, 48, 3, 40, 1e-2)
    trainer = Trainer(TINY, Recipe((stage,), warmup_steps=2), seed=0)
    before = {k: v.clone() for k, v in trainer.model.state_dict().items()}
    losses = [trainer.step(stage).index or 0.0 for _ in range(40)]

    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
    changed = {k for k, v in trainer.model.state_dict().items() if not torch.equal(v, before[k])}
    assert changed
    assert all(".indexer." in name for name in changed)


def test_a_resumed_run_ends_with_the_same_weights(tmp_path: Path) -> None:
    unbroken = Trainer(TINY, EVERY_PHASE, seed=5)
    train(unbroken, tmp_path, quiet)

    broken = Trainer(TINY, EVERY_PHASE, seed=5)
    for _ in range(5):  # into the second phase
        stage = broken.stage
        assert stage is not None
        broken.step(stage)
        broken.advance(stage)
    broken.save(tmp_path / "half.pt")
    resumed = Trainer(TINY, EVERY_PHASE, seed=5)
    resumed.resume(tmp_path / "half.pt")
    train(resumed, tmp_path, quiet)

    assert resumed.progress.step == unbroken.progress.step == EVERY_PHASE.steps
    for name, value in unbroken.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    Trainer(TINY, EVERY_PHASE, seed=1).save(tmp_path / "one.pt")

    with pytest.raises(ModelError, match="seed"):
        Trainer(TINY, EVERY_PHASE, seed=2).resume(tmp_path / "one.pt")


def test_a_damaged_checkpoint_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "one.pt"
    Trainer(TINY, EVERY_PHASE, seed=1).save(path)
    path.write_bytes(path.read_bytes()[:1000])

    with pytest.raises(ModelError, match="not a readable checkpoint"):
        Trainer(TINY, EVERY_PHASE, seed=1).resume(path)


def test_another_schedule_begins_from_the_same_dense_model(tmp_path: Path) -> None:
    shared = Trainer(TINY, EVERY_PHASE, seed=0)
    train(shared, tmp_path, quiet)
    every = Trainer(TINY.with_schedule("FFFF"), EVERY_PHASE, seed=0)
    every.begin_after_dense(tmp_path / AFTER_DENSE)

    dense = torch.load(tmp_path / AFTER_DENSE, weights_only=True)["model"]
    own = every.model.state_dict()
    assert every.stage is EVERY_PHASE.stages[1]
    assert all(torch.equal(own[k], v) for k, v in dense.items() if ".indexer." not in k)
    assert "model.layers.3.self_attn.indexer.wk.weight" in own.keys() - dense.keys()


def test_a_stage_ends_when_every_task_is_learned() -> None:
    stage = Stage(DENSE, 24, 3, 1000, 1e-3, enough=0.9)
    trainer = Trainer(TINY, Recipe((stage,)), seed=0)
    trainer.progress = Progress(recent=[[1.0, 1.0, 0.8]] * RECENT)
    assert not trainer.advance(stage)

    trainer.progress.recent = [[1.0, 1.0, 0.95]] * RECENT
    assert trainer.advance(stage)
    assert trainer.stage is None


def test_the_rate_warms_up_and_decays() -> None:
    stage = Stage(DENSE, 24, 3, 1000, 1.0)

    assert rate(EVERY_PHASE, stage, 0) == pytest.approx(0.5)
    assert rate(EVERY_PHASE, stage, 999) == pytest.approx(1.0)
    assert rate(EVERY_PHASE, replace(stage, decay=True), 999) == pytest.approx(0.1, rel=0.01)


def test_a_folder_with_a_run_is_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / CHECKPOINT).write_bytes(b"")

    assert main(["--out", str(tmp_path)]) == 2
    assert "--resume" in capsys.readouterr().err


def test_the_command_trains_exports_and_resumes_to_the_same_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("longctx.jobs.native_training.train.Shape", lambda: TINY)
    monkeypatch.setattr("longctx.jobs.native_training.train.DEFAULT", EVERY_PHASE)
    weights = tmp_path / "run" / "export" / "model.safetensors"

    assert main(["--out", str(tmp_path / "run"), "--seed", "3"]) == 0
    first = weights.read_bytes()
    assert main(["--out", str(tmp_path / "run"), "--seed", "3", "--resume"]) == 0

    assert weights.read_bytes() == first
    assert "sparse 32 step 3/3" in capsys.readouterr().out
    assert "--seed 3" in (weights.parent / "README.md").read_text()
