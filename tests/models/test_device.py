"""Where a model runs and in what precision: what is asked for, or the best there is."""

from __future__ import annotations

import pytest
import torch

from longctx.errors import UsageError
from longctx.models import device
from longctx.models.device import has_bf16_products, pick_device, pick_dtype, prepare_process


def set_cuda(monkeypatch: pytest.MonkeyPatch, present: bool, bf16: bool = True) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: present)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: bf16)


@pytest.mark.parametrize(
    ("asked", "present", "picked"),
    [
        ("auto", False, "cpu"),
        ("auto", True, "cuda"),
        ("cpu", False, "cpu"),
        ("cpu", True, "cpu"),
        ("cuda", True, "cuda"),
    ],
)
def test_the_device(asked: str, present: bool, picked: str, monkeypatch: pytest.MonkeyPatch):
    set_cuda(monkeypatch, present)

    assert pick_device(asked) == picked


def test_cuda_asked_for_and_absent(monkeypatch: pytest.MonkeyPatch):
    set_cuda(monkeypatch, present=False)

    with pytest.raises(UsageError, match="no CUDA device is usable here; choose --device cpu"):
        pick_device("cuda")


@pytest.mark.parametrize("name", ["gpu", "", "CUDA", "cuda:0"])
def test_an_unknown_device(name: str):
    with pytest.raises(UsageError, match="choose one of auto, cpu, cuda"):
        pick_device(name)


@pytest.mark.parametrize(
    ("where", "fast", "picked"),
    [
        ("cpu", True, torch.bfloat16),
        ("cpu", False, torch.float32),
        ("cuda", True, torch.bfloat16),
        ("cuda", False, torch.float32),
    ],
)
def test_the_precision_follows_the_hardware(
    where: str, fast: bool, picked: torch.dtype, monkeypatch: pytest.MonkeyPatch
):
    set_cuda(monkeypatch, present=True, bf16=fast and where == "cuda")
    monkeypatch.setattr(device, "has_bf16_products", lambda: fast and where == "cpu")

    assert pick_dtype("auto", where) == picked


@pytest.mark.parametrize("name", ["bfloat16", "float32", "float16"])
def test_a_named_precision_is_taken(name: str):
    assert pick_dtype(name, "cpu") == getattr(torch, name)


@pytest.mark.parametrize("name", ["int8", "bf16", "load", ""])
def test_an_unknown_precision(name: str):
    with pytest.raises(UsageError, match="choose one of auto, bfloat16, float32, float16"):
        pick_dtype(name, "cpu")


@pytest.mark.parametrize(
    ("capability", "bf16", "tiles", "expected"),
    [
        ("AVX512", True, False, True),
        ("AVX512", False, True, True),
        ("AVX512", False, False, False),
        ("AVX2", False, False, False),
    ],
)
def test_bf16_instructions(
    capability: str, bf16: bool, tiles: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: bf16)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: tiles)

    assert has_bf16_products() is expected


def test_preparing_the_process_can_be_repeated():
    prepare_process()
    prepare_process()
