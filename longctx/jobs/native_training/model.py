"""The trainable model of the `glm_moe_dsa` shape, its state dict named as the tensors on disk.

Latent attention in the expanded form, dense or restricted to what the indexer selects, with the
indexer's distillation loss. It knows no tasks and no optimiser.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from longctx.jobs.native_training.layers import (
    MLP,
    Indexer,
    MoE,
    RMSNorm,
    angles,
    linear,
    rotate,
    select,
)
from longctx.jobs.native_training.shape import Shape

_NEARBY = 1.0  # how strongly the first layer begins by looking at near tokens
_ROWS = 512  # queries whose index scores are held at once when no gradient is wanted


@dataclass
class Target:
    """What a full layer's indexer is to learn: attention summed over the layers it serves."""

    scores: Tensor  # [B, T, S], -inf where a token was not a candidate
    attention: Tensor  # [B, T, S], one unit a row and layer
    neg_entropy: Tensor  # [], sum over layers of the mean over rows of sum p log p
    layers: int = 0

    def loss(self) -> Tensor:
        """Mean over the served layers and rows of KL(attention || softmax(scores))."""
        logs = F.log_softmax(self.scores, -1).masked_fill(self.scores == -torch.inf, 0.0)
        cross = -(self.attention * logs).sum(-1).mean()
        return (self.neg_entropy + cross) / self.layers


@dataclass(frozen=True)
class Output:
    """`hidden` [B, T, hidden] is normed; `index_loss` is the mean over full layers, or None.

    `selected` holds, per layer, bool [B, T, S] (None where attention was dense).
    """

    hidden: Tensor
    index_loss: Tensor | None
    selected: list[Tensor | None]


class Attention(nn.Module):
    """Multi-head latent attention; `indexer` is None on a layer that reuses another's choice."""

    def __init__(self, shape: Shape, full: bool, scale: float):
        super().__init__()
        self.shape = shape
        heads, qk = shape.heads, shape.nope + shape.rope
        self.q_a_proj = linear(shape.hidden, shape.q_rank)
        self.q_a_layernorm = RMSNorm(shape.q_rank, shape.norm_eps)
        self.q_b_proj = linear(shape.q_rank, heads * qk)
        self.kv_a_proj_with_mqa = linear(shape.hidden, shape.kv_rank + shape.rope)
        self.kv_a_layernorm = RMSNorm(shape.kv_rank, shape.norm_eps)
        self.kv_b_proj = linear(shape.kv_rank, heads * (shape.nope + shape.value))
        self.o_proj = linear(heads * shape.value, shape.hidden, scale)
        self.indexer = Indexer(shape) if full else None
        self._begin_alike(scale)

    @torch.no_grad()
    def _begin_alike(self, scale: float) -> None:
        """Begin with heads that attend to tokens like the query's and hand on what they hold.

        Keys start as the queries' projection and each head's output as the transpose of its values'
        projection, so matching and copying need not be found by chance.
        """
        s = self.shape
        if s.q_rank == s.kv_rank:
            self.kv_a_proj_with_mqa.weight[: s.kv_rank] = self.q_a_proj.weight
        q = self.q_b_proj.weight.view(s.heads, s.nope + s.rope, s.q_rank)
        kv = self.kv_b_proj.weight.view(s.heads, s.nope + s.value, s.kv_rank)
        width = min(s.q_rank, s.kv_rank)
        kv[:, : s.nope, :width] = q[:, : s.nope, :width]
        through = (
            kv[:, s.nope :] @ self.kv_a_proj_with_mqa.weight[: s.kv_rank]
        )  # [heads, value, hidden]
        out = through.flatten(0, 1).T
        self.o_proj.weight.copy_(out * (scale * (s.heads * s.value) ** -0.5 / out.std()))

    @torch.no_grad()
    def begin_nearby(self, shared: Tensor) -> None:
        """Begin with head n looking n tokens back, whatever stands there.

        `shared` [hidden] is what all embeddings have in common: queries and keys turn it, and only
        it, with the position, in the faster half of the frequencies.
        """
        s = self.shape
        pairs = torch.zeros(s.rope)
        pairs[: s.rope // 2 : 2] = _NEARBY
        common = self.q_a_proj.weight @ shared
        unit = common / common.norm()
        self.kv_a_proj_with_mqa.weight[s.kv_rank :] = torch.outer(pairs, shared / shared.norm())
        cos, sin = angles(-torch.arange(s.heads), s.rope, s.theta)
        q = self.q_b_proj.weight.view(s.heads, s.nope + s.rope, s.q_rank)
        q[:, : s.nope] *= 0.1
        q[:, s.nope :] = rotate(pairs[None], cos, sin)[:, :, None] * unit

    def project(
        self, h: Tensor, qr: Tensor, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys [B, heads, T, nope + rope], values [B, heads, T, value].

        `cos` and `sin` are [B or 1, T, rope / 2].
        """
        s = self.shape
        q = self.q_b_proj(qr).unflatten(-1, (s.heads, -1)).transpose(1, 2)
        q = torch.cat([q[..., : s.nope], rotate(q[..., s.nope :], cos[:, None], sin[:, None])], -1)
        latent, turned = self.kv_a_proj_with_mqa(h).split([s.kv_rank, s.rope], -1)
        expanded = self.kv_b_proj(self.kv_a_layernorm(latent))
        k, v = expanded.unflatten(-1, (s.heads, -1)).transpose(1, 2).split([s.nope, s.value], -1)
        turned = rotate(turned, cos, sin)[:, None].expand(-1, s.heads, -1, -1)
        return q, torch.cat([k, turned], -1), v


class Layer(nn.Module):
    def __init__(self, shape: Shape, index: int):
        super().__init__()
        scale = (2 * shape.layers) ** -0.5
        self.input_layernorm = RMSNorm(shape.hidden, shape.norm_eps)
        self.self_attn = Attention(shape, shape.full[index], scale)
        self.post_attention_layernorm = RMSNorm(shape.hidden, shape.norm_eps)
        if index < shape.dense_layers:
            self.mlp = MLP(shape.hidden, shape.intermediate, scale)
        else:
            self.mlp = MoE(shape, scale)


class Decoder(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab, shape.hidden)
        nn.init.normal_(self.embed_tokens.weight, std=0.5)
        shared = torch.randn(shape.hidden) * 0.3  # lets heads see positions from the start
        with torch.no_grad():
            self.embed_tokens.weight += shared
        self.layers = nn.ModuleList(Layer(shape, index) for index in range(shape.layers))
        self.blocks()[0].self_attn.begin_nearby(shared)
        self.norm = RMSNorm(shape.hidden, shape.norm_eps)

    def blocks(self) -> list[Layer]:
        """The layers, by their own type."""
        return [layer for layer in self.layers if isinstance(layer, Layer)]


class NativeModel(nn.Module):
    """The whole model. `topk` may be changed between calls; it starts as the shape's."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.shape = shape
        self.topk = shape.topk
        self.model = Decoder(shape)
        self.lm_head = linear(shape.hidden, shape.vocab)
        with torch.no_grad():  # a word that reaches the end of the stack begins as itself
            words = self.model.embed_tokens.weight
            words = words - words.mean(0)
            self.lm_head.weight.copy_(words * (shape.hidden**-0.5 / words.std()))

    def logits(self, tokens: Tensor, sparse: bool) -> Tensor:
        """Logits [B, T, vocab] of tokens int64 [B, T]."""
        return self.lm_head(self(tokens, sparse=sparse).hidden)

    def forward(
        self, tokens: Tensor, sparse: bool, distil: bool = False, positions: Tensor | None = None
    ) -> Output:
        """Run tokens int64 [B, T], attention over everything or over what is selected (`sparse`).

        With `distil` the attention of every layer is the target of the indexer serving it; targets
        and the indexers' inputs carry no gradient, so the loss trains the indexers alone. Without
        `positions` [B, T] the tokens stand at 0, 1, 2 and so on.
        """
        places = torch.arange(tokens.shape[1], device=tokens.device)
        standing = places[None] if positions is None else positions
        cos, sin = angles(standing, self.shape.rope, self.shape.theta)
        causal = places[:, None] >= places
        x = self.model.embed_tokens(tokens)
        keep: Tensor | None = None
        target: Target | None = None
        losses: list[Tensor] = []
        selected: list[Tensor | None] = []
        for layer in self.model.blocks():
            attention = layer.self_attn
            h = layer.input_layernorm(x)
            qr = attention.q_a_layernorm(attention.q_a_proj(h))
            if attention.indexer is not None and (sparse or distil):
                losses += [target.loss()] if target else []
                inputs = attention.indexer.project(h.detach(), qr.detach(), cos, sin)
                if distil:
                    scores = attention.indexer.score(*inputs).masked_fill(~causal, -torch.inf)
                    keep = select(scores.detach(), self.topk) if sparse else None
                    scores = scores.masked_fill(~keep, -torch.inf) if keep is not None else scores
                    zero = torch.zeros((), device=x.device)
                    target = Target(scores, torch.zeros_like(scores), zero)
                else:
                    keep = _choose(*inputs, self.topk)
            q, k, v = attention.project(h, qr, cos, sin)
            if target is None:
                mixed = _attend(q, k, v, keep)
            else:
                mixed = _attend_and_record(q, k, v, causal if keep is None else keep, target)
            x = x + attention.o_proj(mixed.transpose(1, 2).flatten(2))
            x = x + layer.mlp(layer.post_attention_layernorm(x))
            selected.append(keep)
        losses += [target.loss()] if target else []
        loss = torch.stack(losses).mean() if losses else None
        return Output(self.model.norm(x), loss, selected)

    def balance(self, rate: float) -> None:
        """Move every router's bias towards equal use of its experts."""
        for layer in self.model.blocks():
            if isinstance(layer.mlp, MoE):
                layer.mlp.gate.balance(rate)


def _attend(q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None) -> Tensor:
    if keep is None:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None])


def _attend_and_record(q: Tensor, k: Tensor, v: Tensor, keep: Tensor, target: Target) -> Tensor:
    """Attention written out, its mean over the heads added to the indexer's target."""
    allowed = keep if keep.dim() == 2 else keep[:, None]
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    weights = scores.masked_fill(~allowed, -torch.inf).softmax(-1)  # [B, heads, T, S]
    with torch.no_grad():
        mean = weights.mean(1)
        target.attention += mean
        target.neg_entropy += (mean * mean.clamp_min(1e-30).log()).sum(-1).mean()
        target.layers += 1
    return weights @ v


def _choose(q: Tensor, k: Tensor, weights: Tensor, topk: int) -> Tensor:
    """The selection bool [B, T, T] of every query, a block of queries at a time."""
    length = k.shape[1]
    places = torch.arange(length, device=k.device)
    keep = torch.empty(q.shape[0], length, length, dtype=torch.bool, device=k.device)
    for start in range(0, length, _ROWS):
        rows = slice(start, start + _ROWS)
        scores = Indexer.score(q[:, :, rows], k, weights[:, rows])
        future = places > places[rows, None]
        keep[:, rows] = select(scores.masked_fill(future, -torch.inf), topk)
    return keep
