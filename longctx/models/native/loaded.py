"""A native IndexShare checkpoint ready to run: decoder, weights, tokenizer, stop ids."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, overload

import torch
from torch import Tensor

from longctx.errors import DoesNotFitError, ModelError
from longctx.models.gguf_header import read_header
from longctx.models.native.config import NATIVE_FAMILIES, NativeConfig, parse_native_config
from longctx.models.native.decoder import NativeDecoder
from longctx.models.native.streaming import StreamedWeights
from longctx.models.token_ids import checked_ids
from longctx.models.tokenizer import TextTokenizer
from longctx.models.weights.native import NativeSource
from longctx.models.weights.native_gguf import NativeGGUFSource
from longctx.models.weights.native_gguf_config import MODEL_TYPES
from longctx.models.weights.native_names import tensor_shapes

GENERATION_FILE = "generation_config.json"


@dataclass(frozen=True)
class Generation:
    """What `generation_config.json` says: ids that end an answer, and how it is sampled."""

    stop_ids: frozenset[int] = frozenset()
    temperature: float = 1.0
    top_p: float = 1.0


@dataclass(frozen=True)
class NativeModel:
    """`name` as the user gave it; `digest` identifies the weights and their precision."""

    name: str
    digest: str
    decoder: NativeDecoder
    source: StreamedWeights
    tokenizer: TextTokenizer
    folder: Path
    generation: Generation
    warnings: tuple[str, ...] = ()

    @property
    def config(self) -> NativeConfig:
        return self.decoder.config

    @overload
    def forward(
        self, token_ids: Sequence[int] | Tensor, *, return_indices: Literal[False] = False
    ) -> Tensor: ...

    @overload
    def forward(
        self, token_ids: Sequence[int] | Tensor, *, return_indices: Literal[True]
    ) -> tuple[Tensor, list[Tensor]]: ...

    def forward(
        self, token_ids: Sequence[int] | Tensor, *, return_indices: bool = False
    ) -> Tensor | tuple[Tensor, list[Tensor]]:
        """Logits `[T, vocab]` float32 of token ids `[T]`.

        With `return_indices` also what each row attended to, a layer at a time: int32 `[T, k]`,
        ascending positions, -1 at the end where a row sees fewer than k tokens. Raises
        `DoesNotFitError` beyond the model's window, `ValueError` for ids it does not have.
        """
        ids = checked_ids(token_ids, self.config)
        if return_indices:
            return self.decoder.forward(ids, return_indices=True)
        return self.decoder.forward(ids)


def is_native(folder: Path) -> bool:
    """Whether a model folder's `config.json` names one of the IndexShare families."""
    try:
        raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(raw, dict) and raw.get("model_type") in NATIVE_FAMILIES


def load_folder(
    name: str, folder: Path, digest: str, dtype: torch.dtype, device: str, memory: int | None
) -> NativeModel:
    """Load the checkpoint in `folder`. Weights stay in the mapped files on the CPU.

    `memory` are the device's bytes, None where unknown. Raises `ModelError` for a checkpoint that
    is not whole, `DoesNotFitError` for one larger than a GPU's memory.
    """
    config = parse_native_config(_json(folder / "config.json"))
    source = NativeSource(folder, dtype, device)
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    if device != "cpu" and memory and size > 0.9 * memory:
        raise DoesNotFitError(
            f"the model's weights take {size / 1e9:.1f} GB, the GPU has {memory / 1e9:.1f} GB; "
            "run it with --device cpu, or on a server"
        )
    tokenizer = TextTokenizer.from_directory(folder)
    generation = read_generation(folder, config, tokenizer)
    return _assembled(name, digest, config, source, tokenizer, folder, generation, device)


def load_gguf(name: str, file: Path, digest: str, dtype: torch.dtype, device: str) -> NativeModel:
    """Load a GGUF file of an IndexShare family; its weights stay quantised in the mapped file.

    Raises `ModelError` for a file that is not whole or of another architecture.
    """
    source = NativeGGUFSource(file, dtype, device)
    config = parse_native_config(source.config)
    tokenizer = TextTokenizer.from_gguf(file)
    generation = Generation(frozenset({*config.eos_ids, *tokenizer.eos_ids}))
    return _assembled(name, digest, config, source, tokenizer, file.parent, generation, device)


def _assembled(
    name: str,
    digest: str,
    config: NativeConfig,
    source: NativeSource | NativeGGUFSource,
    tokenizer: TextTokenizer,
    folder: Path,
    generation: Generation,
    device: str,
) -> NativeModel:
    config.check_schedule(source.names())
    unexpected = source.check_names(tensor_shapes(config))
    warnings = []
    if unexpected:
        more = f" and {len(unexpected) - 1} more" if len(unexpected) > 1 else ""
        warnings.append(f"{name}: tensor {unexpected[0]}{more} in its files is not used")
    return NativeModel(
        name=name,
        digest=digest,
        decoder=NativeDecoder(config, source, device),
        source=source,
        tokenizer=tokenizer,
        folder=folder,
        generation=generation,
        warnings=tuple(warnings),
    )


def is_native_gguf(file: Path) -> bool:
    """Whether a GGUF file is of an architecture with an indexer of its own."""
    about = read_header(file, ("general.architecture",))
    return about.get("general.architecture") in MODEL_TYPES


def read_generation(folder: Path, config: NativeConfig, tokenizer: TextTokenizer) -> Generation:
    """The settings of `generation_config.json`, where there is one, beside the config's ends."""
    raw = _json(folder / GENERATION_FILE) if (folder / GENERATION_FILE).is_file() else {}
    try:
        ends = raw.get("eos_token_id")
        listed = ends if isinstance(ends, list) else [] if ends is None else [ends]
        stops = frozenset({int(i) for i in listed} | {*config.eos_ids} | {*tokenizer.eos_ids})
        temperature, top_p = raw.get("temperature"), raw.get("top_p")
        return Generation(
            stops,
            1.0 if temperature is None else float(temperature),
            1.0 if top_p is None else float(top_p),
        )
    except (TypeError, ValueError) as error:
        raise ModelError(f"{folder / GENERATION_FILE}: misstates {error}; fetch it again") from None


def _json(path: Path) -> dict[str, Any]:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: not readable ({error}); fetch the model again") from None
    if not isinstance(raw, dict):
        raise ModelError(f"{path}: holds no settings; fetch the model again")
    return raw
