"""A dense decoder built from a config: embed, layers with a KV cache, logits.

One class serves llama, mistral, qwen2 and qwen3 (their differences are flags of the config).
It knows token ids and tensors; text, prompts and documents are others' business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.models import layers as L
from longctx.models.config import ModelConfig
from longctx.models.linear import PACKED_ROWS, Linear
from longctx.models.rope import Rope, rotate
from longctx.models.weights.source import WeightSource


class KVCache:
    """Rotated keys and values of every layer for up to `capacity` tokens, preallocated.

    `keys` and `values` are `[layers, kv_heads, capacity, head_dim]`; `length` tokens are valid.
    """

    def __init__(self, config: ModelConfig, capacity: int, dtype: torch.dtype, device: str = "cpu"):
        shape = (config.layers, config.kv_heads, capacity, config.head_dim)
        self.keys = torch.empty(shape, dtype=dtype, device=device)
        self.values = torch.empty(shape, dtype=dtype, device=device)
        self.length = 0

    @property
    def capacity(self) -> int:
        return self.keys.shape[2]

    def crop(self, length: int) -> None:
        """Forget every token from position `length` on."""
        self.length = min(self.length, length)


@dataclass(frozen=True)
class Products:
    """The matrix products of a forward pass: those of the layers, and the head."""

    layers: list[L.Layer]
    head: Linear


class Decoder:
    """The model: weights on one device in one dtype, and the forward pass.

    `packed` may hold faster, slightly rounded products (`longctx.models.packed`). Only steps that
    add a few tokens to a cache use them; prompts and whole sequences are computed exactly.
    """

    def __init__(self, config: ModelConfig, source: WeightSource, device: str = "cpu"):
        self.config = config
        self.device = torch.device(device)
        self.embedding = source.tensor("model.embed_tokens.weight", (config.vocab, config.hidden))
        self.layers = [L.load_layer(source, config, i) for i in range(config.layers)]
        self.norm = source.tensor("model.norm.weight", (config.hidden,))
        head = self.embedding
        if not config.tied:
            head = source.tensor("lm_head.weight", (config.vocab, config.hidden))
        self.head = Linear(head)
        self.rope = Rope(config.rope, config.head_dim, self.device)
        self.dtype = self.embedding.dtype
        self.packed: Products | None = None

    def embed(self, tokens: Tensor | Sequence[int]) -> Tensor:
        """Rows `[T, hidden]` of token ids `[T]`."""
        ids = torch.as_tensor(tokens, dtype=torch.long, device=self.device)
        return F.embedding(ids, self.embedding)

    def new_cache(self, capacity: int) -> KVCache:
        return KVCache(self.config, capacity, self.dtype, str(self.device))

    @torch.inference_mode()
    def forward(
        self,
        tokens: Tensor | Sequence[int],
        cache: KVCache | None = None,
        *,
        last_only: bool = False,
    ) -> Tensor:
        """Logits `[T, vocab]` (float32) of token ids `[T]` that follow what `cache` holds.

        With `last_only` the last row alone, `[1, vocab]`. Without a cache the tokens are the
        whole sequence; with one, their keys and values are appended to it.
        """
        head = self._products(len(tokens), cache).head  # asked before the cache grows
        return head(self.hidden(tokens, cache, last_only=last_only)).float()

    @torch.inference_mode()
    def hidden(
        self,
        tokens: Tensor | Sequence[int],
        cache: KVCache | None = None,
        *,
        last_only: bool = False,
    ) -> Tensor:
        """The final normed rows `[T, hidden]`, before the head; arguments as in `forward`."""
        config = self.config
        x = self.embed(tokens)
        count = len(x)
        past = cache.length if cache else 0
        if cache is not None and past + count > cache.capacity:
            raise ValueError(f"{past + count} tokens do not fit a cache of {cache.capacity}")
        cos, sin = self.rope.tables(past + count)
        cos, sin = cos[past:, None], sin[past:, None]
        for index, layer in enumerate(self._products(count, cache).layers):
            normed = L.rms_norm(x, layer.input_norm, config.norm_eps)
            k = rotate(L.keys(layer, config, normed), cos, sin).transpose(0, 1)
            v = L.values(layer, config, normed).transpose(0, 1)
            if cache is not None:
                cache.keys[index, :, past : past + count] = k
                cache.values[index, :, past : past + count] = v
                k = cache.keys[index, :, : past + count]
                v = cache.values[index, :, : past + count]
            if last_only and index == config.layers - 1:
                normed, x, cos, sin = normed[-1:], x[-1:], cos[-1:], sin[-1:]
            q = rotate(L.queries(layer, config, normed), cos, sin).transpose(0, 1)
            x = L.finish(layer, config, x, attend(q, k, v, config.window(index)))
        if cache is not None:
            cache.length = past + count
        return L.rms_norm(x, self.norm, config.norm_eps)

    def _products(self, rows: int, cache: KVCache | None) -> Products:
        """The packed products for a decoding step of `rows` tokens, the exact ones otherwise."""
        decoding = cache is not None and cache.length > 0 and rows <= PACKED_ROWS
        return self.packed if self.packed and decoding else Products(self.layers, self.head)


def attend(q: Tensor, k: Tensor, v: Tensor, window: int | None = None) -> Tensor:
    """Causal GQA of queries `[heads, T, d]`, the last T positions, over keys `[kv_heads, S, d]`.

    Returns `[T, heads * d]`. With `window`, a query sees itself and the `window - 1` tokens
    before it.
    """
    rows, total = q.shape[1], k.shape[1]
    if window is not None and window >= total:
        window = None
    mask = None
    if rows > 1 and (rows != total or window is not None):
        ends = torch.arange(total - rows, total, device=q.device)[:, None]
        columns = torch.arange(total, device=q.device)[None]
        mask = columns <= ends
        if window is not None:
            mask &= columns > ends - window
    elif window is not None:
        k, v = k[:, -window:], v[:, -window:]
    out = F.scaled_dot_product_attention(
        q[None],
        k[None],
        v[None],
        attn_mask=mask,
        is_causal=mask is None and rows > 1,
        enable_gqa=q.shape[0] != k.shape[0],
    )
    return out[0].transpose(0, 1).flatten(1)
