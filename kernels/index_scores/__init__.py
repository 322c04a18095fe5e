"""Lightning indexer scores of a few query rows over every key they may see."""

from __future__ import annotations

import torch
from torch import Tensor

from longctx.kernels.index_scores.reference import reference
from longctx.kernels.sparse_mla.packed import packed_bytes

__all__ = ["index_scores", "reference"]


def index_scores(
    q: Tensor, keys: Tensor, weights: Tensor, first: int, out: Tensor | None = None
) -> Tensor:
    """`out[r, s] = sum over heads j of weights[r, j] * relu(q[r, j] . keys[s])`, float32 `[R, S]`.

    `q` `[R, H, d]` and `keys` `[S, d]` are rotated and of a float dtype, or `keys` is uint8
    `[S, bytes]` as `sparse_mla.packed` stores it; `weights` float32 `[R, H]` carries both scales
    (specification 3.2) and may be negative. Row r stands at position `first + r`: keys after it
    score -inf. `out` may be given to be written. The products of single heads are only ever held
    for a tile of keys. Raises `ValueError` for arguments that do not fit together.
    """
    rows, heads, dim = q.shape
    packed = keys.dtype == torch.uint8
    if keys.ndim != 2 or keys.shape[1] != (packed_bytes(dim) if packed else dim):
        raise ValueError(f"q {tuple(q.shape)} and keys {tuple(keys.shape)} do not fit together")
    if not (packed or keys.is_floating_point()) or not q.is_floating_point():
        raise ValueError(f"queries of {q.dtype} and keys of {keys.dtype}")
    if weights.shape != (rows, heads) or weights.dtype != torch.float32:
        raise ValueError(f"weights {tuple(weights.shape)} of {weights.dtype} for {rows} rows")
    if first < 0:
        raise ValueError(f"rows from position {first}")
    if out is None:
        out = torch.empty(rows, len(keys), dtype=torch.float32, device=q.device)
    elif out.shape != (rows, len(keys)) or out.dtype != torch.float32:
        raise ValueError(f"scores {tuple(out.shape)} of {out.dtype} for {rows} x {len(keys)}")
    from longctx.kernels.index_scores.cpu import tiled

    return tiled(q, keys, weights, first, out)
