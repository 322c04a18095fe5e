"""Every answer follows from what stands before it; a seed gives the same sequences for ever."""

from __future__ import annotations

import numpy as np
import pytest

from longctx.errors import UsageError
from longctx.jobs.native_training import tasks


def solve(sequence: tasks.Sequence) -> list[int]:
    """The answers, read off the statements by hand."""
    tokens = sequence.tokens.tolist()
    asked = np.flatnonzero(sequence.answers)
    if sequence.task == "copy":
        first = tokens.index(tasks.BAR)
        return tokens[first + 1 : first + 1 + len(asked)]
    known = {tokens[i - 1]: tokens[i + 1] for i, t in enumerate(tokens) if t == tasks.EQUALS}
    found = []
    for at in asked:
        value, steps = known[tokens[at - 1]], 0
        while value in known:
            value, steps = known[value], steps + 1
        assert steps == sequence.steps[at]
        found.append(value)
    return found


@pytest.mark.parametrize("length", [16, 63, 100, 1025])
@pytest.mark.parametrize("task", tasks.NAMES)
def test_answers_follow_from_the_tokens_before(task: str, length: int) -> None:
    for seed in range(20):
        sequence = tasks.make(task, length, np.random.default_rng(seed))
        assert len(sequence.tokens) == length
        assert sequence.answers.sum() >= 2
        assert sequence.tokens[sequence.answers].tolist() == solve(sequence)


def test_tracked_values_are_up_to_three_steps_away() -> None:
    sequence = tasks.make("track", 600, np.random.default_rng(0), 100)

    assert set(sequence.steps[sequence.answers].tolist()) == {0, 1, 2, 3}


def test_a_tracked_key_is_defined_before_it_is_used() -> None:
    tokens = tasks.make("track", 400, np.random.default_rng(3), 60).tokens.tolist()
    defined: set[int] = set()
    for at, token in enumerate(tokens):
        if token == tasks.EQUALS:
            assert tokens[at + 1] in tasks.VALUES or tokens[at + 1] in defined
            defined.add(tokens[at - 1])


def test_a_seed_and_step_give_one_batch() -> None:
    first, again = (tasks.batch(64, 6, seed=7, step=3) for _ in range(2))
    other = tasks.batch(64, 6, seed=7, step=4)

    assert np.array_equal(first[0], again[0])
    assert first[2] == again[2]
    assert not np.array_equal(first[0], other[0])


def test_spaced_positions_jump_at_noise_words_only() -> None:
    tokens = tasks.batch(128, 12, seed=0, step=0)[0]
    positions = tasks.spaced(tokens, 8, seed=0, step=0)

    jumped = np.diff(positions, axis=1) > 1
    assert jumped.any()
    assert np.isin(tokens[:, 1:][jumped], np.array(tasks.NOISE)).all()
    assert (np.diff(positions, axis=1) >= 1).all()
    assert positions.max() < 8 * 128
    assert np.array_equal(tasks.spaced(tokens, 1, 0, 0), np.tile(np.arange(128), (12, 1)))


def test_a_batch_holds_every_task() -> None:
    assert set(tasks.batch(64, 3, seed=0, step=0)[2]) == set(tasks.NAMES)


def test_items_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError, match="hold 1 to 12 items"):
        tasks.make("recall", 64, np.random.default_rng(0), 13)


def test_every_id_has_a_word_of_its_own() -> None:
    assert len(set(tasks.words())) == tasks.VOCABULARY
    assert tasks.words()[tasks.VALUES.start] == "v0"
