"""The leader pass: documents through the first layers with sink + sliding-window attention.

Each document starts afresh behind the same preamble, so what comes out depends on its tokens, the
model and the profile alone. Un-rotated queries and keys of any of those layers can be captured.
It knows token ids, not text, and keeps nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from longctx.kernels.window_attention import chunk_mask, window_attention
from longctx.models import layers as L
from longctx.models.decoder import Decoder, attend
from longctx.models.rope import rotate

ROWS_PER_BATCH = 2048  # weights are read once a batch; 1,024 rows were 6% slower, 4,096 equal


@dataclass(frozen=True)
class Chunk:
    """Up to `window` tokens of one document; all but a document's last chunk are full."""

    document: int
    start: int
    tokens: Sequence[int]

    @property
    def follows(self) -> bool:
        return self.start > 0


@dataclass(frozen=True)
class Captured:
    """What one layer computed for a batch: un-rotated rows in the order of `chunks`.

    `queries` `[N, heads, d]` or None, `keys` `[N, kv_heads, d]` or None.
    """

    layer: int
    chunks: list[Chunk]
    queries: Tensor | None
    keys: Tensor | None


def batches(
    documents: Iterable[Sequence[int]], window: int, rows: int = ROWS_PER_BATCH
) -> Iterator[list[Chunk]]:
    """Cut documents into chunks and pack the chunks, in order, into batches of about `rows`."""
    batch: list[Chunk] = []
    filled = 0
    for number, tokens in enumerate(documents):
        for start in range(0, len(tokens), window):
            chunk = Chunk(number, start, tokens[start : start + window])
            if filled + len(chunk.tokens) > rows and batch:
                yield batch
                batch, filled = [], 0
            batch.append(chunk)
            filled += len(chunk.tokens)
    if batch:
        yield batch


class LeaderPass:
    """Runs batches through layers 0..`last_layer`; of the last only what is captured is computed.

    `preamble` are the token ids every document stands behind: the attention sink.
    """

    def __init__(
        self, decoder: Decoder, last_layer: int, preamble: Sequence[int], window: int
    ) -> None:
        self.decoder, self.last_layer, self.window = decoder, last_layer, window
        self.sinks = len(preamble)
        self._sink_keys, self._sink_values = self._run_preamble(preamble)
        cos, sin = decoder.rope.tables(self.sinks + 2 * window)
        self._cos, self._sin = cos.to(decoder.dtype), sin.to(decoder.dtype)
        self._carry: list[tuple[Tensor, Tensor] | None] = [None] * (last_layer + 1)

    @torch.inference_mode()
    def _run_preamble(self, preamble: Sequence[int]) -> tuple[list[Tensor], list[Tensor]]:
        """Un-rotated keys and values `[kv_heads, S, d]` of the preamble in every layer but the
        last."""
        decoder, config = self.decoder, self.decoder.config
        x = decoder.embed(preamble)
        cos, sin = decoder.rope.tables(len(preamble))
        all_keys, all_values = [], []
        for layer in decoder.layers[: self.last_layer]:
            normed = L.rms_norm(x, layer.input_norm, config.norm_eps)
            q, k = L.queries(layer, config, normed), L.keys(layer, config, normed)
            v = L.values(layer, config, normed).transpose(0, 1)
            all_keys.append(k.transpose(0, 1))
            all_values.append(v)
            q = rotate(q, cos[:, None], sin[:, None]).transpose(0, 1)
            k = rotate(k, cos[:, None], sin[:, None]).transpose(0, 1)
            x = L.finish(layer, config, x, attend(q, k, v))
        return all_keys, all_values

    @torch.inference_mode()
    def run(
        self,
        batch: list[Chunk],
        sink: Callable[[Captured], None],
        *,
        query_layers: frozenset[int] = frozenset(),
        key_layers: frozenset[int] = frozenset(),
        on_layer: Callable[[int], None] | None = None,
    ) -> None:
        """Run one batch and hand each wanted layer's rows to `sink`.

        Batches must come in the order `batches` gives them: the last chunk of one is carried to
        the first of the next when its document goes on. `on_layer` hears each layer done.
        """
        decoder, config = self.decoder, self.decoder.config
        layout = _Layout(batch, self.window, decoder.device)
        x = decoder.embed([token for chunk in batch for token in chunk.tokens])
        mask = chunk_mask(layout.has_previous, self.sinks, self.window)
        for index in range(self.last_layer + 1):
            layer = decoder.layers[index]
            normed = L.rms_norm(x, layer.input_norm, config.norm_eps)
            last = index == self.last_layer
            q = k = None
            if not last or index in query_layers:
                q = L.queries(layer, config, normed)
            if not last or index in key_layers:
                k = L.keys(layer, config, normed)
            if index in query_layers or index in key_layers:
                sink(
                    Captured(
                        index,
                        batch,
                        q if index in query_layers else None,
                        k if index in key_layers else None,
                    )
                )
            if last or q is None or k is None:
                break
            v = L.values(layer, config, normed)
            attended = self._attend(index, layout, mask, q, k, v)
            x = L.finish(layer, config, x, attended)
            if on_layer:
                on_layer(index)

    def _attend(
        self, index: int, layout: _Layout, mask: Tensor, q: Tensor, k: Tensor, v: Tensor
    ) -> Tensor:
        sinks, window = self.sinks, self.window
        padded_k, padded_v = layout.pad(k), layout.pad(v)
        carried = self._carry[index]
        previous_k = layout.previous(padded_k, carried[0] if carried else None)
        previous_v = layout.previous(padded_v, carried[1] if carried else None)
        self._carry[index] = (padded_k[-1].clone(), padded_v[-1].clone())
        # The chunk stands at positions S+W.. behind its predecessor. A first chunk has none, so
        # its sinks are moved up by W to stand right before it: only distances matter to RoPE.
        cos, sin = self._cos, self._sin
        sink_k, sink_v = self._sink_keys[index], self._sink_values[index]
        near = rotate(sink_k, cos[window : window + sinks], sin[window : window + sinks])
        far = rotate(sink_k, cos[:sinks], sin[:sinks])
        sink_rows = torch.where(layout.has_previous[:, None, None, None], far, near)
        own, before = slice(sinks + window, None), slice(sinks, sinks + window)
        rotated_q = rotate(layout.pad(q).transpose(1, 2), cos[own], sin[own])
        rotated_k = torch.cat(
            (
                sink_rows,
                rotate(previous_k.transpose(1, 2), cos[before], sin[before]),
                rotate(padded_k.transpose(1, 2), cos[own], sin[own]),
            ),
            dim=2,
        )
        values = torch.cat(
            (
                sink_v.expand(len(padded_v), -1, -1, -1),
                previous_v.transpose(1, 2),
                padded_v.transpose(1, 2),
            ),
            dim=2,
        )
        return layout.unpad(window_attention(rotated_q, rotated_k, values, mask))


class _Layout:
    """How packed rows `[N, ...]` map to chunks `[B, window, ...]` and back."""

    def __init__(self, batch: list[Chunk], window: int, device: torch.device):
        self.count, self.window = len(batch), window
        lengths = [len(chunk.tokens) for chunk in batch]
        self.rows: Tensor | None = None
        if any(length != window for length in lengths):
            self.rows = torch.cat([torch.arange(n) + i * window for i, n in enumerate(lengths)]).to(
                device
            )
        self.has_previous = torch.tensor([chunk.follows for chunk in batch], device=device)

    def pad(self, rows: Tensor) -> Tensor:
        shape = (self.count, self.window, *rows.shape[1:])
        if self.rows is None:
            return rows.view(shape)
        out = rows.new_zeros((self.count * self.window, *rows.shape[1:]))
        out[self.rows] = rows
        return out.view(shape)

    def unpad(self, chunks: Tensor) -> Tensor:
        flat = chunks.reshape(-1, *chunks.shape[2:])
        return flat if self.rows is None else flat[self.rows]

    def previous(self, chunks: Tensor, carried: Tensor | None) -> Tensor:
        first = torch.zeros_like(chunks[:1]) if carried is None else carried[None]
        return torch.cat((first, chunks[:-1]))
