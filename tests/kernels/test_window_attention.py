"""Which keys a chunk's queries read, and that attention over them is ordinary attention."""

from __future__ import annotations

import torch

from longctx.kernels.window_attention import chunk_mask, window_attention

SINKS, WINDOW = 2, 3


def readable(has_previous: bool) -> list[str]:
    """The mask of one chunk as lines of sinks, previous chunk and own chunk."""
    mask = chunk_mask(torch.tensor([has_previous]), SINKS, WINDOW)
    assert mask.shape == (1, 1, WINDOW, SINKS + 2 * WINDOW)
    cut = (SINKS, SINKS + WINDOW)
    lines = ["".join("x" if seen else "." for seen in row) for row in mask[0, 0].tolist()]
    return [f"{line[: cut[0]]} {line[cut[0] : cut[1]]} {line[cut[1] :]}" for line in lines]


def test_a_first_chunk_reads_sinks_and_itself():
    assert readable(False) == [
        "xx ... x..",
        "xx ... xx.",
        "xx ... xxx",
    ]


def test_a_later_chunk_reads_its_predecessor_too():
    assert readable(True) == [
        "xx xxx x..",
        "xx xxx xx.",
        "xx xxx xxx",
    ]


def test_each_chunk_of_a_batch_has_its_own_mask():
    both = chunk_mask(torch.tensor([False, True]), SINKS, WINDOW)

    assert torch.equal(both[:1], chunk_mask(torch.tensor([False]), SINKS, WINDOW))
    assert torch.equal(both[1:], chunk_mask(torch.tensor([True]), SINKS, WINDOW))


def test_no_sinks():
    mask = chunk_mask(torch.tensor([False]), 0, WINDOW)

    assert mask.shape == (1, 1, WINDOW, 2 * WINDOW)
    assert mask.any(dim=-1).all(), "a row that may read nothing would give NaN"


def test_attention_over_the_mask_is_softmax_attention():
    heads, kv_heads, dim = 4, 2, 8
    draw = torch.Generator().manual_seed(0)
    q = torch.randn(2, heads, WINDOW, dim, generator=draw)
    k, v = (torch.randn(2, kv_heads, SINKS + 2 * WINDOW, dim, generator=draw) for _ in range(2))
    mask = chunk_mask(torch.tensor([False, True]), SINKS, WINDOW)

    found = window_attention(q, k, v, mask)

    assert found.shape == (2, WINDOW, heads * dim)
    for chunk in range(2):
        for head in range(heads):
            keys, values = k[chunk, head // 2], v[chunk, head // 2]
            scores = q[chunk, head] @ keys.T / dim**0.5
            scores = scores.masked_fill(~mask[chunk, 0], float("-inf"))
            wanted = scores.softmax(dim=-1) @ values
            part = found[chunk, :, head * dim : (head + 1) * dim]
            assert torch.allclose(part, wanted, atol=1e-5)


def test_masked_keys_do_not_count_however_large():
    q = torch.ones(1, 1, WINDOW, 4)
    k, v = torch.ones(1, 1, SINKS + 2 * WINDOW, 4), torch.ones(1, 1, SINKS + 2 * WINDOW, 4)
    k[:, :, SINKS : SINKS + WINDOW] = 1e4
    v[:, :, SINKS : SINKS + WINDOW] = 1e4

    found = window_attention(q, k, v, chunk_mask(torch.tensor([False]), SINKS, WINDOW))

    assert torch.allclose(found, torch.ones(1, WINDOW, 4))
