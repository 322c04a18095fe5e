"""Held-out sequences and the table of shares of right answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from native_training_samples import TINY

from longctx.jobs.native_training import tasks
from longctx.jobs.native_training.evaluate import ITEMS, Way, held_out, main, score, table
from longctx.jobs.native_training.export import export
from longctx.jobs.native_training.model import NativeModel


class Oracle(NativeModel):
    """Answers rightly: its hidden states point at the token that comes next."""

    def forward(self, tokens, sparse, distil=False, positions=None):
        from longctx.jobs.native_training.model import Output

        following = torch.cat([tokens[:, 1:], tokens[:, :1]], 1)
        return Output(self.lm_head.weight[following], None, [])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    export(NativeModel(TINY), tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("task", tasks.NAMES)
def test_only_the_distance_grows_with_the_length(task: str) -> None:
    for length in (512, 2048):
        sequences = list(held_out(task, length, 2))
        assert [len(s.tokens) for s in sequences] == [length] * 2
        assert [int(s.answers.sum()) for s in sequences] == [ITEMS] * 2


def test_held_out_sequences_are_not_those_of_training() -> None:
    held = next(held_out("recall", 64, 1)).tokens
    trained = np.concatenate([tasks.batch(64, 16, 0, step)[0] for step in range(20)])

    assert not (trained == held).all(1).any()


def test_right_answers_score_one_and_untrained_ones_next_to_nothing() -> None:
    torch.manual_seed(0)
    oracle = Oracle(TINY)
    with torch.no_grad():
        oracle.lm_head.weight /= oracle.lm_head.weight.norm(dim=1, keepdim=True)

    assert [part.share for part in score(oracle, "track", 400, 2, sparse=True)] == [1.0] * 4
    assert score(NativeModel(TINY), "copy", 200, 2, sparse=True)[0].share < 0.2


def test_a_table_has_a_row_a_way_and_length(folder: Path) -> None:
    lines = list(table(folder, [Way("FFSS", 0), Way("FSSS", 8)], [40, 80], 1))

    assert len(lines) == 2 + 4
    assert lines[0] == (
        "| attention | length | recall | track 0 | track 1 | track 2 | track 3 | copy |"
    )
    assert lines[2].startswith("| dense | 40 |")
    assert lines[5].startswith("| FSSS top 8 | 80 |")


def test_a_missing_folder_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none")]) == 1
    assert "not a readable model folder" in capsys.readouterr().err
