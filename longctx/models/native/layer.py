"""One decoder layer at a time: load it, run rows through it, drop it.

Nothing here knows of other layers, so that a prompt may go through the model a layer at a time
with one layer's weights in memory. What a shared layer needs of a full one is handed to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from longctx.models.layers import rms_norm
from longctx.models.native.attention import Attention, attend, load_attention, remember
from longctx.models.native.cache import LayerCache
from longctx.models.native.config import NativeConfig
from longctx.models.native.counters import Counters
from longctx.models.native.moe import Block, Experts, load_mlp, run_mlp
from longctx.models.native.source import NativeWeights


@dataclass(frozen=True)
class Layer:
    """One decoder layer's weights; norms `[hidden]`."""

    input_norm: Tensor
    attention: Attention
    post_norm: Tensor
    mlp: Block | Experts


def load_layer(source: NativeWeights, config: NativeConfig, index: int) -> Layer:
    """Take layer `index` from the source. Raises `ModelError` on missing or misshapen tensors."""
    prefix, size = f"model.layers.{index}.", (config.hidden,)
    return Layer(
        input_norm=source.tensor(prefix + "input_layernorm.weight", size),
        attention=load_attention(source, config, index),
        post_norm=source.tensor(prefix + "post_attention_layernorm.weight", size),
        mlp=load_mlp(source, config, index),
    )


@torch.inference_mode()
def run_layer(
    layer: Layer,
    config: NativeConfig,
    x: Tensor,
    past: int,
    cache: LayerCache,
    indices: Tensor | None = None,
    *,
    keep: int | None = None,
    counters: Counters | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Run rows `x` `[T, hidden]`, which follow `past` tokens of the layer's cache.

    A shared layer takes the `indices` its full layer returned for the same rows; both return the
    ones they used, int32 `[T, k]`. With `keep`, all rows are cached but only the last `keep` are
    computed and returned, and `indices` are theirs alone; `keep` 0 caches and nothing else. Raises
    `ValueError` when the rows do not fit the cache or a shared layer lacks its indices.
    """
    counters = counters or Counters()
    keep = len(x) if keep is None else keep
    if past + len(x) > len(cache.entries):
        raise ValueError(f"{past + len(x)} tokens do not fit a cache of {len(cache.entries)}")
    normed = rms_norm(x, layer.input_norm, config.norm_eps)
    remember(layer.attention, config, normed, past, cache, counters)
    skipped = len(x) - keep
    x, normed = x[skipped:], normed[skipped:]
    if not keep:
        return x, indices
    attended, indices = attend(
        layer.attention, config, normed, past + skipped, cache, indices, counters
    )
    x = x + attended
    normed = rms_norm(x, layer.post_norm, config.norm_eps)
    return x + run_mlp(layer.mlp, config, normed, counters), indices
