"""A prompt through a model larger than memory: all of it through layer 0, then layer 1, and so on.

Every layer's weights are read once a prompt, not once a chunk of it, and one layer is held at a
time. Between layers the hidden rows of all tokens lie on disk, and beside them the choice of the
last full layer, which shared layers attend with; latents and index keys stay in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.atomic import check_free
from longctx.models.layers import rms_norm
from longctx.models.native.cache import NativeCache
from longctx.models.native.config import NativeConfig
from longctx.models.native.counters import Counters
from longctx.models.native.decoder import CHUNK_TOKENS
from longctx.models.native.layer import load_layer, run_layer
from longctx.models.native.source import NativeWeights
from longctx.models.native.spill import SpilledRows, spilled_bytes
from longctx.models.native.widened import WidenedWeights
from longctx.models.weights.native_names import EMBEDDING, HEAD, NORM
from longctx.paths import ensure

INDEX_DTYPE = torch.int32


class StreamedWeights(NativeWeights, Protocol):
    """A source of weights whose memory can be given back."""

    def release(self, prefix: str) -> None:
        """Give back the memory of tensors whose names start with `prefix`."""
        ...


OnProgress = Callable[[int, int], None]
"""Called with the rows done and the rows to do; a token is a row once in every layer."""


def stream_prefill(
    config: NativeConfig,
    source: StreamedWeights,
    tokens: Tensor | Sequence[int],
    cache: NativeCache,
    *,
    spill_dir: Path,
    last: int = 1,
    chunk_tokens: int = CHUNK_TOKENS,
    widen_once: bool = False,
    counters: Counters | None = None,
    on_progress: OnProgress | None = None,
) -> Tensor:
    """Logits `[last, vocab]` (float32) of the last of `tokens` `[T]`, which follow the cache's.

    What `NativeDecoder.forward` computes, to the bit where it cuts the same chunks: the decoder
    cuts `CHUNK_TOKENS`. `widen_once` holds a layer's FP8 or GGUF weights in the source's dtype
    while it runs, where otherwise every chunk widens them anew: three times the memory of an FP8
    layer, and most of the time of a long prompt saved on a CPU. `cache` holds all
    tokens afterwards; it says so only once the last layer is done, so that a prompt that failed or
    was interrupted has left it as it was. `spill_dir` is created if missing, needs
    `spilled_size` bytes and is left without a file of ours also after errors.

    Raises `DoesNotFitError` for a full disk, `ModelError` for missing or damaged weights, and
    `ValueError` where tokens or `last` do not fit.
    """
    count, past = len(tokens), cache.length
    if not 0 < last <= count:
        raise ValueError(f"the last {last} of {count} tokens")
    if past + count > cache.capacity:
        raise ValueError(f"{past + count} tokens do not fit a cache of {cache.capacity}")
    if chunk_tokens < 1:
        raise ValueError(f"chunks of {chunk_tokens} tokens")
    config.check_schedule(source.names())
    ids = torch.as_tensor(tokens, dtype=torch.long)
    with torch.inference_mode(), ExitStack() as stack:
        # Opened inside: a table kept for a tied head is the only weight beside the layer's own.
        table = source.tensor(EMBEDDING, (config.vocab, config.hidden))
        ensure(spill_dir)
        check_free(spill_dir, spilled_size(config, count, past, table.dtype), "the hidden states")
        spill = _Spill.of(config, spill_dir, count, past, table.dtype, stack)
        run = _Run(config, cache, spill, counters or Counters(), on_progress, past, last)
        for part in _chunks(count, chunk_tokens):
            rows = F.embedding(ids[part.start : part.stop].to(table.device), table)
            spill.hidden.write(part.start, rows)
        tied, device = table if config.tied else None, table.device
        del table
        if tied is None:
            source.release(EMBEDDING)
        rows = torch.empty(0)
        for index in range(config.layers):
            try:
                weights = WidenedWeights(source) if widen_once else source
                rows = run.layer(weights, index, chunk_tokens, device)
            finally:
                source.release(f"model.layers.{index}.")
        norm = source.tensor(NORM, (config.hidden,))
        head = source.tensor(HEAD, (config.vocab, config.hidden)) if tied is None else tied
        rows = rms_norm(rows, norm, config.norm_eps)
        logits = run.counters.product("head", rows, F.linear(rows, head)).float()
        del head, tied
        source.release(EMBEDDING if config.tied else HEAD)
        cache.length = past + count
        return logits


def spilled_size(config: NativeConfig, count: int, past: int, dtype: torch.dtype) -> int:
    """Bytes on disk while `count` tokens that follow `past` go through a model of `dtype`."""
    hidden = spilled_bytes(count, config.hidden, dtype)
    return hidden + spilled_bytes(count, _index_width(config, count, past), INDEX_DTYPE)


def _index_width(config: NativeConfig, count: int, past: int) -> int:
    """Chosen tokens a row on disk; none where no layer shares."""
    return 0 if all(config.full) else min(config.index_topk, past + count)


def _chunks(count: int, size: int) -> list[range]:
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


@dataclass(frozen=True)
class _Spill:
    """What lies on disk between two layers: a row a token."""

    hidden: SpilledRows
    chosen: SpilledRows

    @classmethod
    def of(
        cls,
        config: NativeConfig,
        folder: Path,
        count: int,
        past: int,
        dtype: torch.dtype,
        stack: ExitStack,
    ) -> _Spill:
        """Empty files that are gone when `stack` closes."""
        width = _index_width(config, count, past)
        return cls(
            hidden=stack.enter_context(SpilledRows(folder, count, config.hidden, dtype)),
            chosen=stack.enter_context(SpilledRows(folder, count, width, INDEX_DTYPE)),
        )

    def keep_choice(self, start: int, indices: Tensor) -> None:
        """Store int32 `[T, k]`; early rows have fewer columns than the file."""
        missing = self.chosen.width - indices.shape[1]
        self.chosen.write(start, F.pad(indices, (0, missing), value=-1) if missing else indices)


@dataclass(frozen=True)
class _Run:
    """One prompt under way; `last` rows are computed to the end."""

    config: NativeConfig
    cache: NativeCache
    spill: _Spill
    counters: Counters
    on_progress: OnProgress | None
    past: int
    last: int

    def layer(
        self, source: NativeWeights, index: int, chunk_tokens: int, device: torch.device
    ) -> Tensor:
        """Load layer `index` and take all rows through it: the last ones, of the last layer."""
        layer, config = load_layer(source, self.config, index), self.config
        count, final = self.spill.hidden.count, index == config.layers - 1
        shared_next = not final and not config.full[index + 1]
        found = []
        for part in _chunks(count, chunk_tokens):
            size, past = len(part), self.past + part.start
            # As in the decoder: rows nobody asks for leave the last layer at its cache.
            keep = min(size, max(0, part.stop - (count - self.last))) if final else size
            indices = None
            if keep and not config.full[index]:
                width = min(config.index_topk, past + size)
                indices = self.spill.chosen.read(part.stop - keep, keep, device)[:, :width]
            x = self.spill.hidden.read(part.start, size, device)
            x, indices = run_layer(
                layer,
                config,
                x,
                past,
                self.cache.layers[index],
                indices,
                keep=keep,
                counters=self.counters,
            )
            if final:
                found.append(x)
            else:
                self.spill.hidden.write(part.start, x)
            if shared_next and config.full[index] and indices is not None:
                self.spill.keep_choice(part.start, indices)
            if self.on_progress is not None:
                self.on_progress(index * count + part.stop, config.layers * count)
        return torch.cat(found) if found else torch.empty(0)
