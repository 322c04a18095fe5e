"""A model ready to run: its decoder, tokenizer and chat template, from any place a model can be."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from longctx.errors import DoesNotFitError, ModelError
from longctx.models.config import ModelConfig, read_config
from longctx.models.decoder import Decoder
from longctx.models.device import pick_device, pick_dtype, prepare_process
from longctx.models.native.loaded import (
    NativeModel,
    is_native,
    is_native_gguf,
    load_folder,
    load_gguf,
)
from longctx.models.packed import packed_products
from longctx.models.sources import Progress, silent
from longctx.models.token_ids import checked_ids
from longctx.models.tokenizer import TextTokenizer
from longctx.models.weights.convert import converted_folder
from longctx.models.weights.source import SafetensorsSource
from longctx.paths import cache_dir, ensure


@dataclass(frozen=True)
class LoadedModel:
    """`name` as the user gave it; `digest` identifies the weights and their precision."""

    name: str
    digest: str
    decoder: Decoder
    tokenizer: TextTokenizer
    folder: Path

    @property
    def config(self) -> ModelConfig:
        return self.decoder.config

    def forward(self, token_ids: Sequence[int] | Tensor) -> Tensor:
        """Logits `[T, vocab]` float32 of token ids `[T]`."""
        return self.decoder.forward(checked_ids(token_ids, self.config))


def load(
    name_or_path: str,
    *,
    device: str = "auto",
    dtype: str = "auto",
    packed: bool = True,
    progress: Progress | None = None,
) -> LoadedModel | NativeModel:
    """Resolve, fetch, convert and map a model; a `NativeModel` where it is an IndexShare one.

    With `packed`, models converted from GGUF decode from 4-bit copies of their weights where this
    CPU gains by it; `forward` of the result is the exact model either way.
    `progress(what, done_bytes, total_bytes)` hears downloads and conversion. Raises `ModelError`
    for a model that cannot be had or read, `DoesNotFitError` when memory or disk are too small.
    """
    from longctx.models.registry import resolve

    where = pick_device(device)
    precision = pick_dtype(dtype, where)
    prepare_process()
    resolved = resolve(name_or_path, progress=progress or silent)
    if resolved.kind == "gguf" and is_native_gguf(resolved.path):
        digest = _file_digest(resolved.path, resolved.sha256, precision)
        return load_gguf(resolved.name, resolved.path, digest, precision, where)
    if resolved.kind == "gguf":
        folder = converted_folder(
            resolved.path,
            ensure(cache_dir()),
            precision,
            progress,
            check=lambda config: check_memory(config, precision, where),
        )
    else:
        folder = resolved.path
        if is_native(folder):
            digest = _digest(folder, resolved.sha256, precision)
            memory = memory_total(where)
            return load_folder(resolved.name, folder, digest, precision, where, memory)
    config = read_config(folder / "config.json")
    check_memory(config, precision, where)
    decoder = Decoder(config, SafetensorsSource(folder, precision, where), where)
    if packed and resolved.kind == "gguf":
        decoder.packed = packed_products(decoder, folder, progress)
    return LoadedModel(
        name=resolved.name,
        digest=_digest(folder, resolved.sha256, precision),
        decoder=decoder,
        tokenizer=TextTokenizer.from_directory(folder),
        folder=folder,
    )


def check_memory(config: ModelConfig, dtype: torch.dtype, device: str) -> None:
    """Raise `DoesNotFitError` when the weights alone are larger than the machine's memory."""
    needed = config.parameters * dtype.itemsize
    total = memory_total(device)
    if total and needed > 0.9 * total:
        raise DoesNotFitError(
            f"the model's weights take {needed / 1e9:.1f} GB in {str(dtype)[6:]}, "
            f"{'the GPU' if device == 'cuda' else 'this machine'} has {total / 1e9:.1f} GB; "
            "choose a smaller model"
        )


def memory_total(device: str = "cpu") -> int | None:
    """Bytes of memory of the device, or None where the system does not tell."""
    if device == "cuda":
        return int(torch.cuda.get_device_properties(0).total_memory)
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def _digest(folder: Path, sha256: str | None, dtype: torch.dtype) -> str:
    """Identify weights by content where a hash is known, else by the files' names, sizes, times."""
    identity = [str(dtype)]
    names = ["tokenizer.json"]
    if sha256:
        identity.append(sha256)
    else:
        names.append("config.json")
        for file in sorted(folder.glob("*.safetensors")):
            stat = file.stat()
            identity.append(f"{file.name} {stat.st_size} {stat.st_mtime_ns}")
    for name in names:
        try:
            identity.append(hashlib.sha256((folder / name).read_bytes()).hexdigest())
        except OSError as error:
            raise ModelError(f"{folder}: cannot read {name} ({error.strerror})") from None
    return hashlib.sha256("\n".join(identity).encode()).hexdigest()


def _file_digest(file: Path, sha256: str | None, dtype: torch.dtype) -> str:
    """Identify a file by its hash where it is known, else by name, size and time."""
    stat = file.stat()
    content = sha256 or f"{file.name} {stat.st_size} {stat.st_mtime_ns}"
    return hashlib.sha256(f"{dtype}\n{content}".encode()).hexdigest()
