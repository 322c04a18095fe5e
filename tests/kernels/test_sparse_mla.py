"""Attention over chosen latent entries, against dense attention with everything else masked."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from longctx.kernels.sparse_mla import cpu, reference, sparse_mla
from longctx.kernels.sparse_mla.packed import pack, packed_bytes, unpack

RANK, ROPE = 24, 8
SCALE = 0.3


def arguments(rows: int, entries: int, k: int, heads: int = 3) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, entries and ascending indices, each row ending in none to k - 1 of -1."""
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(rows, heads, RANK + ROPE, generator=generator)
    stored = torch.randn(entries, RANK + ROPE, generator=generator)
    indices = torch.full((rows, k), -1, dtype=torch.int32)
    for row in range(rows):
        count = min(entries, k - row % k)
        indices[row, :count] = torch.randperm(entries, generator=generator)[:count].sort().values
    return q, stored, indices


def test_the_reference_is_the_definition():
    q, entries, indices = arguments(3, 10, 4)

    found = reference(q, entries, indices, RANK, SCALE)

    for row in range(3):
        at = [i for i in indices[row].tolist() if i >= 0]
        for head in range(3):
            weights = (entries[at] @ q[row, head] * SCALE).exp()
            wanted = (weights[:, None] * entries[at, :RANK]).sum(dim=0) / weights.sum()
            assert torch.allclose(found[row, head], wanted, atol=1e-5)


@pytest.mark.parametrize(("rows", "entries", "k"), [(1, 1, 1), (7, 63, 10), (33, 200, 65)])
@pytest.mark.parametrize("numbers", [1, 3000, 1 << 20])
def test_sizes_and_groups(
    rows: int, entries: int, k: int, numbers: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cpu, "NUMBERS", numbers)
    q, stored, indices = arguments(rows, entries, k)

    found = sparse_mla(q, stored, indices, RANK, SCALE)

    assert found.shape == (rows, 3, RANK)
    assert torch.allclose(found, reference(q, stored, indices, RANK, SCALE), atol=1e-5)


def test_all_entries_are_dense_attention():
    q, stored, _ = arguments(5, 40, 1)
    everything = torch.arange(40, dtype=torch.int32).expand(5, 40)

    found = sparse_mla(q, stored, everything, RANK, SCALE)

    wanted = (q @ stored.T * SCALE).softmax(dim=-1) @ stored[:, :RANK]
    assert torch.allclose(found, wanted, atol=1e-5)


def test_rows_without_entries_give_zeros():
    q, stored, indices = arguments(4, 10, 3)
    indices[2] = -1

    found = sparse_mla(q, stored, indices, RANK, SCALE)

    assert (found[2] == 0).all()
    assert not found.isnan().any()
    assert sparse_mla(q, stored, indices[:, :0], RANK, SCALE).abs().sum() == 0


def test_entries_that_were_not_chosen_are_not_used():
    q, stored, indices = arguments(4, 10, 3)
    chosen = indices[indices >= 0].unique()
    others = [i for i in range(1, 10) if i not in chosen]  # 0 stands in where a row has none
    stored[others] = float("nan")

    assert others
    assert not sparse_mla(q, stored, indices, RANK, SCALE).isnan().any()


def test_large_scores_do_not_overflow():
    q, stored, indices = arguments(4, 10, 3)

    found = sparse_mla(q * 1e4, stored, indices, RANK, SCALE)

    assert torch.allclose(found, reference(q * 1e4, stored, indices, RANK, SCALE), atol=1e-4)


def test_bf16_keeps_its_type():
    q, stored, indices = arguments(4, 10, 3)

    found = sparse_mla(q.bfloat16(), stored.bfloat16(), indices, RANK, SCALE)

    assert found.dtype == torch.bfloat16
    assert torch.allclose(found.float(), reference(q, stored, indices, RANK, SCALE), atol=0.05)


def test_packed_entries():
    q, stored, indices = arguments(9, 50, 7)
    packed = pack(stored[:, :RANK], stored[:, RANK:])

    found = sparse_mla(q, packed, indices, RANK, SCALE)

    assert torch.allclose(found, reference(q, packed, indices, RANK, SCALE), atol=1e-5)
    assert torch.allclose(found, reference(q, stored, indices, RANK, SCALE), atol=0.3)


def test_arguments_that_do_not_fit_are_refused():
    q, stored, indices = arguments(4, 10, 3)
    with pytest.raises(ValueError, match="do not fit"):
        sparse_mla(q, stored[:, 1:], indices, RANK, SCALE)
    with pytest.raises(ValueError, match="do not fit"):
        sparse_mla(q, pack(stored[:, :RANK]), indices, RANK, SCALE)
    with pytest.raises(ValueError, match="for 4 rows"):
        sparse_mla(q, stored, indices[1:], RANK, SCALE)
    with pytest.raises(ValueError, match="int64"):
        sparse_mla(q, stored, indices.long(), RANK, SCALE)
    with pytest.raises(ValueError, match="latents of 33"):
        sparse_mla(q, stored, indices, RANK + ROPE + 1, SCALE)
    with pytest.raises(ValueError, match=r"entries of torch\.int8"):
        sparse_mla(q, stored.to(torch.int8), indices, RANK, SCALE)


@pytest.mark.parametrize(("scaled", "exact"), [(512, 64), (128, 0), (24, 8), (200, 2), (1, 0)])
def test_packing(scaled: int, exact: int):
    generator = torch.Generator().manual_seed(0)
    wide = torch.randn(9, scaled, generator=generator)
    rest = torch.randn(9, exact, generator=generator)

    packed = pack(wide, rest if exact else None)
    found = unpack(packed, scaled)

    assert packed.shape == (9, packed_bytes(scaled, exact))
    assert torch.allclose(found[:, :scaled], wide, rtol=1 / 16, atol=0.01)
    assert found[:, scaled:].equal(rest.bfloat16().float())


def test_bytes_of_the_published_layouts():
    assert (packed_bytes(512, 64), packed_bytes(128)) == (656, 132)
