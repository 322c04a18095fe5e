"""Whether a folder is a whole model of the Hugging Face layout: settings, tokenizer, weights.

It looks at names, sizes and headers, never at tensors.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

from longctx.errors import ModelError

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


def model_files(folder: Path) -> list[Path]:
    """The files directly in a model's folder, hidden ones aside."""
    return sorted(f for f in folder.iterdir() if f.is_file() and not f.name.startswith("."))


def check_folder(folder: Path) -> None:
    """Raise `ModelError`, saying what is missing, unless the folder holds a whole model."""
    for name in ("config.json", "tokenizer.json"):
        if not (folder / name).is_file():
            raise ModelError(f"{folder}: no {name} there; a model folder needs one")
    for name in _weight_files(folder):
        _check_weights(folder / name)


def _weight_files(folder: Path) -> list[str]:
    index = folder / INDEX
    if index.is_file():
        try:
            table = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            return sorted({str(name) for name in table.values()})
        except (OSError, ValueError, KeyError, AttributeError):
            raise ModelError(f"{index}: not a readable index; fetch the model again") from None
    if (folder / WEIGHTS).is_file():
        return [WEIGHTS]
    others = ("*.bin", "*.pt", "*.pth", "*.h5", "*.onnx", "*.msgpack")
    if any(next(folder.glob(pattern), None) for pattern in others):
        raise ModelError(f"{folder}: its weights are not safetensors; choose such a version of it")
    raise ModelError(f"{folder}: no {WEIGHTS} there; a model folder needs one")


def _check_weights(file: Path) -> None:
    """Compare a safetensors file's length with what its header promises."""
    try:
        with file.open("rb") as data:
            length = struct.unpack("<Q", data.read(8))[0]
            size = file.stat().st_size
            header = json.loads(data.read(length)) if length < size else {}
        ends = [t["data_offsets"][1] for name, t in header.items() if name != "__metadata__"]
        promised = 8 + length + max(ends, default=0)
    except FileNotFoundError:
        raise ModelError(f"{file}: missing; fetch the model again") from None
    except (OSError, ValueError, struct.error, KeyError, TypeError, AttributeError):
        raise ModelError(f"{file}: not a readable safetensors file; fetch it again") from None
    if size != promised:
        raise ModelError(f"{file}: {size:,} bytes of {promised:,} are there; fetch it again")
