"""The parts of the trainable model: norms, rotation, experts, the lightning indexer.

Plain torch in batches, with gradients; module names are those of the tensors on disk. No part knows
which layer it is in.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from longctx.jobs.native_training.shape import Shape

_INDEX_KEY_EPS = 1e-6  # of the indexer's LayerNorm, whatever the config says of the others


class RMSNorm(nn.Module):
    """x / rms(x) * weight over the last dimension, the mean of squares in float32."""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


def linear(inputs: int, outputs: int, scale: float = 1.0) -> nn.Linear:
    """A projection without bias, outputs of about `scale` for inputs of about 1."""
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(layer.weight, std=scale * inputs**-0.5)
    return layer


def angles(positions: Tensor, size: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosine and sine [..., size / 2] of the rotation at each position [...]."""
    frequencies = theta ** (-torch.arange(0, size, 2, device=positions.device).float() / size)
    turned = positions.float()[..., None] * frequencies
    return turned.cos(), turned.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the pairs (2i, 2i+1) of x [..., T, size] in place of their order (interleaved)."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1).flatten(-2)


class MLP(nn.Module):
    """down(silu(gate x) * up x)."""

    def __init__(self, hidden: int, inner: int, scale: float):
        super().__init__()
        self.gate_proj = linear(hidden, inner)
        self.up_proj = linear(hidden, inner)
        self.down_proj = linear(inner, hidden, scale)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Router(nn.Module):
    """Sigmoid scores; experts are chosen by score plus a bias that no gradient reaches."""

    e_score_correction_bias: Tensor
    load: Tensor

    def __init__(self, shape: Shape):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(shape.experts, shape.hidden) * shape.hidden**-0.5)
        self.register_buffer("e_score_correction_bias", torch.zeros(shape.experts))
        self.register_buffer("load", torch.zeros(shape.experts), persistent=False)
        self.chosen, self.scale = shape.experts_per_token, shape.routed_scale

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Experts int64 [N, chosen] and their weights [N, chosen] for x [N, hidden]."""
        scores = F.linear(x.float(), self.weight.float()).sigmoid()
        experts = (scores + self.e_score_correction_bias).topk(self.chosen, sorted=False).indices
        if self.training:
            self.load += torch.bincount(experts.flatten(), minlength=len(self.load))
        weights = scores.gather(1, experts)
        return experts, weights / (weights.sum(-1, keepdim=True) + 1e-20) * self.scale

    @torch.no_grad()
    def balance(self, rate: float) -> None:
        """Move the bias by `rate` towards equal use of the experts since the last call."""
        if rate:
            self.e_score_correction_bias += rate * (self.load.mean() - self.load).sign()
        self.load.zero_()


class MoE(nn.Module):
    """The chosen experts' weighted sum plus the shared expert, which is not scaled."""

    def __init__(self, shape: Shape, scale: float):
        super().__init__()
        inner = shape.expert_intermediate
        self.gate = Router(shape)
        self.experts = nn.ModuleList(MLP(shape.hidden, inner, scale) for _ in range(shape.experts))
        self.shared_experts = MLP(shape.hidden, inner * shape.shared_experts, scale)

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        experts, weights = self.gate(flat)
        out = self.shared_experts(flat)
        slots = experts.flatten()
        order = slots.argsort()
        ends = torch.bincount(slots, minlength=len(self.experts)).cumsum(0).tolist()
        rows, weights = order // experts.shape[1], weights.flatten()[order]
        start = 0
        for expert, end in zip(self.experts, ends, strict=True):
            picked = rows[start:end]
            added = expert(flat[picked]) * weights[start:end, None].to(flat.dtype)
            out = out.index_add(0, picked, added.to(out.dtype))
            start = end
        return out.view_as(x)


class Indexer(nn.Module):
    """Scores every earlier token for a query: sum over heads of w * relu(q . k)."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.heads, self.size, self.rope = shape.index_heads, shape.index_dim, shape.rope
        self.wq_b = linear(shape.q_rank, self.heads * self.size)
        self.wk = linear(shape.hidden, self.size)
        self.k_norm = nn.LayerNorm(self.size, eps=_INDEX_KEY_EPS)
        self.weights_proj = linear(shape.hidden, self.heads)

    def project(self, h: Tensor, qr: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
        """Queries [B, heads, T, size], keys [B, T, size] and weights [B, T, heads].

        `h` [B, T, hidden] is the normed hidden state, `qr` [B, T, q_rank] the normed query latent;
        the first `rope` of `size` are rotated by `cos` and `sin` [B or 1, T, rope / 2].
        """
        q = self.wq_b(qr).unflatten(-1, (self.heads, self.size)).transpose(1, 2)
        k = self.k_norm(self.wk(h))
        turned = rotate(q[..., : self.rope], cos[:, None], sin[:, None])
        q = torch.cat([turned, q[..., self.rope :]], -1)
        k = torch.cat([rotate(k[..., : self.rope], cos, sin), k[..., self.rope :]], -1)
        return q, k, self.weights_proj(h) * (self.heads**-0.5 * self.size**-0.5)

    @staticmethod
    def score(q: Tensor, k: Tensor, weights: Tensor) -> Tensor:
        """Index scores float32 [B, T, S] of queries and weights for keys [B, S, size]."""
        dots = (q.flatten(1, 2) @ k.transpose(1, 2)).view(*q.shape[:3], -1)  # [B, heads, T, S]
        return (F.relu(dots) * weights.transpose(1, 2)[..., None]).sum(1).float()


def select(scores: Tensor, topk: int) -> Tensor:
    """Bool [..., T, S], true at the `topk` highest scores of a row; equal ones by lower index.

    Scores of -inf are never selected, so a row keeps fewer where fewer are allowed.
    """
    allowed = scores > -torch.inf
    if scores.shape[-1] <= topk:
        return allowed
    least = scores.topk(topk, sorted=True).values[..., -1:]
    above = scores > least
    room = topk - above.sum(-1, keepdim=True)
    equal = scores == least
    return (above | (equal & (equal.cumsum(-1) <= room))) & allowed
