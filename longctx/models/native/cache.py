"""What the decoder keeps of every token: latent entries everywhere, index keys on full layers.

Stored in a float dtype, or in 8 bits a number with scales (`sparse_mla.packed`). Shared layers
hold no index keys: they attend with the choice of a full one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from longctx.kernels.sparse_mla.packed import pack, packed_bytes, unpack
from longctx.models.native.config import NativeConfig

CACHE_KINDS = {"bf16": torch.bfloat16, "fp32": torch.float32, "fp8": torch.uint8}


@dataclass(frozen=True)
class LayerCache:
    """One layer's storage, preallocated.

    `entries` are `[capacity, rank + rope_dim]`, latent first, `index_keys` `[capacity, index_dim]`
    or None; both `[capacity, bytes]` of uint8 where they are packed.
    """

    entries: Tensor
    index_keys: Tensor | None
    rank: int

    def write(self, start: int, latent: Tensor, rope_key: Tensor) -> None:
        """Store normed latents `[T, rank]` and rotated keys `[T, rope_dim]` from `start` on."""
        rows = self.entries[start : start + len(latent)]
        if self.entries.dtype == torch.uint8:
            rows.copy_(pack(latent, rope_key))
        else:
            rows[:, : self.rank] = latent
            rows[:, self.rank :] = rope_key

    def write_index(self, start: int, keys: Tensor) -> None:
        """Store rotated index keys `[T, index_dim]` from position `start` on."""
        assert self.index_keys is not None, "a shared layer keeps no index keys"
        packed = self.index_keys.dtype == torch.uint8
        self.index_keys[start : start + len(keys)] = pack(keys) if packed else keys

    def read(self, count: int, dtype: torch.dtype) -> Tensor:
        """The first `count` entries `[count, rank + rope_dim]` in `dtype`."""
        rows = self.entries[:count]
        return unpack(rows, self.rank, dtype) if rows.dtype == torch.uint8 else rows.to(dtype)


class NativeCache:
    """Caches of every layer for up to `capacity` tokens, of which `length` are valid.

    `kind` is one of `CACHE_KINDS`; a float kind may be narrower than the model's dtype.
    """

    def __init__(
        self, config: NativeConfig, capacity: int, kind: str, device: torch.device | str = "cpu"
    ):
        if kind not in CACHE_KINDS:
            raise ValueError(f"a cache of kind {kind!r}; known: {', '.join(CACHE_KINDS)}")
        self.config, self.kind, self.capacity, self.length = config, kind, capacity, 0
        entry, key = row_widths(config, kind)
        options = {"dtype": CACHE_KINDS[kind], "device": device}
        self.layers = [
            LayerCache(
                torch.empty(capacity, entry, **options),
                torch.empty(capacity, key, **options) if full else None,
                config.kv_rank,
            )
            for full in config.full
        ]

    def crop(self, length: int) -> None:
        """Forget every token from position `length` on, index keys included."""
        self.length = min(self.length, max(length, 0))

    def valid(self) -> dict[str, Tensor]:
        """Views of what the valid tokens occupy, by the names they are saved under."""
        found = {}
        for index, layer in enumerate(self.layers):
            found[f"layers.{index}.entries"] = layer.entries[: self.length]
            if layer.index_keys is not None:
                found[f"layers.{index}.index_keys"] = layer.index_keys[: self.length]
        return found


def row_widths(config: NativeConfig, kind: str) -> tuple[int, int]:
    """Elements of a token's entry and index key: 656 and 132 bytes for GLM-5.2 in fp8."""
    if kind == "fp8":
        return packed_bytes(config.kv_rank, config.rope_dim), packed_bytes(config.index_dim)
    return config.entry_dim, config.index_dim
