"""Score every key of a context against a few queries and keep the best of each block."""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor

from longctx.kernels.block_scores.reference import reference

__all__ = ["block_scores", "reference"]

TILE_TOKENS = 16_384


def block_scores(q: Tensor, keys: Tensor, scales: Tensor | None, block: int) -> Tensor:
    """Exact best score per block: `out[r, b] = max over t in block b of q[r] . k[t] / sqrt(d)`.

    `q` `[R, d]` float rows (heads and question tokens flattened), `keys` `[T, d]` un-rotated,
    int8 with per-token `scales` `[T]` float16, or bf16/float32 with `scales` None. Blocks are
    `block` tokens each from token 0; the last may be shorter. Returns float32
    `[R, ceil(T / block)]`. Keys are read once, in order, in tiles: scores of single tokens are
    never kept, so memory stays flat whatever T is.
    """
    if q.ndim != 2 or keys.ndim != 2 or q.shape[1] != keys.shape[1]:
        raise ValueError(f"q {tuple(q.shape)} and keys {tuple(keys.shape)} do not fit together")
    if (scales is None) != keys.is_floating_point():
        raise ValueError("int8 keys need scales, float keys take none")
    if scales is not None and len(scales) != len(keys):
        raise ValueError(f"{len(keys)} keys and {len(scales)} scales do not fit together")
    if block < 1:
        raise ValueError(f"a block of {block} tokens")
    total, rows = len(keys), len(q)
    compute = torch.bfloat16 if keys.device.type == "cuda" or not _wide(keys) else torch.float32
    weights = (q.float() / q.shape[1] ** 0.5).to(compute)
    if keys.device.type == "cuda" and _triton_fits(keys.shape[1], block):
        from longctx.kernels.block_scores.triton import gpu_block_scores

        return gpu_block_scores(weights, keys, scales, block)
    out = torch.empty(rows, -(-total // block), dtype=torch.float32, device=keys.device)
    tile = max(block, TILE_TOKENS // block * block)
    buffer = torch.empty(min(tile, total) * rows, dtype=compute, device=keys.device)
    for start in range(0, total, tile):
        part = keys[start : start + tile]
        scores = buffer[: len(part) * rows].view(len(part), rows)
        torch.mm(part.to(compute), weights.T, out=scores)
        if scales is not None:
            scores *= scales[start : start + tile, None].to(compute)
        whole = len(part) // block * block
        first = start // block
        if whole:
            best = scores[:whole].view(whole // block, block, rows).amax(dim=1)
            out[:, first : first + len(best)] = best.T
        if whole < len(part):
            out[:, -1] = scores[whole:].amax(dim=0)
    return out


def _triton_fits(dim: int, block: int) -> bool:
    """Powers of two that fill a tensor core's tile and not more than a GPU's shared memory."""
    powers = all(size & (size - 1) == 0 for size in (dim, block))
    sizes = powers and dim >= 16 and block >= 4 and dim * block <= 8192
    return sizes and find_spec("triton") is not None


def _wide(keys: Tensor) -> bool:
    return keys.dtype == torch.float32
