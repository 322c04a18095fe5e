"""Checkpoints of random weights in the on-disk form of IndexShare families, of any size.

What loads them cannot tell them from published ones but by their answers: config, sharded
safetensors with an index, BF16 or FP8 with scales, tokenizer, chat template. Written a shard at a
time, so memory holds one shard.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longctx.atomic import check_free, replace_folder, write_file
from longctx.errors import UsageError
from longctx.models.native.synth_presets import FAMILIES, SIZES, Sizes, preset
from longctx.models.native.synth_tokenizer import chat_form, tokenizer_files
from longctx.models.weights import native_names as names_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["FAMILIES", "SIZES", "Sizes", "preset", "write_checkpoint"]

DEFAULT_SHARD_BYTES = 2_000_000_000
_SCALES = names_of.SCALE_SUFFIX
_FP8_CONFIG = {
    "activation_scheme": "dynamic",
    "fmt": "e4m3",
    "quant_method": "fp8",
    "weight_block_size": [128, 128],
}
_ROUTER_BIAS = "e_score_correction_bias"
Plan = list[list[tuple[str, tuple[int, ...]]]]


def write_checkpoint(
    config: Mapping[str, Any],
    folder: Path,
    *,
    seed: int = 0,
    fp8: bool = False,
    shard_bytes: int = DEFAULT_SHARD_BYTES,
    dtype: torch.dtype | None = None,
) -> int:
    """Write a whole model into a new `folder`; returns the bytes of its weights.

    `config` is one of `preset`; ids of control tokens are replaced by those of the tokenizer
    written beside it. `dtype` (bfloat16 if None) is that of every tensor that is not FP8. The same
    seed draws the same numbers whatever the shards and whether `fp8` or not. Raises `UsageError`
    for a folder that is not empty or a vocabulary too small for its tokenizer, `DoesNotFitError`
    for a full disk.
    """
    import torch

    dtype = dtype or torch.bfloat16
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is there already and not empty; choose another folder")
    if shard_bytes < 1:
        raise UsageError(f"shards of {shard_bytes} bytes; choose at least 1")
    config = dict(config) | {"dtype": str(dtype).removeprefix("torch.")}
    if fp8:
        scales = "ue8m0" if config["model_type"] == "deepseek_v32" else None
        config["quantization_config"] = _FP8_CONFIG | ({"scale_fmt": scales} if scales else {})
    texts = _texts(config)
    plan, total = _plan(config, fp8, dtype, shard_bytes)
    folder.parent.mkdir(parents=True, exist_ok=True)
    check_free(folder.parent, total, "the checkpoint")
    with replace_folder(folder) as unfinished:
        for name, content in texts.items():
            write_file(unfinished / name, content)
        _write_shards(unfinished, plan, config, seed, dtype, total)
    return total


def _texts(config: dict[str, Any]) -> dict[str, str]:
    """Every small file by name; puts the tokenizer's own ids into `config`."""
    kind, positions = config["model_type"], config["max_position_embeddings"]
    files, ids = tokenizer_files(kind, config["vocab_size"], positions)
    form = chat_form(kind)
    id_of = dict(zip(form.tokens, ids, strict=True))
    ends = [id_of[token] for token in form.ends]
    config["eos_token_id"] = ends if len(ends) > 1 else ends[0]
    config["pad_token_id"] = id_of[form.pad]
    if form.bos:
        config["bos_token_id"] = id_of[form.bos]
    generation = {
        "do_sample": True,
        "eos_token_id": config["eos_token_id"],
        "pad_token_id": config["pad_token_id"],
        "temperature": 1.0,
        "top_p": 0.95,
    }
    as_text = {"config.json": config, "generation_config.json": generation}
    return files | {name: json.dumps(value, indent=2) + "\n" for name, value in as_text.items()}


def _plan(
    config: Mapping[str, Any], fp8: bool, dtype: torch.dtype, shard_bytes: int
) -> tuple[Plan, int]:
    """Tensors shard by shard, and the bytes of them all; a scale stays with its weight."""
    sizes = Sizes.of(config)
    shapes = names_of.tensor_shapes(sizes, fp8=fp8)
    if config.get("num_nextn_predict_layers"):
        shapes |= names_of.mtp_shapes(sizes, fp8=fp8)
    plan: Plan = []
    total = left = 0
    for name, shape in shapes.items():
        size = _bytes(name, shape, fp8, dtype)
        if not plan or (size > left and not name.endswith(_SCALES)):
            plan.append([])
            left = shard_bytes
        plan[-1].append((name, shape))
        total, left = total + size, left - size
    return plan, total


def _bytes(name: str, shape: tuple[int, ...], fp8: bool, dtype: torch.dtype) -> int:
    width = dtype.itemsize
    if name.endswith((_SCALES, _ROUTER_BIAS)):
        width = 4
    elif fp8 and names_of.quantised(name):
        width = 1
    count = 1
    for size in shape:
        count *= size
    return count * width


def _write_shards(
    folder: Path, plan: Plan, config: Mapping[str, Any], seed: int, dtype: torch.dtype, total: int
) -> None:
    from safetensors.torch import save_file

    weight_map: dict[str, str] = {}
    for number, entries in enumerate(plan, start=1):
        shard = f"model-{number:05}-of-{len(plan):05}.safetensors"
        save_file(dict(_drawn(entries, config, seed, dtype)), folder / shard, {"format": "pt"})
        weight_map |= dict.fromkeys((name for name, _ in entries), shard)
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    write_file(folder / "model.safetensors.index.json", json.dumps(index, indent=2) + "\n")


def _drawn(
    entries: list[tuple[str, tuple[int, ...]]],
    config: Mapping[str, Any],
    seed: int,
    dtype: torch.dtype,
) -> Iterator[tuple[str, Tensor]]:
    """A shard's tensors as they are stored."""
    from longctx.kernels.fp8_blocks import quantise_weight

    power_of_two = config.get("quantization_config", {}).get("scale_fmt") == "ue8m0"
    scaled = {name for name, _ in entries if name.endswith(_SCALES)}
    for name, shape in entries:
        if name in scaled:
            continue
        values = draw(name, shape, layers=config["num_hidden_layers"], seed=seed)
        scale = names_of.scale_name(name)
        if scale in scaled:
            stored, scales = quantise_weight(values, power_of_two=power_of_two)
            yield name, stored
            yield scale, scales
        else:
            yield name, values if name.endswith(_ROUTER_BIAS) else values.to(dtype)


def draw(name: str, shape: tuple[int, ...], *, layers: int, seed: int) -> Tensor:
    """float32 numbers for a tensor, the same for the same name, shape and seed.

    Products keep the size of what they are given, and what layers add to the residual stream
    shrinks with their number: activations stay near 1 at any depth.
    """
    import torch

    # the generator takes 32 bits of a seed
    random = torch.Generator().manual_seed(zlib.crc32(f"{seed} {name}".encode()))
    values = torch.randn(shape, generator=random)
    if len(shape) == 1:
        if name.endswith("bias"):
            return values.mul_(0.01)
        return values.mul_(0.1).add_(1)
    if name == names_of.EMBEDDING:
        return values
    values.mul_(shape[1] ** -0.5)
    if name.endswith(("o_proj.weight", "down_proj.weight")):
        values.mul_((2 * layers) ** -0.5)
    return values
