"""From scores to runs of blocks: fusion, neighbours, borders between documents, the heat strip."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from longctx.indexshare.select import Run, Scores, choose, fuse, heat, log_softmax

SHARE = 0.3  # how much of a neighbour's words a block is given
FINITE = st.floats(0, 50, width=32)
COUNTS = st.lists(st.integers(1, 5), min_size=1, max_size=8)


def scores(*values: float) -> Scores:
    return np.array(values, dtype=np.float32)


def borders(counts: list[int]) -> list[int]:
    return [0, *np.cumsum(counts).tolist()]


def smoothed(values: Scores, first: list[int]) -> Scores:
    """What `fuse` does to words before the softmax, document by document."""
    out = []
    for start, end in pairwise(first):
        part = [0.0, *values[start:end].tolist(), 0.0]
        out += [b + SHARE * (a + c) for a, b, c in zip(part, part[1:], part[2:], strict=False)]
    return np.array(out, dtype=np.float32)


def test_log_softmax_sums_to_one_however_large_the_scores():
    for values in (scores(0, 1, 2), scores(1e4, 0), scores(-1e4, -1e4), scores(7)):
        found = log_softmax(values)
        assert found.dtype == np.float32
        assert np.exp(found.astype(float)).sum() == pytest.approx(1)


@given(COUNTS, st.data())
def test_words_of_neighbours_count_inside_a_document_only(counts: list[int], data: st.DataObject):
    first = borders(counts)
    words = data.draw(arrays(np.float32, first[-1], elements=FINITE))

    assert np.allclose(
        fuse(None, words, 1.0, first), log_softmax(smoothed(words, first)), atol=1e-4
    )


def test_documents_of_one_block_give_each_other_nothing():
    words = scores(5, 0, 3.3, 0, 7)

    assert np.array_equal(fuse(None, words, 1.0, [0, 1, 2, 3, 4, 5]), log_softmax(words))


def test_equal_documents_score_equally_whatever_stands_between_them():
    """Nothing of the border is left over, not even in the last bit: ties stay ties."""
    words = scores(0.1, 0.3, 7.7, 0.1, 0.3, 13.13, 0.1, 0.3)

    found = fuse(None, words, 1.0, [0, 2, 3, 5, 6, 8])

    assert found[0] == found[3] == found[6]
    assert found[1] == found[4] == found[7]


def test_fusion_adds_weighted_log_probabilities():
    attention, words = scores(1, 2, 3, 0), scores(0, 4, 0, 0)
    first = [0, 2, 4]

    found = fuse(attention, words, 0.5, first)

    wanted = log_softmax(attention) + 0.5 * log_softmax(scores(4 * SHARE, 4, 0, 0))
    assert found.dtype == np.float32
    assert np.allclose(found, wanted, atol=1e-6)


def test_the_words_of_its_document_count_for_every_block():
    attention, words, documents = scores(1, 2, 3, 0, 0), scores(0, 4, 0, 0, 1), scores(7, 0)
    first = [0, 2, 5]

    found = fuse(attention, words, 0.5, first, documents, 0.25)

    whole = log_softmax(documents)
    wanted = fuse(attention, words, 0.5, first) + 0.25 * np.repeat(whole, [2, 3])
    assert found.dtype == np.float32
    assert np.allclose(found, wanted, atol=1e-6)
    alone = fuse(None, words, 0.5, first, documents, 0.25)
    assert np.allclose(alone, fuse(None, words, 0.5, first) + 0.25 * np.repeat(whole, [2, 3]))
    assert np.array_equal(
        fuse(attention, words, 0.5, first, documents, 0.0), fuse(attention, words, 0.5, first)
    )


def test_one_of_the_two_may_be_missing():
    values = scores(1, 5, 2)

    assert np.array_equal(fuse(values, None, 0.5, [0, 3]), log_softmax(values))
    assert np.array_equal(fuse(None, values, 0.5, [0, 1, 2, 3]), log_softmax(values))


def test_scores_handed_in_are_left_alone():
    attention, words = scores(1, 2, 3), scores(3, 2, 1)

    fuse(attention, words, 0.5, [0, 3])

    assert attention.tolist() == [1, 2, 3]
    assert words.tolist() == [3, 2, 1]


def test_the_best_blocks_come_in_context_order():
    found = choose(scores(0, 9, 0, 0, 0, 5, 0, 7), [0, 4, 8], top=3, neighbours=0)

    assert found == [Run(0, 1, 1, 9), Run(1, 1, 1, 5), Run(1, 3, 3, 7)]


def test_ties_go_to_the_earlier_block():
    assert choose(scores(1, 1, 1, 1), [0, 4], top=2, neighbours=0) == [Run(0, 0, 1, 1)]
    assert choose(scores(0, 2, 2), [0, 1, 2, 3], top=1, neighbours=0) == [Run(1, 0, 0, 2)]


def test_neighbours_stop_at_the_document():
    found = choose(scores(0, 0, 0, 8, 0, 0), [0, 3, 6], top=1, neighbours=2)

    assert found == [Run(1, 0, 2, 8)]


def test_runs_that_touch_are_one():
    values = scores(0, 4, 0, 0, 6, 0, 0, 0, 0, 5)

    found = choose(values, [0, 10], top=3, neighbours=1)

    assert found == [Run(0, 0, 5, 6), Run(0, 8, 9, 5)]


def test_runs_of_two_documents_stay_two():
    assert choose(scores(0, 3, 4, 0), [0, 2, 4], top=2, neighbours=1) == [
        Run(0, 0, 1, 3),
        Run(1, 0, 1, 4),
    ]


def test_more_asked_for_than_there_is():
    assert choose(scores(1, 2), [0, 1, 2], top=16, neighbours=1) == [
        Run(0, 0, 0, 1),
        Run(1, 0, 0, 2),
    ]


@given(COUNTS, st.integers(0, 6), st.integers(0, 3), st.data())
def test_every_chosen_block_and_its_neighbours_are_read(
    counts: list[int], top: int, neighbours: int, data: st.DataObject
):
    first = borders(counts)
    values = data.draw(arrays(np.float32, first[-1], elements=st.floats(-9, 9, width=16)))

    runs = choose(values, first, top, neighbours)

    best = sorted(range(len(values)), key=lambda b: (-values[b], b))[:top]
    wanted = {
        (document, block - start)
        for document, (start, end) in enumerate(pairwise(first))
        for centre in best
        if start <= centre < end
        for block in range(max(start, centre - neighbours), min(end, centre + neighbours + 1))
    }
    read = [(run.document, block) for run in runs for block in range(run.first, run.last + 1)]
    assert read == sorted(wanted), "each once, in order"
    for before, after in pairwise(runs):
        assert before.document < after.document or before.last + 1 < after.first
    for run in runs:
        inside = [b for b in best if run.first <= b - first[run.document] <= run.last]
        assert run.score == max(values[b] for b in inside)


def test_heat_of_each_document():
    values = scores(-1, -9, -9, -9, -5, -9)

    rows = heat(values, [0, 1, 6], slices=120)

    assert [row.tolist() for row in rows] == [[1.0], [0, 0, 0, 0.5, 0]]


def test_a_slice_of_heat_shows_its_strongest_block():
    values = scores(0, 0, 8, 0, 0, 4, 0, 0, 0, 0)

    (row,) = heat(values, [0, 10], slices=5)

    assert row.tolist() == [0, 1, 0.5, 0, 0]


@given(COUNTS, st.integers(1, 7), st.data())
def test_heat_is_a_share_and_the_strongest_is_one(
    counts: list[int], slices: int, data: st.DataObject
):
    first = borders(counts)
    values = data.draw(arrays(np.float32, first[-1], elements=st.floats(-30, 0, width=32)))

    rows = heat(values, first, slices)

    assert [len(row) for row in rows] == [min(slices, count) for count in counts]
    assert all(((row >= 0) & (row <= 1)).all() for row in rows)
    assert max(row.max() for row in rows) == 1
