"""A sequence gives the same logits however it is cut: at once, in chunks, token by token."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from decoder_samples import (
    FAMILIES,
    TOLERANCE,
    decoder_of,
    difference,
    reference,
    saved,
    token_ids,
)

from longctx.models.decoder import Decoder

IDS = token_ids(33)


@pytest.fixture(scope="module", params=FAMILIES)
def decoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    return decoder_of(saved(reference(request.param), tmp_path_factory.mktemp(request.param)))


@pytest.mark.parametrize("cuts", [[16], [1], [32], [5, 6, 20], list(range(1, 33))])
def test_prefill_in_chunks_is_prefill_at_once(decoder: Decoder, cuts: list[int]):
    cache = decoder.new_cache(40)

    ends = [*cuts, len(IDS)]
    parts = [decoder.forward(IDS[a:b], cache) for a, b in zip([0, *cuts], ends, strict=True)]

    assert cache.length == len(IDS)
    assert difference(torch.cat(parts), decoder.forward(IDS)) < TOLERANCE


def test_a_cache_does_not_change_the_logits(decoder: Decoder):
    cached = decoder.forward(IDS, decoder.new_cache(len(IDS)))

    assert difference(cached, decoder.forward(IDS)) < TOLERANCE


def test_the_last_row_alone(decoder: Decoder):
    cache, other = decoder.new_cache(40), decoder.new_cache(40)
    first = decoder.forward(IDS[:20], cache, last_only=True)
    second = decoder.forward(IDS[20:], cache, last_only=True)
    decoder.forward(IDS[:20], other)
    rows = decoder.forward(IDS[20:], other)

    assert first.shape == second.shape == (1, decoder.config.vocab)
    assert difference(first, decoder.forward(IDS[:20])[-1:]) < TOLERANCE
    assert difference(second, rows[-1:]) < TOLERANCE
    assert torch.equal(cache.keys[..., :33, :], other.keys[..., :33, :])
    assert torch.equal(cache.values[..., :33, :], other.values[..., :33, :])


def test_a_cropped_cache_forgets_what_came_after(decoder: Decoder):
    cache = decoder.new_cache(40)
    decoder.forward(token_ids(40, seed=1), cache)
    cache.crop(0)
    decoder.forward(IDS[:10] + token_ids(7, seed=2), cache)

    cache.crop(10)

    assert difference(decoder.forward(IDS[10:], cache), decoder.forward(IDS)[10:]) < TOLERANCE


def test_cropping_cannot_lengthen(decoder: Decoder):
    cache = decoder.new_cache(8)
    decoder.forward(IDS[:3], cache)

    cache.crop(7)

    assert cache.length == 3


def test_tokens_that_overflow_the_cache_are_refused_before_anything_is_written(decoder: Decoder):
    cache = decoder.new_cache(8)
    decoder.forward(IDS[:5], cache)

    with pytest.raises(ValueError, match="9 tokens do not fit a cache of 8"):
        decoder.forward(IDS[5:9], cache)

    after = decoder.forward(IDS[5:8], cache)
    assert difference(after, decoder.forward(IDS[:8])[5:]) < TOLERANCE


def test_later_tokens_do_not_change_earlier_logits(decoder: Decoder):
    changed = IDS[:20] + token_ids(13, seed=3)

    assert difference(decoder.forward(changed)[:20], decoder.forward(IDS)[:20]) < TOLERANCE


def test_half_precision_in_chunks_is_half_precision_at_once(tmp_path: Path):
    decoder = decoder_of(saved(reference("qwen2"), tmp_path), torch.bfloat16)
    whole = decoder.forward(IDS)
    cache = decoder.new_cache(40)

    parts = [decoder.forward(IDS[:17], cache), decoder.forward(IDS[17:], cache)]

    error = (torch.cat(parts) - whole).square().mean()
    assert error < 0.005 * whole.square().mean()
