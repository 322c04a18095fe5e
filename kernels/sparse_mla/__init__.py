"""Attention of every query row over the cached latent entries chosen for it (absorbed MLA)."""

from __future__ import annotations

import torch
from torch import Tensor

from longctx.kernels.sparse_mla.packed import packed_bytes
from longctx.kernels.sparse_mla.reference import reference

__all__ = ["reference", "sparse_mla"]


def sparse_mla(q: Tensor, entries: Tensor, indices: Tensor, rank: int, scale: float) -> Tensor:
    """`softmax(q . entry * scale)` over a row's entries, times their latents: `[R, H, rank]`.

    `q` `[R, H, rank + rope]` holds absorbed queries and rotated ones side by side. `entries` are
    `[S, rank + rope]` of a float dtype, latent first, or uint8 `[S, bytes]` as `packed` stores
    them. `indices` int32 `[R, k]` names each row's entries, -1 none; a row of none gives zeros.
    Sums and softmax are float32, the result has q's dtype (specification 3.1, steps 4 and 6).
    Raises `ValueError` for arguments that do not fit together.
    """
    rows, _, width = q.shape
    packed = entries.dtype == torch.uint8
    if not 0 < rank <= width:
        raise ValueError(f"latents of {rank} numbers in queries of {width}")
    wanted = packed_bytes(rank, width - rank) if packed else width
    if entries.ndim != 2 or entries.shape[1] != wanted:
        raise ValueError(
            f"q {tuple(q.shape)} and entries {tuple(entries.shape)} do not fit together"
        )
    if not (packed or entries.is_floating_point()) or not q.is_floating_point():
        raise ValueError(f"queries of {q.dtype} and entries of {entries.dtype}")
    if indices.ndim != 2 or len(indices) != rows or indices.dtype != torch.int32:
        raise ValueError(f"indices {tuple(indices.shape)} of {indices.dtype} for {rows} rows")
    from longctx.kernels.sparse_mla.cpu import gathered

    return gathered(q, entries, indices, rank, scale)
