"""GLM-5.x and DeepSeek-V3.2 computed as their configs say: embed, layers with a cache, logits.

A prompt goes through in chunks of rows, so that memory holds a chunk's numbers and the cache.
It knows token ids and tensors; text, prompts and documents are others' business.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, overload

import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.models.layers import rms_norm
from longctx.models.native.cache import NativeCache
from longctx.models.native.config import NativeConfig
from longctx.models.native.counters import Counters
from longctx.models.native.layer import load_layer, run_layer
from longctx.models.native.source import NativeWeights

CHUNK_TOKENS = 1024


class NativeDecoder:
    """The model: weights on one device in one dtype, and the forward pass.

    `counters` add up the operations of every pass. Raises `ModelError` where the source lacks a
    tensor or its indexers are on other layers than the config says.
    """

    def __init__(self, config: NativeConfig, source: NativeWeights, device: str = "cpu"):
        config.check_schedule(source.names())
        self.config = config
        self.device = torch.device(device)
        table = (config.vocab, config.hidden)
        self.embedding = source.tensor("model.embed_tokens.weight", table)
        self.layers = [load_layer(source, config, index) for index in range(config.layers)]
        self.norm = source.tensor("model.norm.weight", (config.hidden,))
        self.head = self.embedding if config.tied else source.tensor("lm_head.weight", table)
        self.dtype = self.embedding.dtype
        self.counters = Counters()

    def embed(self, tokens: Tensor | Sequence[int]) -> Tensor:
        """Rows `[T, hidden]` of token ids `[T]`."""
        ids = torch.as_tensor(tokens, dtype=torch.long, device=self.device)
        return F.embedding(ids, self.embedding)

    def new_cache(self, capacity: int, kind: str | None = None) -> NativeCache:
        """An empty cache for `capacity` tokens, of the model's dtype or of another `kind`."""
        kind = kind or ("fp32" if self.dtype == torch.float32 else "bf16")
        return NativeCache(self.config, capacity, kind, self.device)

    @overload
    def forward(
        self,
        tokens: Tensor | Sequence[int],
        cache: NativeCache | None = None,
        *,
        last_only: bool = False,
        return_indices: Literal[False] = False,
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        tokens: Tensor | Sequence[int],
        cache: NativeCache | None = None,
        *,
        last_only: bool = False,
        return_indices: Literal[True],
    ) -> tuple[Tensor, list[Tensor]]: ...

    @torch.inference_mode()
    def forward(
        self,
        tokens: Tensor | Sequence[int],
        cache: NativeCache | None = None,
        *,
        last_only: bool = False,
        return_indices: bool = False,
    ) -> Tensor | tuple[Tensor, list[Tensor]]:
        """Logits `[T, vocab]` (float32) of token ids `[T]` that follow what `cache` holds.

        With `last_only` the last row alone, `[1, vocab]`. Without a cache the tokens are the whole
        sequence. With `return_indices` also the tokens each row attended to, a layer at a time:
        int32 `[T, k]`, ascending, -1 at the end; a shared layer's are its full layer's.
        """
        chosen = _Chosen(self.config.layers) if return_indices else None
        rows = self._run(tokens, cache, last_only, chosen)
        logits = self.counters.product("head", rows, F.linear(rows, self.head)).float()
        return logits if chosen is None else (logits, chosen.joined())

    @torch.inference_mode()
    def hidden(
        self,
        tokens: Tensor | Sequence[int],
        cache: NativeCache | None = None,
        *,
        last_only: bool = False,
    ) -> Tensor:
        """The final normed rows `[T, hidden]`, before the head; arguments as in `forward`."""
        return self._run(tokens, cache, last_only, None)

    def _run(
        self,
        tokens: Tensor | Sequence[int],
        cache: NativeCache | None,
        last_only: bool,
        chosen: _Chosen | None,
    ) -> Tensor:
        count = len(tokens)
        if not count:
            raise ValueError("no tokens")
        cache = self.new_cache(count) if cache is None else cache
        if cache.length + count > cache.capacity:
            raise ValueError(
                f"{cache.length + count} tokens do not fit a cache of {cache.capacity}"
            )
        found = []
        for start in range(0, count, CHUNK_TOKENS):
            part = tokens[start : start + CHUNK_TOKENS]
            keep = len(part)
            if last_only and chosen is None:
                keep = int(start + len(part) == count)
            found.append(self._run_chunk(part, cache, keep, chosen))
        rows = torch.cat(found)
        return rms_norm(rows[-1:] if last_only else rows, self.norm, self.config.norm_eps)

    def _run_chunk(
        self,
        tokens: Tensor | Sequence[int],
        cache: NativeCache,
        keep: int,
        chosen: _Chosen | None,
    ) -> Tensor:
        """Run tokens through all layers; of the last layer only the last `keep` rows."""
        x, past, indices = self.embed(tokens), cache.length, None
        for index, layer in enumerate(self.layers):
            rows = keep if index == self.config.layers - 1 else len(x)
            if indices is not None:
                indices = indices[len(indices) - rows :]
            x, indices = run_layer(
                layer,
                self.config,
                x,
                past,
                cache.layers[index],
                indices,
                keep=rows,
                counters=self.counters,
            )
            if chosen is not None and indices is not None:
                chosen.add(index, indices)
        cache.length = past + len(tokens)
        return x


class _Chosen:
    """The indices of every layer, gathered over the chunks of a prompt."""

    def __init__(self, layers: int):
        self.parts: list[list[Tensor]] = [[] for _ in range(layers)]

    def add(self, layer: int, indices: Tensor) -> None:
        self.parts[layer].append(indices)

    def joined(self) -> list[Tensor]:
        """`[T, k]` a layer: earlier chunks may see fewer tokens than k and are filled with -1."""
        width = max(part.shape[1] for parts in self.parts for part in parts)
        return [
            torch.cat([F.pad(part, (0, width - part.shape[1]), value=-1) for part in parts])
            for parts in self.parts
        ]
