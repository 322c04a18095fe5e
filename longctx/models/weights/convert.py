"""Turn a GGUF file into a memory-mappable model folder, once.

The folder (`config.json`, `tokenizer.json`, `chat_template.jinja`, `model.safetensors`) is what a
Hugging Face checkpoint looks like, so one loader serves both; `source.json` names the file it came
from and the format version, and a folder that does not match is made again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
from collections.abc import Callable
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from longctx.atomic import check_free, replace_folder
from longctx.errors import ModelError
from longctx.models.config import ModelConfig, parse_config
from longctx.models.decoder import Decoder
from longctx.models.sources import Progress
from longctx.models.weights.gguf import GGUFFile
from longctx.models.weights.source import SINGLE_FILE

FORMAT_VERSION = 1
DTYPE_NAMES = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32"}


def converted_folder(
    gguf_path: Path,
    cache: Path,
    dtype: torch.dtype,
    progress: Progress | None = None,
    check: Callable[[ModelConfig], None] = lambda config: None,
) -> Path:
    """The folder of `gguf_path` in `dtype` under `cache`, converted now if it is not there.

    `check` may refuse the model by raising, before minutes go into converting it. Raises
    `ModelError` for an unreadable or incomplete file, `DoesNotFitError` when the disk is too small.
    """
    stat = gguf_path.stat()
    source = {
        "format": FORMAT_VERSION,
        "file": gguf_path.name,
        "size": stat.st_size,
        "mtime_ns": stat.st_mtime_ns,
        "dtype": DTYPE_NAMES[dtype],
    }
    identity = f"{gguf_path.resolve()}\n{json.dumps(source, sort_keys=True)}"
    key = hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    folder = cache / "converted" / f"{gguf_path.stem}-{key}"
    if _valid(folder, source):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    gguf = GGUFFile(gguf_path)
    config = parse_config(gguf.config())
    check(config)
    shapes = gguf.shapes()
    _check_complete(gguf_path, config, shapes)
    size = sum(map(prod, shapes.values())) * dtype.itemsize
    check_free(folder.parent, size + 64 * 1024**2, f"the converted weights of {gguf_path.name}")
    with replace_folder(folder) as work:
        _write_weights(gguf, work / SINGLE_FILE, dtype, progress)
        (work / "config.json").write_text(json.dumps(gguf.config(), indent=1), encoding="utf-8")
        _write_tokenizer(gguf_path, work)
        source["weights_size"] = (work / SINGLE_FILE).stat().st_size
        (work / "source.json").write_text(json.dumps(source, indent=1), encoding="utf-8")
    return folder


def remove_converted(gguf_path: Path, cache: Path) -> int:
    """Delete what was converted from files of `gguf_path`'s name; returns the bytes freed."""
    freed = 0
    for folder in (cache / "converted").glob("*"):
        if folder.name.rpartition("-")[0] != gguf_path.stem:
            continue
        freed += sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
        shutil.rmtree(folder, ignore_errors=True)
    return freed


def _valid(folder: Path, source: dict) -> bool:
    try:
        found = json.loads((folder / "source.json").read_text(encoding="utf-8"))
        size = (folder / SINGLE_FILE).stat().st_size
    except (OSError, ValueError):
        return False
    whole = all((folder / name).is_file() for name in ("config.json", "tokenizer.json"))
    return whole and found == source | {"weights_size": size}


class _Shapes:
    """A weight source without values: what a decoder takes from it is what a file must hold."""

    def __init__(self, path: Path, shapes: dict[str, tuple[int, ...]]):
        self.path, self.left = path, dict(shapes)

    def tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        found = self.left.pop(name, None)
        if found is None:
            raise ModelError(f"{self.path}: tensor {name} is missing; fetch it again")
        if found != shape:
            raise ModelError(
                f"{self.path}: tensor {name} has shape {found}, its settings ask for {shape}"
            )
        return torch.empty(shape, device="meta")


def _check_complete(path: Path, config: ModelConfig, shapes: dict[str, tuple[int, ...]]) -> None:
    """Raise `ModelError` unless these are the tensors of such a decoder, no less and no more."""
    source = _Shapes(path, shapes)
    Decoder(config, source, "meta")
    for name in source.left:
        raise ModelError(f"{path}: unexpected tensor {name!r} for {config.family}")


def _write_weights(
    gguf: GGUFFile, path: Path, dtype: torch.dtype, progress: Progress | None
) -> None:
    """Write a safetensors file tensor by tensor, so that only one is ever in memory."""
    header: dict[str, dict] = {}
    end = 0
    for name, shape in gguf.shapes().items():
        start, end = end, end + prod(shape) * dtype.itemsize
        header[name] = {
            "dtype": DTYPE_NAMES[dtype],
            "shape": list(shape),
            "data_offsets": [start, end],
        }
    blob = json.dumps(header).encode()
    blob += b" " * (-len(blob) % 64)  # data starts aligned, so that mapped tensors are too

    def report(done: int, total: int) -> None:
        if progress:
            progress(f"converting {gguf.path.name}", done * dtype.itemsize, total * dtype.itemsize)

    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(blob)) + blob)
        for _, tensor in gguf.tensors(dtype, report):
            file.write(tensor.contiguous().view(torch.uint8).numpy().data)
        file.flush()
        os.fsync(file.fileno())


def _write_tokenizer(gguf_path: Path, folder: Path) -> None:
    from longctx.models.tokenizer import TextTokenizer

    TextTokenizer.from_gguf(gguf_path).save(folder)
