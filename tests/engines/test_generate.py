"""Generation: greedy repeats itself, a seed repeats itself, and every end is an end."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import Tensor

from engines.tiny_model import token_ids
from longctx.engines.generate import generate
from longctx.models.loaded import LoadedModel

PROMPT = token_ids(20, seed=4)
NOTHING: frozenset[int] = frozenset()


def answer(
    model: LoadedModel,
    limit: int = 12,
    stop: frozenset[int] = NOTHING,
    capacity: int = 100,
    **sampling: float,
) -> list[tuple[int, float]]:
    cache = model.decoder.new_cache(capacity)
    logits = model.decoder.forward(PROMPT, cache, last_only=True)[0]
    temperature, seed = sampling.get("temperature", 0.0), int(sampling.get("seed", 0))
    return list(generate(model.decoder, cache, logits, stop, limit, temperature, seed))


def ids(found: list[tuple[int, float]]) -> list[int]:
    return [token for token, _ in found]


def test_greedy_takes_the_likeliest_token_every_time(model: LoadedModel):
    found = answer(model)

    logits = model.decoder.forward(PROMPT + ids(found))
    for at, (token, share) in enumerate(found, len(PROMPT) - 1):
        wanted = logits[at].log_softmax(dim=-1)
        assert token == int(wanted.argmax())
        assert share == pytest.approx(float(wanted[token]), abs=1e-4)


def test_greedy_ignores_the_seed(model: LoadedModel):
    assert answer(model, seed=1) == answer(model, seed=2) == answer(model)


def test_a_seed_repeats_its_answer(model: LoadedModel):
    torch.manual_seed(1)
    first = answer(model, temperature=1.0, seed=7)
    torch.manual_seed(2)

    assert answer(model, temperature=1.0, seed=7) == first
    assert answer(model, temperature=1.0, seed=8) != first


def test_sampling_leaves_torchs_own_random_numbers_alone(model: LoadedModel):
    torch.manual_seed(1)
    wanted = torch.rand(3)
    torch.manual_seed(1)

    answer(model, temperature=1.0)

    assert torch.equal(torch.rand(3), wanted)


@pytest.mark.parametrize("temperature", [1e-3, 1e-9, 1e-40])
def test_a_temperature_near_zero_is_greedy(model: LoadedModel, temperature: float):
    assert answer(model, temperature=temperature, seed=3) == answer(model)


def test_samples_follow_the_shares_at_a_temperature(model: LoadedModel):
    logits = torch.full((model.config.vocab,), -100.0)
    logits[[5, 6]] = torch.tensor([0.0, 1.0])
    counted: Counter[int] = Counter()
    for seed in range(300):
        cache = model.decoder.new_cache(1)
        cache.length = 1  # full: one token, and no forward pass
        counted.update(ids(list(generate(model.decoder, cache, logits, NOTHING, 1, 0.5, seed))))

    wanted = 1 / (1 + torch.e**-2)
    assert set(counted) == {5, 6}
    assert counted[6] / 300 == pytest.approx(wanted, abs=0.06)


def test_it_ends_before_a_stop_token(model: LoadedModel):
    whole = ids(answer(model))
    stop = whole[5]

    found = ids(answer(model, stop=frozenset({stop})))

    assert found == whole[: whole.index(stop)]


def test_it_may_end_at_once(model: LoadedModel):
    assert answer(model, stop=frozenset({ids(answer(model))[0]})) == []


@pytest.mark.parametrize("limit", [0, 1, 5])
def test_it_ends_at_the_limit(model: LoadedModel, limit: int):
    assert answer(model, limit=limit) == answer(model)[:limit]


@pytest.mark.parametrize("room", [0, 1, 4])
def test_it_ends_when_the_cache_is_full(model: LoadedModel, room: int):
    found = answer(model, capacity=len(PROMPT) + room)

    assert found == answer(model)[: room + 1], "the last token needs no place of its own"


def test_logits_of_half_precision(model: LoadedModel):
    def first(logits: Tensor) -> int:
        cache = model.decoder.new_cache(1)
        cache.length = 1
        ((token, share),) = generate(model.decoder, cache, logits, NOTHING, 1)
        assert share <= 0
        return token

    logits = torch.arange(10.0)
    assert first(logits.bfloat16()) == first(logits.half()) == first(logits) == 9
