"""Index scores tile by tile: one product, one relu, one weighted sum over the heads.

80 rows of 8 heads of 64 over 1,024 keys, one core: 8.0 ns a pair in float32, of which the product
is 5.6; 4.4 where queries and keys are bf16 and the CPU multiplies those in hardware.
"""

from __future__ import annotations

import threading

import torch
from torch import Tensor

from longctx.kernels.sparse_mla.packed import unpack

ROWS = 1024  # (query, head) pairs in one product
PRODUCTS = 1 << 20  # float32 numbers of one product, 4 MB
NARROW_ROWS = 64  # below this the conversion costs more than the product gains
_precision = threading.Lock()


def tiled(q: Tensor, keys: Tensor, weights: Tensor, first: int, out: Tensor) -> Tensor:
    """Fill `out` `[R, S]`; arguments as in `index_scores`. Keys no row sees are never read."""
    rows, heads, dim = q.shape
    step = max(1, ROWS // heads)
    narrow = q.dtype == keys.dtype == torch.bfloat16 and _fast_bf16(q)
    multiply = _bf16_product if narrow and rows * heads >= NARROW_ROWS else _product
    buffer = torch.empty(PRODUCTS, dtype=torch.float32, device=q.device)
    for row in range(0, rows, step):
        part = q[row : row + step].float().flatten(0, 1)
        factors = weights[row : row + step, None]
        count = len(part) // heads
        seen = min(len(keys), first + row + count)
        tile = max(1, PRODUCTS // len(part))
        for start in range(0, seen, tile):
            block = _floats(keys[start : min(start + tile, seen)], dim)
            products = buffer[: len(part) * len(block)].view(len(part), len(block))
            multiply(part, block.T, products)
            products.relu_()
            scores = out[row : row + count, start : start + len(block)]
            scores.copy_(factors.bmm(products.view(count, heads, -1))[:, 0])
    positions = torch.arange(first, first + rows, device=q.device)
    later = torch.arange(len(keys), device=q.device)[first + 1 :]
    out[:, first + 1 :].masked_fill_(later[None] > positions[:, None], float("-inf"))
    return out


def _floats(keys: Tensor, dim: int) -> Tensor:
    return unpack(keys, dim) if keys.dtype == torch.uint8 else keys.float()


def _fast_bf16(q: Tensor) -> bool:
    return (
        q.device.type == "cpu"
        and torch.backends.mkldnn.is_available()
        and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )


def _product(a: Tensor, b: Tensor, out: Tensor) -> None:
    torch.mm(a, b, out=out)


def _bf16_product(a: Tensor, b: Tensor, out: Tensor) -> None:
    """As `_product`, of float32 operands that are bf16 numbers: read as such they lose nothing.

    The sums stay float32. The setting is the whole process's: it must not last beyond the product,
    and two threads must not put back each other's.
    """
    settings = getattr(torch.backends.mkldnn, "matmul")  # noqa: B009 (not known to the stubs)
    with _precision:
        before = settings.fp32_precision
        settings.fp32_precision = "bf16"
        try:
            torch.mm(a, b, out=out)
        finally:
            settings.fp32_precision = before
