"""Block scores against the formula: the best q.k of each block, whatever the sizes and tiles."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from longctx.kernels import block_scores as package
from longctx.kernels.block_scores import block_scores, reference

DIM = 16
SIZES = [1, 31, 32, 33, 63, 100, 129, 256]
BF16_STEPS = 3 / 256  # of the largest product: rounding of q, of the product and of the scale


def rows(count: int, dim: int = DIM, seed: int = 0) -> Tensor:
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed))


def packed(keys: Tensor) -> tuple[Tensor, Tensor]:
    """Keys as int8 with one scale each."""
    scales = (keys.abs().amax(dim=-1) / 127).half()
    return (keys / scales.float()[:, None]).round().clamp(-127, 127).to(torch.int8), scales


def by_hand(q: Tensor, keys: Tensor, block: int) -> list[list[float]]:
    """The definition, one product at a time."""
    scale = q.shape[1] ** -0.5
    return [
        [
            max(float(row @ key) * scale for key in keys[start : start + block])
            for start in range(0, len(keys), block)
        ]
        for row in q
    ]


def test_the_reference_is_the_definition():
    q, keys = rows(3), rows(70, seed=1)

    assert torch.allclose(reference(q, keys, None, 32), torch.tensor(by_hand(q, keys, 32)))


@pytest.mark.parametrize("tokens", SIZES)
@pytest.mark.parametrize("block", [1, 7, 32])
def test_float_keys(tokens: int, block: int):
    q, keys = rows(5), rows(tokens, seed=1)

    found = block_scores(q, keys, None, block)

    assert found.shape == (5, -(-tokens // block))
    assert found.dtype == torch.float32
    assert torch.allclose(found, reference(q, keys, None, block), atol=1e-5)


@pytest.mark.parametrize("tokens", SIZES)
@pytest.mark.parametrize("dim", [16, 63])
def test_int8_keys(tokens: int, dim: int):
    q = rows(5, dim)
    keys, scales = packed(rows(tokens, dim, seed=1))

    found, wanted = block_scores(q, keys, scales, 32), reference(q, keys, scales, 32)

    largest = q.norm(dim=1).max() * (keys.float() * scales.float()[:, None]).norm(dim=1).max()
    assert (found - wanted).abs().max() < BF16_STEPS * largest / dim**0.5


def test_bf16_keys():
    q, keys = rows(4), rows(100, seed=1).bfloat16()

    found = block_scores(q, keys, None, 32)

    assert found.dtype == torch.float32
    assert torch.allclose(found, reference(q, keys, None, 32), atol=0.05)


@pytest.mark.parametrize("tile", [1, 32, 64, 100])
@pytest.mark.parametrize("tokens", SIZES)
def test_tiles_change_nothing(tile: int, tokens: int, monkeypatch: pytest.MonkeyPatch):
    q, keys = rows(3), rows(tokens, seed=1)
    whole = block_scores(q, keys, None, 32)

    monkeypatch.setattr(package, "TILE_TOKENS", tile)

    assert torch.allclose(block_scores(q, keys, None, 32), whole, atol=1e-6)


@pytest.mark.parametrize("tokens", SIZES)
def test_every_element_is_written(tokens: int, monkeypatch: pytest.MonkeyPatch):
    def poisoned(*size: int, **settings: object) -> Tensor:
        return torch.full(size, float("nan"), **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(package.torch, "empty", poisoned)
    monkeypatch.setattr(package, "TILE_TOKENS", 64)

    assert not block_scores(rows(3), rows(tokens, seed=1), None, 32).isnan().any()


def test_a_short_last_block_is_not_padded_with_zeros():
    q, keys = -torch.ones(1, DIM), torch.ones(33, DIM)

    assert block_scores(q, keys, None, 32).tolist() == [[-4.0, -4.0]]


def test_keys_that_are_a_slice_of_others():
    wide = rows(100, 2 * DIM, seed=1)
    q = rows(3)

    found = block_scores(q, wide[:, :DIM], None, 32)

    assert torch.allclose(found, reference(q, wide[:, :DIM].clone(), None, 32), atol=1e-5)


def test_no_keys_give_no_blocks():
    assert block_scores(rows(3), rows(0), None, 32).shape == (3, 0)


def test_no_queries_give_no_rows():
    assert block_scores(rows(0), rows(70), None, 32).shape == (0, 3)


def test_sizes_that_do_not_fit_are_refused():
    keys, scales = packed(rows(40))
    with pytest.raises(ValueError, match="do not fit"):
        block_scores(rows(2, DIM + 1), keys, scales, 32)
    with pytest.raises(ValueError, match="do not fit"):
        block_scores(rows(2)[0], keys, scales, 32)
    with pytest.raises(ValueError, match="40 keys and 1 scale"):
        block_scores(rows(2), keys, scales[:1], 32)
    with pytest.raises(ValueError, match="block of 0"):
        block_scores(rows(2), keys, scales, 0)


def test_int8_needs_scales_and_floats_take_none():
    keys, scales = packed(rows(40))
    with pytest.raises(ValueError, match="int8 keys need scales"):
        block_scores(rows(2), keys, None, 32)
    with pytest.raises(ValueError, match="float keys take none"):
        block_scores(rows(2), keys.float(), scales, 32)
