"""Indexer scores against the formula, whatever the sizes, tiles and storage of the keys."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from longctx.kernels.index_scores import cpu, index_scores, reference
from longctx.kernels.sparse_mla.packed import pack

INF = float("inf")
SIZES = [(1, 1, 0), (1, 100, 99), (5, 63, 58), (7, 129, 100), (33, 40, 7), (64, 64, 0)]


def arguments(
    rows: int, keys: int, heads: int = 3, dim: int = 20, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(rows, heads, dim, generator=generator)
    k = torch.randn(keys, dim, generator=generator)
    return q, k, torch.randn(rows, heads, generator=generator)


def test_the_reference_is_the_definition():
    q, k, w = arguments(4, 9)

    found = reference(q, k, w, 3)

    for row in range(4):
        for key in range(9):
            products = [max(0.0, float(q[row, head] @ k[key])) for head in range(3)]
            score = sum(float(w[row, head]) * products[head] for head in range(3))
            wanted = score if key <= 3 + row else -INF
            assert float(found[row, key]) == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize(("rows", "keys", "first"), SIZES)
def test_float_keys(rows: int, keys: int, first: int):
    q, k, w = arguments(rows, keys)

    found = index_scores(q, k, w, first)

    assert (found.shape, found.dtype) == ((rows, keys), torch.float32)
    assert torch.allclose(found, reference(q, k, w, first), atol=1e-4)


@pytest.mark.parametrize("heads", [1, 5, 32])
@pytest.mark.parametrize("limits", [(1, 1), (4, 7), (40, 64), (1024, 1 << 20)])
def test_tiles_change_nothing(heads: int, limits: tuple[int, int], monkeypatch: pytest.MonkeyPatch):
    q, k, w = arguments(13, 50, heads)
    monkeypatch.setattr(cpu, "ROWS", limits[0])
    monkeypatch.setattr(cpu, "PRODUCTS", max(limits[1], heads * max(1, limits[0] // heads)))

    assert torch.allclose(index_scores(q, k, w, 37), reference(q, k, w, 37), atol=1e-4)


def test_bf16_products_have_few_sizes(monkeypatch: pytest.MonkeyPatch):
    """Each size is compiled and kept: one a chunk of a long prompt was a megabyte a chunk."""
    sizes: set[tuple[int, ...]] = set()

    def product(a: Tensor, b: Tensor, out: Tensor) -> None:
        sizes.add((*a.shape, *b.shape))
        torch.mm(a, b, out=out)

    monkeypatch.setattr(cpu, "_fast_bf16", lambda q: True)
    monkeypatch.setattr(cpu, "_bf16_product", product)
    for number in range(60):
        q, k, w = (x.bfloat16() for x in arguments(40 + number, 1000 + 13 * number, 4, 16))
        first = len(k) - len(q)
        found = index_scores(q, k, w.float(), first)
        assert torch.allclose(found, reference(q, k, w.float(), first), atol=1e-3)

    assert len(sizes) <= 3 * 8  # queries by 32, keys by 256


def test_bf16_products_lose_nothing():
    """bf16 operands multiply exactly in float32; nothing is rounded to bf16, then or afterwards."""
    q, k, w = arguments(40, 500, 8, 64)
    wide = k @ k.T
    q, k = q.bfloat16(), k.bfloat16()

    found = index_scores(q, k, w, 460)

    assert torch.allclose(found, reference(q, k, w, 460), atol=1e-4)
    k = arguments(40, 500, 8, 64)[1]
    assert (k @ k.T).equal(wide)


@pytest.mark.parametrize("dim", [20, 128, 200])
def test_packed_keys(dim: int):
    q, k, w = arguments(5, 70, dim=dim)

    found = index_scores(q, pack(k), w, 65)

    assert torch.allclose(found, reference(q, pack(k), w, 65), atol=1e-3)
    seen = found.isfinite()
    error = (found - reference(q, k, w, 65))[seen].norm()
    assert 0 < error / found[seen].norm() < 0.1


def test_scores_may_be_negative_and_later_keys_are_not_zero():
    q, k = torch.ones(2, 1, 4), torch.ones(3, 4)

    assert index_scores(q, k, -torch.ones(2, 1), 0).tolist() == [[-4, -INF, -INF], [-4, -4, -INF]]


def test_given_output_is_written_whole():
    q, k, w = arguments(6, 30)
    out = torch.full((6, 30), float("nan"))

    found = index_scores(q, k, w, 3, out)

    assert found.data_ptr() == out.data_ptr()
    assert not out.isnan().any()


def test_keys_no_row_sees_are_not_read():
    q, k, w = arguments(2, 30)
    k[12:] = float("nan")

    assert not index_scores(q, k, w, 10).isnan().any()


def test_nothing_to_score():
    q, k, w = arguments(0, 30)

    assert index_scores(q, k, w, 5).shape == (0, 30)
    assert index_scores(*arguments(3, 0), 5).shape == (3, 0)


def test_arguments_that_do_not_fit_are_refused():
    q, k, w = arguments(4, 9)
    with pytest.raises(ValueError, match="do not fit"):
        index_scores(q, k[:, 1:], w, 0)
    with pytest.raises(ValueError, match="do not fit"):
        index_scores(q, pack(k)[:, 1:], w, 0)
    with pytest.raises(ValueError, match=r"keys of torch\.int8"):
        index_scores(q, k.to(torch.int8), w, 0)
    with pytest.raises(ValueError, match="for 4 rows"):
        index_scores(q, k, w[1:], 0)
    with pytest.raises(ValueError, match="position -1"):
        index_scores(q, k, w, -1)
    with pytest.raises(ValueError, match="for 4 x 9"):
        index_scores(q, k, w, 0, torch.empty(4, 8))
