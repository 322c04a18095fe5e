"""What this machine does a second, measured with the shapes of a model: disk, products, kernels.

A few seconds in all. Nothing of a model is read: numbers are drawn, shapes are the config's.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from longctx.accounting.forecast import Rates
from longctx.accounting.native import Sizes, core_per_key, indexer_per_key
from longctx.atomic import check_free, disk_full_message

if TYPE_CHECKING:
    from torch import Tensor

DISK_BYTES = 1 << 28  # written and read back: 256 MB
TIMED_SECONDS = 0.4  # of each operation, after one that is not timed
_BLOCK = 1 << 22
_KEYS = 1 << 16  # index keys and latents that a row reads from
_ROWS = 16


def measure(
    sizes: Sizes, folder: Path, *, chunk_tokens: int = 1024, disk_bytes: int = DISK_BYTES
) -> Rates:
    """Rates of the disk of `folder` and of this machine's CPU, for chunks of `chunk_tokens`.

    Raises `DoesNotFitError` where the disk has no room for `disk_bytes`.
    """
    write, read = disk(folder, disk_bytes)
    narrow = max(1, chunk_tokens * sizes.experts_per_token // sizes.experts)
    return Rates(
        read=read,
        write=write,
        products=_products(sizes, min(chunk_tokens, 1024)),
        experts=_products(sizes, min(narrow, 1024)),
        scores=_scores(sizes),
        core=_core(sizes),
        widen=_widen(sizes),
    )


def disk(folder: Path, size: int = DISK_BYTES) -> tuple[float, float]:
    """Bytes a second written to the disk of `folder`, and read back as weights are: mapped.

    What was written is forced to the disk and dropped from memory before it is read, where the
    system can; elsewhere reading is that of the memory.
    """
    import torch

    check_free(folder, size, "timing the disk")
    block = os.urandom(min(_BLOCK, size))
    with tempfile.TemporaryFile(dir=folder, prefix=".longctx-", buffering=0) as file:
        begin = time.perf_counter()
        with disk_full_message(folder / "timing"):
            for start in range(0, size, len(block)):
                file.write(block[: size - start])
            os.fsync(file.fileno())
        write = size / (time.perf_counter() - begin)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        with mmap.mmap(file.fileno(), size) as mapped:
            numbers = torch.frombuffer(mapped, dtype=torch.uint8)
            begin = time.perf_counter()
            for part in numbers.split(_BLOCK):
                part.amax()
            read = size / (time.perf_counter() - begin)
            del numbers, part
    return write, read


def _per_second(amount: float, work: Callable[[], object]) -> float:
    """`amount` a call, per second: the fastest of the calls that fit `TIMED_SECONDS`."""
    work()
    best, end = float("inf"), time.perf_counter() + TIMED_SECONDS
    while True:
        begin = time.perf_counter()
        work()
        now = time.perf_counter()
        best = min(best, now - begin)
        if now > end:
            return amount / best


def _drawn(*shape: int) -> Tensor:
    import torch

    return torch.randn(*shape).to(torch.bfloat16)


def _products(sizes: Sizes, rows: int) -> float:
    """FLOP a second of `rows` by an expert's matrices, each other than the one before."""
    from torch.nn.functional import linear

    x, inner = _drawn(rows, sizes.hidden), sizes.expert_intermediate
    weights = [_drawn(inner, sizes.hidden) for _ in range(4)]
    flops = 2 * len(weights) * rows * inner * sizes.hidden
    return _per_second(flops, lambda: [linear(x, weight) for weight in weights])


def _scores(sizes: Sizes) -> float:
    import torch

    from longctx.kernels.index_scores import index_scores
    from longctx.kernels.index_select import index_select

    queries = _drawn(_ROWS, sizes.index_heads, sizes.index_dim)
    keys, weights = _drawn(_KEYS, sizes.index_dim), torch.randn(_ROWS, sizes.index_heads)
    out = torch.empty(_ROWS, _KEYS)

    def work() -> None:
        index_scores(queries, keys, weights, _KEYS - _ROWS, out)
        index_select(out, sizes.index_topk)

    return _per_second(indexer_per_key(sizes) * _ROWS * _KEYS, work)


def _core(sizes: Sizes) -> float:
    import torch

    from longctx.kernels.sparse_mla import sparse_mla

    width, k = sizes.kv_rank + sizes.rope_dim, min(sizes.index_topk, _KEYS)
    queries, entries = _drawn(_ROWS, sizes.heads, width), _drawn(_KEYS, width)
    chosen = torch.rand(_ROWS, _KEYS).topk(k).indices.sort().values.int()
    flops = core_per_key(sizes, absorbed=True) * _ROWS * k
    return _per_second(flops, lambda: sparse_mla(queries, entries, chosen, sizes.kv_rank, 0.1))


def _widen(sizes: Sizes) -> float:
    import torch

    from longctx.kernels.fp8_blocks import dequantise_weight, quantise_weight

    stored, scales = quantise_weight(torch.randn(512, sizes.hidden))
    into = torch.empty(512, sizes.hidden, dtype=torch.bfloat16)
    return _per_second(
        stored.nbytes, lambda: dequantise_weight(stored, scales, torch.bfloat16, into)
    )
