"""Weights of native IndexShare checkpoints: sharded, BF16 or FP8, mapped and never held twice.

Names are Hugging Face's; what they mean is `native_names.py`'s business. FP8 weights stay FP8 in
the mapped file and are widened a few rows at a time inside a product.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.errors import ModelError
from longctx.kernels.fp8_blocks import dequantise_weight, has_nan
from longctx.models.weights import native_names as names_of
from longctx.models.weights.native_shard import DTYPES, Shard
from longctx.models.weights.source import INDEX_FILE, SINGLE_FILE

FP8 = torch.float8_e4m3fn
TILE_ROWS = 512  # of a weight, widened at once inside a product; whole FP8 blocks
CHECKED_BYTES = 1 << 28  # a larger tensor, an embedding, is mapped without being read through
_CHECK_BYTES = 1 << 20  # looked at at once: stays in a core's own cache
_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


class NativeLinear:
    """`x @ weight.T` of a mapped weight `[out, in]`; see `NativeSource.linear`.

    The first product looks the weight through for NaN and infinity, since it reads it anyway.
    """

    __slots__ = ("_checked", "dtype", "name", "scales", "stored")

    def __init__(self, name: str, stored: Tensor, scales: Tensor | None, dtype: torch.dtype):
        self.name, self.stored, self.scales, self.dtype = name, stored, scales, dtype
        self._checked = False

    def __call__(self, x: Tensor) -> Tensor:
        """`[N, out]` of `x` `[N, in]`, which has the source's dtype.

        Raises `ModelError` where the weight is not finite.
        """
        self._check()
        if self.stored.dtype == self.dtype:
            return F.linear(x, self.stored)
        if x.requires_grad and torch.is_grad_enabled():
            return F.linear(x, self.dense())  # going back needs the weight whole
        rows, columns = self.stored.shape
        out = x.new_empty(len(x), rows)
        buffer = self.stored.new_empty(min(rows, TILE_ROWS), columns, dtype=self.dtype)
        for start in range(0, rows, TILE_ROWS):
            tile = slice(start, min(start + TILE_ROWS, rows))
            out[:, tile] = F.linear(x, self._widened(tile, buffer[: tile.stop - start]))
        return out

    def dense(self) -> Tensor:
        """The weight `[out, in]` in the source's dtype; raises as a product does."""
        self._check()
        if self.scales is None:
            return self.stored.to(self.dtype)
        return dequantise_weight(self.stored, self.scales, self.dtype)

    def _widened(self, rows: slice, into: Tensor) -> Tensor:
        """`rows` of the weight, from a multiple of 128 on, written into `into`."""
        if self.scales is None:
            return into.copy_(self.stored[rows])
        blocks = slice(rows.start // names_of.BLOCK, -(-rows.stop // names_of.BLOCK))
        return dequantise_weight(self.stored[rows], self.scales[blocks], self.dtype, into)

    def _check(self) -> None:
        if not self._checked:
            _refuse_not_finite(self.name, self.stored)
            self._checked = True


class NativeSource:
    """The tensors of a folder's `model.safetensors`, or of the shards its index lists.

    `dtype` is what tensors are handed out in and products are computed in. `bytes_read` counts the
    stored bytes of every tensor handed out, scales included, once a handing-out. Raises
    `ModelError`, also on opening, for a folder whose index and shards disagree.
    """

    def __init__(self, folder: Path, dtype: torch.dtype, device: str | torch.device = "cpu"):
        self.folder, self.dtype, self.device = folder, dtype, torch.device(device)
        self.bytes_read = 0
        listed = _listed(folder)
        shards = [Shard(folder / name) for name in sorted(set(listed.values()) or {SINGLE_FILE})]
        self._where = _merged(folder, shards)
        for name, shard in listed.items():
            if name not in self._where or self._where[name].path.name != shard:
                raise ModelError(
                    f"{folder}: {INDEX_FILE} lists {name} in {shard}, which lacks it; "
                    "fetch the model again"
                )

    def names(self) -> frozenset[str]:
        """Every stored tensor, scales and layers of MTP included."""
        return frozenset(self._where)

    def tensor(self, name: str, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Tensor:
        """The tensor `name` in `dtype`, the source's if None, on the source's device.

        FP8 is widened; what is stored in the wanted dtype is a view of the file, not to be written
        to. Raises `ModelError` for one that is missing, unfit, or, up to `CHECKED_BYTES`, not
        finite.
        """
        dtype = dtype or self.dtype
        stored, scales = self._stored(name, shape)
        if stored.nbytes <= CHECKED_BYTES:
            _refuse_not_finite(name, stored)
        if scales is not None:
            return dequantise_weight(stored, scales, dtype)
        return stored.to(dtype)

    def linear(self, name: str, out: int, in_: int) -> NativeLinear:
        """The product with weight `name` `[out, in_]`, which stays as it is stored.

        On the CPU it stays in the mapped file. Raises `ModelError` as `tensor` does; a weight that
        is not finite is refused by the first product.
        """
        stored, scales = self._stored(name, (out, in_))
        return NativeLinear(name, stored, scales, self.dtype)

    def release(self, prefix: str) -> None:
        """Give back the memory of pages of tensors whose names start with `prefix`.

        Tensors handed out stay valid: what is used again is read from the disk again.
        """
        for name, shard in self._where.items():
            if name.startswith(prefix):
                shard.release(name)

    def check_names(self, expected: Mapping[str, tuple[int, ...]]) -> list[str]:
        """Stored tensors that are not `expected`, sorted; layers of MTP are left aside.

        Raises `ModelError` where an expected tensor is missing or has another shape or dtype, and
        where an FP8 weight lacks its scales. Reads no weights.
        """
        missing = [name for name in expected if name not in self._where]
        if missing:
            raise self._missing(missing[0], f" and {len(missing) - 1} more" * (len(missing) > 1))
        known = set(expected)
        for name, shape in expected.items():
            self._check(name, shape)
            if self._kind(name) == "F8_E4M3":
                known.add(names_of.scale_name(name))
        layers = [layer for name in expected if (layer := names_of.layer_of(name)) is not None]
        aside = names_of.mtp_layers(self._where, max(layers, default=-1) + 1)
        return sorted(
            n for n in self._where if n not in known and names_of.layer_of(n) not in aside
        )

    def _kind(self, name: str) -> str:
        return self._where[name].entries[name].kind

    def _stored(self, name: str, shape: tuple[int, ...]) -> tuple[Tensor, Tensor | None]:
        """The tensor as stored, and its scales if it is FP8, both checked and on the device."""
        self._check(name, shape)
        stored, scales = self._view(name), None
        if stored.dtype == FP8:
            scale = names_of.scale_name(name)
            scales = self._view(scale)
            _refuse_not_finite(scale, scales)
        return stored, scales

    def _view(self, name: str) -> Tensor:
        found = self._where[name].view(name)
        self.bytes_read += found.nbytes
        return found.to(self.device)

    def _check(self, name: str, shape: tuple[int, ...]) -> None:
        """Raise unless `name` is stored as `[shape]` floats, with fitting scales where FP8."""
        if name not in self._where:
            raise self._missing(name)
        entry = self._where[name].entries[name]
        if entry.shape != tuple(shape):
            raise ModelError(
                f"{self.folder}: tensor {name} has shape {list(entry.shape)}, the config asks for "
                f"{list(shape)}; is this config.json of another model?"
            )
        if entry.kind not in DTYPES:
            raise ModelError(
                f"{self.folder}: tensor {name} is stored as {entry.kind}, which is not supported; "
                "choose the BF16 or FP8 checkpoint"
            )
        if entry.kind == "F8_E4M3":
            self._check_scales(name, shape)

    def _check_scales(self, name: str, shape: tuple[int, ...]) -> None:
        scale = names_of.scale_name(name)
        if scale not in self._where:
            raise ModelError(
                f"{self.folder}: FP8 tensor {name} has no {scale}; fetch the model again"
            )
        entry, wanted = self._where[scale].entries[scale], names_of.scale_shape(tuple(shape))
        if entry.kind != "F32" or entry.shape != wanted or len(shape) != 2:
            raise ModelError(
                f"{self.folder}: tensor {scale} is {entry.kind} {list(entry.shape)} and should be "
                f"F32 {list(wanted)}: only FP8 in blocks of 128 x 128 is supported"
            )

    def _missing(self, name: str, more: str = "") -> ModelError:
        unlisted = {path.name for path in self.folder.glob("*.safetensors")}
        unlisted -= {shard.path.name for shard in self._where.values()}
        advice = f"{INDEX_FILE} does not list {min(unlisted)}; " if unlisted else ""
        return ModelError(
            f"{self.folder}: tensor {name}{more} missing; {advice}fetch the model again"
        )


def _listed(folder: Path) -> dict[str, str]:
    """The shard of every tensor by the folder's index; empty where it is one file."""
    index = folder / INDEX_FILE
    if not index.exists():
        if (folder / SINGLE_FILE).is_file():
            return {}
        raise ModelError(
            f"{folder}: neither {INDEX_FILE} nor {SINGLE_FILE} there; is this a model folder?"
        )
    try:
        table = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        listed = {str(name): str(shard) for name, shard in table.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise ModelError(f"{index}: not a readable index; fetch the model again") from None
    if not listed:
        raise ModelError(f"{index}: lists no tensors; fetch the model again")
    shards = sorted(set(listed.values()))
    gone = [s for s in shards if Path(s).name != s or not (folder / s).is_file()]
    if gone:
        raise ModelError(
            f"{folder}: {len(gone)} of {len(shards)} shards missing, the first {gone[0]}; "
            "fetch the model again"
        )
    return listed


def _merged(folder: Path, shards: list[Shard]) -> dict[str, Shard]:
    where: dict[str, Shard] = {}
    for shard in shards:
        for name in shard.entries:
            if name in where:
                raise ModelError(
                    f"{folder}: tensor {name} is in two shards, {where[name].path.name} and "
                    f"{shard.path.name}; fetch the model again"
                )
            where[name] = shard
    return where


def _refuse_not_finite(name: str, stored: Tensor) -> None:
    """Raise `ModelError` where a stored tensor holds NaN or infinity."""
    if not _finite(stored):
        raise ModelError(
            f"tensor {name} holds numbers that are not finite; its file is damaged, fetch it again"
        )


def _finite(stored: Tensor) -> bool:
    """Whether no number is NaN or infinite: 8 times as fast as `isnan` for bf16 on one core."""
    flat = stored.flatten()
    if not flat.numel():
        return True
    parts = flat.split(_CHECK_BYTES // stored.itemsize)
    if stored.dtype == FP8:
        return not any(has_nan(part) for part in parts)
    as_int = _INTEGERS[stored.itemsize]
    largest = torch.tensor(torch.finfo(stored.dtype).max, dtype=stored.dtype).view(as_int).item()
    magnitude = torch.iinfo(as_int).max  # all but the sign; larger than `largest` is no number
    return all(int(part.view(as_int).bitwise_and(magnitude).amax()) <= largest for part in parts)
