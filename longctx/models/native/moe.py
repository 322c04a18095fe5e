"""The MLP of a layer: one SwiGLU block, or routed experts beside a shared one (spec. 3.3)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.models.native.config import NativeConfig
from longctx.models.native.counters import Counters
from longctx.models.native.source import NativeWeights, Product


@dataclass(frozen=True)
class Block:
    """`down(silu(gate(x)) * up(x))` (arXiv 2002.05202)."""

    gate: Product
    up: Product
    down: Product

    def run(self, x: Tensor, kind: str, counters: Counters) -> Tensor:
        """Rows `[N, hidden]` to `[N, hidden]`, counted as `kind`."""
        inner = F.silu(counters.product(kind, x, self.gate(x)))
        inner = inner.mul_(counters.product(kind, x, self.up(x)))
        return counters.product(kind, inner, self.down(inner))


@dataclass(frozen=True)
class Experts:
    """The router, float32 `[experts, hidden]` and `[experts]`, its experts and the shared one."""

    router: Tensor
    bias: Tensor
    routed: tuple[Block, ...]
    shared: Block


def load_mlp(source: NativeWeights, config: NativeConfig, layer: int) -> Block | Experts:
    """Take the MLP of layer `layer` from the source."""
    prefix = f"model.layers.{layer}.mlp."

    def block(name: str, inner: int) -> Block:
        return Block(
            gate=source.linear(f"{prefix}{name}gate_proj.weight", inner, config.hidden),
            up=source.linear(f"{prefix}{name}up_proj.weight", inner, config.hidden),
            down=source.linear(f"{prefix}{name}down_proj.weight", config.hidden, inner),
        )

    if not config.sparse_mlp[layer]:
        return block("", config.intermediate)
    inner, wide = config.expert_intermediate, torch.float32
    return Experts(
        router=source.tensor(prefix + "gate.weight", (config.experts, config.hidden), wide),
        bias=source.tensor(prefix + "gate.e_score_correction_bias", (config.experts,), wide),
        routed=tuple(block(f"experts.{i}.", inner) for i in range(config.experts)),
        shared=block("shared_experts.", inner * config.shared_experts),
    )


def run_mlp(mlp: Block | Experts, config: NativeConfig, x: Tensor, counters: Counters) -> Tensor:
    """The MLP's output `[N, hidden]` of normed rows `[N, hidden]`."""
    if isinstance(mlp, Block):
        return mlp.run(x, "dense_mlp", counters)
    chosen, weights = route(mlp, config, x, counters)
    # Every expert multiplies its rows once: (row, expert) pairs in the order of their experts.
    order = chosen.flatten().argsort(stable=True)
    rows, factors = order // chosen.shape[1], weights.flatten()[order, None]
    sums = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
    counts = chosen.flatten().bincount(minlength=len(mlp.routed)).tolist()
    start = 0
    for block, count in zip(mlp.routed, counts, strict=True):
        if count:
            own = rows[start : start + count]
            out = block.run(x[own], "experts", counters)
            sums.index_add_(0, own, out * factors[start : start + count])
            start += count
    return sums.to(x.dtype) + mlp.shared.run(x, "shared_experts", counters)


def route(
    mlp: Experts, config: NativeConfig, x: Tensor, counters: Counters
) -> tuple[Tensor, Tensor]:
    """The experts of every row, int64 `[N, k]`, and their weights, float32 `[N, k]`.

    `bias` decides which are chosen and does not weigh them; of several groups only those whose
    two best experts sum highest are kept.
    """
    wide = x.float()
    scores = counters.product("router", wide, F.linear(wide, mlp.router)).sigmoid()
    choice = scores + mlp.bias
    if config.expert_groups > 1:
        groups = choice.view(len(x), config.expert_groups, -1)
        best = groups.topk(2, dim=-1).values.sum(dim=-1).topk(config.kept_groups, dim=-1).indices
        dropped = torch.ones(groups.shape[:2], dtype=torch.bool, device=x.device)
        dropped.scatter_(1, best, False)
        choice = groups.masked_fill(dropped[..., None], float("-inf")).flatten(1)
    chosen = choice.topk(config.experts_per_token, dim=-1).indices
    weights = scores.gather(1, chosen)
    if config.renormalise:
        weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-20)
    return chosen, weights * config.routed_scale
