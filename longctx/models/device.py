"""Where a model runs and in what precision, and how the process is set up for it."""

from __future__ import annotations

import ctypes
import os
import sys

import torch

from longctx.errors import UsageError

DEVICES = ("auto", "cpu", "cuda")
DTYPES = ("auto", "bfloat16", "float32", "float16")
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def pick_device(name: str = "auto") -> str:
    """`cpu` or `cuda`. Raises `UsageError` when CUDA is asked for and absent."""
    if name not in DEVICES:
        raise UsageError(f"unknown device {name!r}; choose one of {', '.join(DEVICES)}")
    present = torch.cuda.is_available()
    if name == "cuda" and not present:
        raise UsageError("no CUDA device is usable here; choose --device cpu, see longctx doctor")
    return "cuda" if present and name != "cpu" else "cpu"


def pick_dtype(name: str, device: str) -> torch.dtype:
    """bf16 where the hardware multiplies it, float32 elsewhere, unless a dtype is named."""
    if name not in DTYPES:
        raise UsageError(f"unknown dtype {name!r}; choose one of {', '.join(DTYPES)}")
    if name != "auto":
        return getattr(torch, name)
    if device == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    return torch.bfloat16 if has_bf16_products() else torch.float32


def has_bf16_products() -> bool:
    """Whether this CPU has bf16 matrix instructions (AVX-512 BF16 or AMX, or Arm's)."""
    capability = torch.backends.cpu.get_cpu_capability()
    if capability.startswith("AVX"):
        return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
    return bool(getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)())


def prepare_process() -> None:
    """Keep freed activations in the heap, so that a layer's buffers are not mapped anew.

    glibc maps blocks above 32 MB afresh each time; the page faults cost up to a quarter of a
    2,048-row layer. A no-op elsewhere.
    """
    if sys.platform != "linux" or os.environ.get("LONGCTX_NO_MALLOPT"):
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt") and hasattr(libc, "gnu_get_libc_version"):
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 30)
        libc.mallopt(_M_TRIM_THRESHOLD, 512 << 20)


def release_memory() -> None:
    """Give freed heap back to the system, after indexing and before the whole model is read."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if hasattr(libc, "malloc_trim"):
            libc.malloc_trim(0)
