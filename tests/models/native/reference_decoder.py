"""The whole model from the formulas, one row at a time and without a cache: slow, short, exact.

It follows a config's flags where transformers ignores them, and shares no code with the decoder.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from longctx.models.native.config import NativeConfig

Tensors = Callable[[str], Tensor]


def forward(config: NativeConfig, tensors: Tensors, tokens: Tensor) -> tuple[Tensor, list]:
    """Logits `[T, vocab]` and, a layer at a time, the tokens each row attended to."""
    x = tensors("model.embed_tokens.weight")[tokens].double()
    chosen: list[list[list[int]]] = []
    for index in range(config.layers):

        def get(name: str, index: int = index) -> Tensor:
            return tensors(f"model.layers.{index}.{name}.weight").double()

        h = _rms(x, get("input_layernorm"), config.norm_eps)
        low = h @ get("self_attn.q_a_proj").T
        low = _rms(low, get("self_attn.q_a_layernorm"), config.latent_norm_eps)
        if config.full[index]:
            bias = tensors(f"model.layers.{index}.self_attn.indexer.k_norm.bias").double()
            chosen.append(_choose(config, get, bias, h, low))
        else:
            chosen.append(chosen[-1])
        x = x + _attend(config, get, h, low, chosen[-1])
        h = _rms(x, get("post_attention_layernorm"), config.norm_eps)
        if config.sparse_mlp[index]:
            bias = tensors(f"model.layers.{index}.mlp.gate.e_score_correction_bias").double()
            x = x + torch.stack([_experts(config, get, bias, row) for row in h])
        else:
            x = x + _swiglu(get, "mlp", h)
    x = _rms(x, tensors("model.norm.weight").double(), config.norm_eps)
    return (x @ tensors("lm_head.weight").double().T).float(), chosen


def _rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / (x.square().mean(dim=-1, keepdim=True) + eps).sqrt() * weight


def _turn(config: NativeConfig, x: Tensor, position: int, interleaved: bool) -> Tensor:
    """Rotate the pairs of `x` `[..., rope_dim]`, as complex numbers."""
    half = config.rope_dim // 2
    steps = torch.arange(half, dtype=torch.float64) / half
    turns = torch.polar(torch.ones(half).double(), position * config.rope.theta**-steps)
    pairs = x.unflatten(-1, (half, 2)) if interleaved else x.unflatten(-1, (2, half)).mT
    turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * turns)
    return (turned if interleaved else turned.mT).flatten(-2)


def _choose(
    config: NativeConfig, get: Callable[[str], Tensor], bias: Tensor, h: Tensor, low: Tensor
) -> list[list[int]]:
    raw = h @ get("self_attn.indexer.wk").T
    centred = raw - raw.mean(dim=-1, keepdim=True)
    spread = (centred.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt()
    keys = centred / spread * get("self_attn.indexer.k_norm") + bias
    queries = (low @ get("self_attn.indexer.wq_b").T).unflatten(-1, (config.index_heads, -1))
    weights = h @ get("self_attn.indexer.weights_proj").T / math.sqrt(config.index_heads)

    def turned(x: Tensor, position: int) -> Tensor:
        rope = _turn(config, x[..., : config.rope_dim], position, config.index_rope_interleaved)
        return torch.cat((rope, x[..., config.rope_dim :]), dim=-1)

    keys = torch.stack([turned(key, s) for s, key in enumerate(keys)])
    found = []
    for t in range(len(h)):
        products = turned(queries[t], t) @ keys[: t + 1].T / math.sqrt(config.index_dim)
        scores = (weights[t] @ products.clamp(min=0)).tolist()
        best = sorted(range(t + 1), key=lambda s: (-scores[s], s))
        found.append(sorted(best[: config.index_topk]))
    return found


def _attend(
    config: NativeConfig,
    get: Callable[[str], Tensor],
    h: Tensor,
    low: Tensor,
    chosen: list[list[int]],
) -> Tensor:
    queries = (low @ get("self_attn.q_b_proj").T).unflatten(-1, (config.heads, -1))
    both = h @ get("self_attn.kv_a_proj_with_mqa").T
    latent = both[:, : config.kv_rank]
    latent = _rms(latent, get("self_attn.kv_a_layernorm"), config.latent_norm_eps)
    ropes = [
        _turn(config, row, s, config.rope_interleaved)
        for s, row in enumerate(both[:, config.kv_rank :])
    ]
    pairs = (latent @ get("self_attn.kv_b_proj").T).unflatten(-1, (config.heads, -1))
    keys, values = pairs[..., : config.nope_dim], pairs[..., config.nope_dim :]
    rows = []
    for t, query in enumerate(queries):
        nope, rope = query[:, : config.nope_dim], query[:, config.nope_dim :]
        rope = _turn(config, rope, t, config.rope_interleaved)
        at = chosen[t]
        scores = torch.einsum("hd,shd->hs", nope, keys[at])
        scores = (scores + rope @ torch.stack([ropes[s] for s in at]).T) / math.sqrt(
            config.nope_dim + config.rope_dim
        )
        rows.append(torch.einsum("hs,shv->hv", scores.softmax(dim=-1), values[at]).flatten())
    return torch.stack(rows) @ get("self_attn.o_proj").T


def _swiglu(get: Callable[[str], Tensor], name: str, x: Tensor) -> Tensor:
    gate = x @ get(f"{name}.gate_proj").T
    inner = gate * torch.sigmoid(gate) * (x @ get(f"{name}.up_proj").T)
    return inner @ get(f"{name}.down_proj").T


def _experts(
    config: NativeConfig, get: Callable[[str], Tensor], bias: Tensor, row: Tensor
) -> Tensor:
    scores = torch.sigmoid(get("mlp.gate") @ row)
    choice = (scores + bias).tolist()
    size = config.experts // config.expert_groups
    groups = [range(g * size, (g + 1) * size) for g in range(config.expert_groups)]
    if config.expert_groups > 1:
        groups.sort(key=lambda group: -sum(sorted(choice[e] for e in group)[-2:]))
    kept = [e for group in groups[: config.kept_groups] for e in group]
    best = sorted(kept, key=lambda e: -choice[e])[: config.experts_per_token]
    total = sum(scores[e] for e in best) if config.renormalise else 1.0
    out = _swiglu(get, "mlp.shared_experts", row)
    for e in best:
        weight = scores[e] / total * config.routed_scale
        out = out + weight * _swiglu(get, f"mlp.experts.{e}", row)
    return out
