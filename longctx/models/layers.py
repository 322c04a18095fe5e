"""The pieces of a decoder layer as plain functions over named weights.

Rows are tokens: `x` is `[N, hidden]` whatever sequences the rows belong to, so that callers can
pack several documents into one matrix product. Attention is left to the caller.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.models.config import ModelConfig
from longctx.models.linear import Linear, swiglu
from longctx.models.weights.source import WeightSource


@dataclass(frozen=True)
class Layer:
    """One decoder layer's weights; projections are `[out, in]`, norms `[hidden]`."""

    input_norm: Tensor
    q: Linear
    k: Linear
    v: Linear
    o: Linear
    q_norm: Tensor | None
    k_norm: Tensor | None
    post_norm: Tensor
    gate: Linear
    up: Linear
    down: Linear


def load_layer(source: WeightSource, config: ModelConfig, index: int) -> Layer:
    """Take layer `index` from the source. Raises `ModelError` on missing or misshapen tensors."""
    prefix = f"model.layers.{index}."
    q_rows, kv_rows = config.heads * config.head_dim, config.kv_heads * config.head_dim
    hidden, inner = config.hidden, config.intermediate

    def linear(name: str, rows: int, columns: int, bias: bool) -> Linear:
        weight = source.tensor(f"{prefix}{name}.weight", (rows, columns))
        return Linear(weight, source.tensor(f"{prefix}{name}.bias", (rows,)) if bias else None)

    def norm(name: str, size: int) -> Tensor:
        return source.tensor(f"{prefix}{name}.weight", (size,))

    attention = "self_attn."
    return Layer(
        input_norm=norm("input_layernorm", hidden),
        q=linear(attention + "q_proj", q_rows, hidden, config.qkv_bias),
        k=linear(attention + "k_proj", kv_rows, hidden, config.qkv_bias),
        v=linear(attention + "v_proj", kv_rows, hidden, config.qkv_bias),
        o=linear(attention + "o_proj", hidden, q_rows, config.output_bias),
        q_norm=norm(attention + "q_norm", config.head_dim) if config.qk_norm else None,
        k_norm=norm(attention + "k_norm", config.head_dim) if config.qk_norm else None,
        post_norm=norm("post_attention_layernorm", hidden),
        gate=linear("mlp.gate_proj", inner, hidden, config.mlp_bias),
        up=linear("mlp.up_proj", inner, hidden, config.mlp_bias),
        down=linear("mlp.down_proj", hidden, inner, config.mlp_bias),
    )


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """`x / rms(x) * weight` over the last dimension (arXiv 1910.07467), in x's dtype."""
    if x.dtype == torch.float32:
        return F.rms_norm(x, (x.shape[-1],), weight, eps)
    # torch's half-precision norm is composed of slow passes on CPUs: 3.0 ms against 0.9 ms
    wide = x.float()
    norm = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    scale = norm.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
    return wide.mul_(scale).to(x.dtype).mul_(weight)


def queries(layer: Layer, config: ModelConfig, normed: Tensor) -> Tensor:
    """Un-rotated queries `[N, heads, head_dim]` of normed rows `[N, hidden]`."""
    q = layer.q(normed).view(-1, config.heads, config.head_dim)
    return q if layer.q_norm is None else rms_norm(q, layer.q_norm, config.norm_eps)


def keys(layer: Layer, config: ModelConfig, normed: Tensor) -> Tensor:
    """Un-rotated keys `[N, kv_heads, head_dim]` of normed rows `[N, hidden]`."""
    k = layer.k(normed).view(-1, config.kv_heads, config.head_dim)
    return k if layer.k_norm is None else rms_norm(k, layer.k_norm, config.norm_eps)


def values(layer: Layer, config: ModelConfig, normed: Tensor) -> Tensor:
    """Values `[N, kv_heads, head_dim]` of normed rows `[N, hidden]`."""
    return layer.v(normed).view(-1, config.kv_heads, config.head_dim)


def finish(layer: Layer, config: ModelConfig, x: Tensor, attended: Tensor) -> Tensor:
    """Add the attention output `[N, heads * head_dim]` and the MLP to the residual rows `x`."""
    x = layer.o.added_to(x, attended)
    normed = rms_norm(x, layer.post_norm, config.norm_eps)
    return layer.down.added_to(x, swiglu(normed, layer.gate, layer.up))
