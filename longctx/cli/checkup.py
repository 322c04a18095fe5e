"""What `longctx doctor` looks at: one finding each, with what to do where something is missing.

Nothing here prints, and nothing raises because a part is absent: that is a finding.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from longctx.cli import amounts
from longctx.cli.machine import memory, processors
from longctx.errors import LongctxError

DISTRIBUTION = "longctx-indexshare"
_NEEDED = {
    "torch": "torch",
    "numpy": "numpy",
    "safetensors": "safetensors",
    "tokenizers": "tokenizers",
    "gguf": "gguf",
    "jinja2": "jinja2",
    "huggingface_hub": "huggingface-hub",
    "rich": "rich",
    "platformdirs": "platformdirs",
    "pathspec": "pathspec",
    "charset_normalizer": "charset-normalizer",
    "pypdf": "pypdf",
    "bm25s": "bm25s",
}
_OPTIONAL = {
    "cryptography": ("cryptography", "PDFs with AES encryption"),
    "hf_xet": ("hf-xet", "faster fetching from Hugging Face"),
}

Status = Literal["ok", "note", "missing"]


@dataclass(frozen=True)
class Finding:
    """`missing` is essential and makes the checkup fail; `note` is good to know."""

    name: str
    status: Status
    value: str
    advice: str = ""


def checkup() -> Iterator[Finding]:
    """Every finding, in the order they are shown."""
    yield Finding("longctx", "ok", f"{_version(DISTRIBUTION)}, Python {platform.python_version()}")
    yield from _packages()
    if _present("torch"):
        yield from _compute()
    yield _memory()
    yield from _disk()
    yield from _models()


def _packages() -> Iterator[Finding]:
    absent = [name for module, name in _NEEDED.items() if not _present(module)]
    install = f"{sys.executable} -m pip install {' '.join(absent)}"
    if absent:
        yield Finding("packages", "missing", f"not installed: {', '.join(absent)}", install)
    else:
        yield Finding("packages", "ok", f"all {len(_NEEDED)} needed are installed")
    for module, (name, use) in _OPTIONAL.items():
        if not _present(module):
            yield Finding(
                "optional", "note", f"{name} is not installed: {use}", f"pip install {name}"
            )


def _compute() -> Iterator[Finding]:
    try:
        import torch
    except (ImportError, OSError) as error:  # a broken build: a library it needs is absent
        yield Finding("device", "missing", f"torch does not load: {error}", "reinstall torch")
        return
    if torch.cuda.is_available():
        cards = range(torch.cuda.device_count())
        shown = [torch.cuda.get_device_properties(card) for card in cards]
        names = ", ".join(f"{card.name} ({amounts.size(card.total_memory)})" for card in shown)
        yield Finding("device", "ok", f"CUDA {torch.version.cuda}: {names}")
    else:
        built = torch.version.cuda is not None
        yield Finding(
            "device",
            "ok",
            f"CPU (torch {torch.__version__})",
            "the CUDA build of torch finds no device: check the driver" if built else "",
        )
    yield _processor()
    yield _kernels(torch.cuda.is_available())
    waiting = os.environ.get("OMP_WAIT_POLICY", "not set")
    yield Finding(
        "threads",
        "ok" if waiting.upper() == "PASSIVE" else "note",
        f"{torch.get_num_threads()} of {processors()} processors, OMP_WAIT_POLICY {waiting}",
        "" if waiting.upper() == "PASSIVE" else "export OMP_WAIT_POLICY=PASSIVE",
    )


def _processor() -> Finding:
    import torch

    from longctx.models.device import has_bf16_products

    features = [torch.backends.cpu.get_cpu_capability()]
    for name, test in (
        ("AVX512-bf16", "_is_avx512_bf16_supported"),
        ("AMX", "_is_amx_tile_supported"),
    ):
        if getattr(torch.cpu, test, lambda: False)():
            features.append(name)
    fast = has_bf16_products()
    return Finding(
        "processor",
        "ok",
        f"{platform.machine()}, {', '.join(features)}",
        "" if fast else "no bf16 products: models run in float32 and take twice the memory",
    )


def _kernels(needed: bool) -> Finding:
    if _present("triton"):
        return Finding("kernels", "ok", f"triton {_version('triton')}")
    return Finding(
        "kernels",
        "note",
        "triton is not installed: plain torch is used",
        "pip install triton" if needed else "",
    )


def _memory() -> Finding:
    found = memory()
    if found.total is None:
        return Finding("memory", "note", "the system does not tell")
    free = f", {amounts.size(found.free)} free" if found.free is not None else ""
    return Finding("memory", "ok", f"{amounts.size(found.total)}{free}")


def _disk() -> Iterator[Finding]:
    from longctx.paths import HOME_VARIABLE, cache_dir

    folder = cache_dir()
    place = folder
    while not place.exists() and place != place.parent:
        place = place.parent
    free = amounts.size(shutil.disk_usage(place).free)
    if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
        yield Finding("cache", "ok", f"{folder}, {free} free")
    else:
        advice = f"set {HOME_VARIABLE} to a folder you may write to"
        yield Finding("cache", "missing", f"{folder} cannot be written", advice)
    segments, size = _folder_size(folder / "segments")
    yield Finding(
        "store", "ok", f"{amounts.count(segments, 'file')} of index, {amounts.size(size)}"
    )


def _models() -> Iterator[Finding]:
    try:
        from longctx.models import registry

        infos = registry.list_models()
    except (ImportError, OSError) as error:
        yield Finding("models", "missing", f"cannot be listed: {error}", "see packages above")
        return
    for info in infos:
        size = amounts.size(info.size)
        name = f"{info.name} (default)" if info.default else info.name
        if info.path is None:
            advice = f"longctx models pull {info.name}"
            when = "is fetched when first used" if info.default else "not fetched"
            yield Finding("model", "note", f"{name}: {when}, {size}", advice)
            continue
        try:
            registry.resolve(info.name, download=False)
        except (LongctxError, OSError) as error:
            yield Finding(
                "model", "missing", f"{name}: {error}", f"longctx models pull {info.name}"
            )
        else:
            yield Finding("model", "ok", f"{name}: whole, {size}")


def _folder_size(folder: Path) -> tuple[int, int]:
    """Files and bytes below a folder, which may be absent or change meanwhile."""
    files = size = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.lstat(os.path.join(root, name)).st_size
                files += 1
            except OSError:
                continue  # deleted since it was listed
    return files, size


def _present(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "unknown version"
