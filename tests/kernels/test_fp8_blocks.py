"""FP8 with scales: what is stored, how far off it may be, and sizes that are no multiple of 128."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from longctx.kernels import fp8_blocks
from longctx.kernels.fp8_blocks import (
    BLOCK,
    dequantise_rows,
    dequantise_weight,
    quantise_rows,
    quantise_weight,
    reference,
)

DTYPES = (torch.bfloat16, torch.float32)
SIZES = st.sampled_from([1, 3, 63, 64, 100, 127, 128, 129, 256, 300])


def numbers(*shape: int, seed: int = 0, spread: float = 1.0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * spread


def naive_weight(stored: Tensor, scales: Tensor) -> Tensor:
    """Number by number: an element's scale is that of the 128 x 128 block it lies in."""
    rows, columns = stored.shape
    found = stored.float()
    for row in range(0, rows, BLOCK):
        for column in range(0, columns, BLOCK):
            block = (slice(row, row + BLOCK), slice(column, column + BLOCK))
            found[block] *= scales[row // BLOCK, column // BLOCK]
    return found


def allowed(x: Tensor, scale: Tensor) -> Tensor:
    """Half a step of e4m3: a 16th of a number, or of the least step near zero."""
    return x.abs() / 16 * (1 + 2**-20) + scale * 2.0**-10


def test_a_latent_takes_528_bytes_and_an_index_key_132():
    for width, scales_of in ((512, 4), (128, 1)):
        stored, scales = quantise_rows(numbers(3, width))

        assert stored.dtype == torch.float8_e4m3fn
        assert stored.shape == (3, width)
        assert scales.dtype == torch.float32
        assert scales.shape == (3, scales_of)


@settings(max_examples=40, deadline=None)
@given(rows=SIZES, columns=SIZES, seed=st.integers(0, 99), dtype=st.sampled_from(DTYPES))
def test_rows_come_back_within_half_a_step(rows, columns, seed, dtype):
    x = numbers(rows, columns, seed=seed, spread=10.0 ** (seed % 9 - 4)).to(dtype)

    stored, scales = quantise_rows(x)
    found = dequantise_rows(stored, scales)

    scale = scales.repeat_interleave(BLOCK, dim=1)[:, :columns]
    assert ((found - x.float()).abs() <= allowed(x.float(), scale)).all()


@settings(max_examples=40, deadline=None)
@given(rows=SIZES, columns=SIZES, seed=st.integers(0, 99), dtype=st.sampled_from(DTYPES))
def test_a_weight_is_its_numbers_times_its_blocks_scale(rows, columns, seed, dtype):
    weight = numbers(rows, columns, seed=seed).to(dtype)

    stored, scales = quantise_weight(weight)

    assert scales.shape == (-(-rows // BLOCK), -(-columns // BLOCK))
    wanted = naive_weight(stored, scales)
    assert torch.equal(dequantise_weight(stored, scales), wanted)
    assert torch.equal(dequantise_weight(stored, scales, dtype), wanted.to(dtype))
    largest = weight.float().abs().max()
    assert (wanted - weight.float()).abs().max() <= largest / 16


def test_576_rows_have_five_rows_of_scales_the_last_for_half_a_block():
    weight = numbers(576, 384)
    weight[512:] *= 1000  # a scale borrowed from the block before would be far off

    stored, scales = quantise_weight(weight)
    found = dequantise_weight(stored, scales)

    assert scales.shape == (5, 3)
    assert (found - weight)[512:].abs().max() <= weight.abs().max() / 16
    assert (found - weight)[:512].abs().max() <= weight[:512].abs().max() / 16


def test_scales_are_multiplied():
    stored = torch.full((2, 2), 3.0).to(torch.float8_e4m3fn)

    assert dequantise_weight(stored, torch.tensor([[0.5]])).tolist() == [[1.5, 1.5], [1.5, 1.5]]


@pytest.mark.parametrize("columns", [256, 200])
def test_every_byte_reads_as_the_plain_conversion_does(columns):
    bytes_ = torch.arange(256, dtype=torch.uint8).repeat(3)[: 3 * columns].view(3, columns)
    stored = bytes_.view(torch.float8_e4m3fn)
    scales = torch.tensor([[1.0, 3.7e-5], [1e30, 2.0**-126], [0.0, 1.3]])

    for dtype in DTYPES:
        wanted = reference.dequantise(stored, scales, dtype)
        torch.testing.assert_close(
            dequantise_rows(stored, scales, dtype), wanted, rtol=0, atol=0, equal_nan=True
        )


def test_zeros_stay_zero_with_a_harmless_scale():
    stored, scales = quantise_rows(torch.zeros(2, 256))

    assert scales.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert not dequantise_rows(stored, scales).any()


@pytest.mark.parametrize("spread", [3.0e38, 448.0, 1e-30, 1e-41])
def test_huge_and_minute_numbers_stay_finite(spread):
    x = torch.full((1, 128), spread)
    x[0, ::2] *= -1

    stored, scales = quantise_rows(x)
    found = dequantise_rows(stored, scales)

    assert found.isfinite().all()
    assert torch.allclose(found, x, rtol=1e-6, atol=2.0**-136)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_spoils_its_own_run_visibly(bad):
    x = numbers(2, 256)
    x[1, 200] = bad

    found = dequantise_rows(*quantise_rows(x))

    assert found[1, 128:].isnan()[200 - 128]
    assert found[0].isfinite().all()
    assert found[1, :128].isfinite().all()


def test_powers_of_two_as_scales_still_hold_the_largest_number():
    x = numbers(64, 128) * torch.logspace(-20, 20, 64)[:, None]

    stored, scales = quantise_rows(x, power_of_two=True)

    assert torch.equal(torch.frexp(scales).mantissa, torch.full_like(scales, 0.5))
    exact = quantise_rows(x)[1]
    assert ((scales >= exact) & (scales < 2 * exact)).all()
    assert stored.float().abs().max() <= fp8_blocks.E4M3_MAX


def test_a_scale_that_is_a_power_of_two_already_is_kept():
    _, scales = quantise_rows(torch.full((1, 128), 448.0), power_of_two=True)

    assert scales.item() == 1.0


def test_bf16_is_rounded_once():
    stored, scales = quantise_rows(numbers(8, 512, spread=7.3))

    found = dequantise_rows(stored, scales, torch.bfloat16)

    assert torch.equal(found, dequantise_rows(stored, scales).bfloat16())


def test_a_weight_can_be_written_into_a_buffer():
    stored, scales = quantise_weight(numbers(200, 130))
    buffer = torch.full((256, 130), float("nan"), dtype=torch.bfloat16)

    dequantise_weight(stored, scales, torch.bfloat16, buffer[:200])

    assert torch.equal(buffer[:200], dequantise_weight(stored, scales, torch.bfloat16))
    assert buffer[200:].isnan().all()


def test_no_rows():
    stored, scales = quantise_rows(torch.empty(0, 512))

    assert scales.shape == (0, 4)
    assert dequantise_rows(stored, scales).shape == (0, 512)


def test_scales_of_another_shape_are_refused():
    stored, scales = quantise_rows(numbers(4, 256))

    with pytest.raises(ValueError, match="do not fit"):
        dequantise_rows(stored, scales[:, :1])
    with pytest.raises(ValueError, match="do not fit"):
        dequantise_weight(stored, scales)
