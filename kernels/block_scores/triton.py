"""Block scores on a GPU: one program scores a few blocks for a tile of query rows.

Scores of single tokens live in registers only; what is written is one value a row and block.
Importing this module needs triton; it runs on CUDA, and in Triton's interpreter for tests (there
with float16, since the interpreter multiplies bf16 wrongly).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = 64
BLOCKS = 4


@triton.jit
def _scores(
    q_pointer,
    key_pointer,
    scale_pointer,
    out_pointer,
    rows,
    tokens,
    blocks,
    DIM: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCKS: tl.constexpr,
    SCALED: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    first = tl.program_id(1).to(tl.int64) * BLOCKS
    token = first * BLOCK + tl.arange(0, BLOCKS * BLOCK)
    dim = tl.arange(0, DIM)
    q = tl.load(q_pointer + row[:, None] * DIM + dim[None, :], mask=row[:, None] < rows, other=0.0)
    inside = token < tokens
    k = tl.load(
        key_pointer + token[:, None] * DIM + dim[None, :], mask=inside[:, None], other=0.0
    ).to(q.dtype)
    scores = tl.dot(q, tl.trans(k))  # [ROWS, BLOCKS * BLOCK] float32
    if SCALED:
        scale = tl.load(scale_pointer + token, mask=inside, other=0.0).to(tl.float32)
        scores = scores * scale[None, :]
    scores = tl.where(inside[None, :], scores, float("-inf"))
    best = tl.max(tl.reshape(scores, (ROWS, BLOCKS, BLOCK)), axis=2)
    block = first + tl.arange(0, BLOCKS)
    tl.store(
        out_pointer + row[:, None].to(tl.int64) * blocks + block[None, :],
        best,
        mask=(row[:, None] < rows) & (block[None, :] < blocks),
    )


def gpu_block_scores(q: Tensor, keys: Tensor, scales: Tensor | None, block: int) -> Tensor:
    """As `block_scores`; `q` already scaled and in the dtype to multiply in, `[R, d]`.

    `block` and `d` must be powers of two, `d` at least 16, `block` at least 4.
    """
    rows, dim = q.shape
    keys = keys.contiguous()
    blocks = triton.cdiv(len(keys), block)
    out = torch.empty(rows, blocks, dtype=torch.float32, device=keys.device)
    if not out.numel():
        return out
    grid = (triton.cdiv(rows, ROWS), triton.cdiv(blocks, BLOCKS))
    _scores[grid](
        q.contiguous(),
        keys,
        keys if scales is None else scales.contiguous(),
        out,
        rows,
        len(keys),
        blocks,
        DIM=dim,  # type: ignore[arg-type]
        BLOCK=block,  # type: ignore[arg-type]
        ROWS=ROWS,  # type: ignore[arg-type]
        BLOCKS=BLOCKS,  # type: ignore[arg-type]
        SCALED=scales is not None,  # type: ignore[arg-type]
    )
    return out
