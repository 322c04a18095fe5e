"""The best positions of a row, exactly: ties by the lower one, -inf never, -1 for none."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from longctx.kernels.index_select import cpu, index_select, reference

INF = float("inf")


def random_scores(rows: int, keys: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, keys, generator=torch.Generator().manual_seed(seed))


def by_hand(row: list[float], k: int) -> list[int]:
    best = sorted(range(len(row)), key=lambda i: (-row[i], i))[:k]
    chosen = sorted(i for i in best if row[i] > -INF)
    return chosen + [-1] * (min(k, len(row)) - len(chosen))


few = st.sampled_from([-INF, -2.0, -0.0, 0.0, 1.0, 3.5, INF])  # so that ties are the rule
tables = st.integers(1, 40).flatmap(
    lambda n: st.lists(st.lists(few, min_size=n, max_size=n), min_size=1, max_size=5)
)


@given(tables, st.integers(1, 50))
@settings(max_examples=200, deadline=None)
def test_the_definition(rows: list[list[float]], k: int):
    scores = torch.tensor(rows, dtype=torch.float32)
    wanted = [by_hand(row, k) for row in rows]

    assert reference(scores, k).tolist() == wanted
    assert index_select(scores, k).tolist() == wanted


@pytest.mark.parametrize(("rows", "keys", "k"), [(1, 1, 1), (7, 1000, 64), (33, 129, 128)])
def test_random_scores(rows: int, keys: int, k: int):
    scores = random_scores(rows, keys)

    found = index_select(scores, k)

    assert (found.shape, found.dtype) == ((rows, k), torch.int32)
    assert found.equal(reference(scores, k))


@pytest.mark.parametrize("limit", [1, 100, 350])
def test_rows_taken_together_change_nothing(limit: int, monkeypatch: pytest.MonkeyPatch):
    scores = random_scores(9, 100).round()  # ties in every row
    monkeypatch.setattr(cpu, "SCORES", limit)

    assert index_select(scores, 17).equal(reference(scores, 17))


@pytest.mark.parametrize("k", [1, 8, 100])
@pytest.mark.parametrize("kind", ["normal", "ties", "rising", "falling", "plateau", "sparse"])
def test_long_rows_are_sampled_and_exact(kind: str, k: int):
    """Also where the sample misleads: the best scores are where it does not look, or all in it."""
    scores = random_scores(6, 4000)
    if kind == "ties":
        scores = scores.mul(4).round()
    elif kind in ("rising", "falling"):
        scores = scores.sort(descending=kind == "falling").values
    elif kind == "plateau":
        scores = scores.clamp(min=0.5)
    elif kind == "sparse":  # one row holds its best between the sampled columns, one in them
        scores[1, 1 :: cpu.STRIDE] += 100
        scores[2, :: cpu.STRIDE] += 100
        scores[3, 50:] = -INF
        scores[4] = -INF

    assert index_select(scores, k).equal(reference(scores, k))


def test_long_rows_are_not_partitioned_whole(monkeypatch: pytest.MonkeyPatch):
    widths: list[int] = []
    whole = cpu._select
    monkeypatch.setattr(
        cpu, "_select", lambda scores, k: widths.append(scores.shape[1]) or whole(scores, k)
    )

    index_select(random_scores(8, 20_000), 64)

    assert max(widths) < 1000


def test_one_nan_in_a_long_row_is_refused():
    for column in (0, 17, 3999):
        scores = random_scores(4, 4000)
        scores[2, column] = float("nan")
        with pytest.raises(FloatingPointError, match="NaN"):
            index_select(scores, 3)


def test_a_plateau_of_zeros_fills_up_from_the_front():
    scores = random_scores(50, 400).clamp(min=0)

    assert index_select(scores, 300).equal(reference(scores, 300))


def test_rows_of_one_value():
    assert index_select(torch.full((2, 9), -3.0), 4).tolist() == [[0, 1, 2, 3]] * 2


def test_rows_without_anything_and_rows_with_little():
    scores = torch.full((3, 6), -INF)
    scores[1, 4], scores[2] = -7.0, 0.0

    assert index_select(scores, 3).tolist() == [[-1, -1, -1], [4, -1, -1], [0, 1, 2]]


def test_fewer_keys_than_asked_for():
    assert index_select(torch.zeros(2, 3), 8).tolist() == [[0, 1, 2]] * 2
    assert index_select(torch.zeros(0, 3), 2).shape == (0, 2)
    assert index_select(torch.zeros(2, 0), 2).shape == (2, 0)


def test_a_part_of_a_wider_buffer():
    for width, part in ((60, 45), (5000, 4000)):
        wide = random_scores(5, width)

        assert index_select(wide[:, :part], 7).equal(reference(wide[:, :part].clone(), 7))


@pytest.mark.parametrize("count", [1, 3, 10])
def test_nan_is_refused(count: int):
    scores = random_scores(4, 10)
    scores[2, :count] = float("nan")

    with pytest.raises(FloatingPointError, match="NaN"):
        index_select(scores, 3)


def test_arguments_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="float64"):
        index_select(torch.zeros(2, 3).double(), 2)
    with pytest.raises(ValueError, match=r"scores \(3,\)"):
        index_select(torch.zeros(3), 2)
    with pytest.raises(ValueError, match="best 0"):
        index_select(torch.zeros(2, 3), 0)
