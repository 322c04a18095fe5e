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
# bf16 products are compiled for every size they are asked for, up to 0.7 MB each that stay in
# memory: a long prompt, whose sizes all differ, would fill it. Rounded up there are few sizes.
KEY_STEP, QUERY_STEP = 256, 32
_precision = threading.Lock()


def tiled(q: Tensor, keys: Tensor, weights: Tensor, first: int, out: Tensor) -> Tensor:
    """Fill `out` `[R, S]`; arguments as in `index_scores`. Keys no row sees are never read."""
    rows, heads, dim = q.shape
    step = max(1, ROWS // heads)
    narrow = q.dtype == keys.dtype == torch.bfloat16 and _fast_bf16(q)
    narrow = narrow and rows * heads >= NARROW_ROWS
    buffer = torch.empty(PRODUCTS, dtype=torch.float32, device=q.device)
    for row in range(0, rows, step):
        part, factors = q[row : row + step], weights[row : row + step, None]
        count = len(part)
        seen = min(len(keys), first + row + count)
        size = _rounded(count) if narrow and _rounded(count) <= step else count
        part = _padded(part.float(), size).flatten(0, 1)
        tile = max(1, PRODUCTS // len(part))
        round_keys = narrow and tile >= KEY_STEP
        if round_keys:
            tile -= tile % KEY_STEP
        for start in range(0, seen, tile):
            block = _floats(keys[start : min(start + tile, seen)], dim)
            width = len(block)
            if round_keys:
                block = _padded(block, width + -width % KEY_STEP)
            products = buffer[: len(part) * len(block)].view(len(part), len(block))
            (_bf16_product if narrow else _product)(part, block.T, products)
            products = products[: count * heads].relu_().view(count, heads, -1)
            scores = out[row : row + count, start : start + width]
            scores.copy_(factors.bmm(products)[:, 0, :width])
    positions = torch.arange(first, first + rows, device=q.device)
    later = torch.arange(len(keys), device=q.device)[first + 1 :]
    out[:, first + 1 :].masked_fill_(later[None] > positions[:, None], float("-inf"))
    return out


def _rounded(count: int) -> int:
    """A multiple of `QUERY_STEP`, or a power of two below it, not less than `count`."""
    if count > QUERY_STEP:
        return count + -count % QUERY_STEP
    return 1 << (count - 1).bit_length()


def _padded(x: Tensor, count: int) -> Tensor:
    """`x` `[N, ...]` with rows of zeros up to `count`."""
    return x if len(x) == count else torch.cat((x, x.new_zeros(count - len(x), *x.shape[1:])))


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
