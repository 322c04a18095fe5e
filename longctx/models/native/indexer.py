"""The lightning indexer of full layers: which earlier tokens a row attends to (spec. 3.2).

Queries come from the normed low-rank query, keys and head weights from the normed hidden rows.
Scores and head weights are float32, and the choice is exact: ties go to the earlier token.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from longctx.errors import ModelError
from longctx.kernels.index_scores import index_scores
from longctx.kernels.index_select import index_select
from longctx.models.native.cache import LayerCache
from longctx.models.native.config import NativeConfig
from longctx.models.native.counters import Counters
from longctx.models.native.rope import rotate
from longctx.models.native.source import NativeWeights, Product

NORM_EPS = 1e-6  # of the keys' LayerNorm, in every implementation that is right
SCORE_BYTES = 1 << 26  # of float32 scores held at once: 80 rows of 200,000 tokens


@dataclass(frozen=True)
class Indexer:
    """Weights of a full layer's indexer; `weights` float32 `[index_heads, hidden]`."""

    queries: Product
    keys: Product
    norm_weight: Tensor
    norm_bias: Tensor
    weights: Tensor


def load_indexer(source: NativeWeights, config: NativeConfig, layer: int) -> Indexer:
    """Take the indexer of full layer `layer` from the source."""
    prefix = f"model.layers.{layer}.self_attn.indexer."
    dim, heads = config.index_dim, config.index_heads
    wide = torch.float32
    return Indexer(
        queries=source.linear(prefix + "wq_b.weight", heads * dim, config.q_rank),
        keys=source.linear(prefix + "wk.weight", dim, config.hidden),
        norm_weight=source.tensor(prefix + "k_norm.weight", (dim,), wide),
        norm_bias=source.tensor(prefix + "k_norm.bias", (dim,), wide),
        weights=source.tensor(prefix + "weights_proj.weight", (heads, config.hidden), wide),
    )


def index_keys(
    indexer: Indexer,
    config: NativeConfig,
    normed: Tensor,
    tables: tuple[Tensor, Tensor],
    counters: Counters,
) -> Tensor:
    """Rotated index keys `[T, index_dim]` of normed rows `[T, hidden]` at `tables`' positions."""
    raw = counters.product("index_projections", normed, indexer.keys(normed))
    weight, bias = indexer.norm_weight, indexer.norm_bias
    keys = F.layer_norm(raw.float(), weight.shape, weight, bias, NORM_EPS).to(raw.dtype)
    return _rotated(keys, config, tables)


def select(
    indexer: Indexer,
    config: NativeConfig,
    normed: Tensor,
    low_query: Tensor,
    tables: tuple[Tensor, Tensor],
    first: int,
    cache: LayerCache,
    counters: Counters,
) -> Tensor:
    """The tokens chosen for rows at positions `first` on: int32 `[T, min(topk, first + T)]`.

    `normed` `[T, hidden]`, `low_query` `[T, q_rank]`; the keys of all rows are in the cache. Rows
    ascend and end in -1 where a row sees fewer. Rows that see at most `topk` are not scored.
    """
    total = first + len(normed)
    width = min(config.index_topk, total)
    whole = max(0, min(len(normed), config.index_topk - first))
    chosen = torch.empty(len(normed), width, dtype=torch.int32, device=normed.device)
    chosen[:whole] = everything_before(first, whole, width, normed.device)
    if whole == len(normed):
        return chosen
    normed, low_query = normed[whole:], low_query[whole:]
    tables = (tables[0][whole:], tables[1][whole:])
    first += whole
    heads, dim = config.index_heads, config.index_dim
    product = counters.product("index_projections", low_query, indexer.queries(low_query))
    queries = _rotated(product.view(-1, heads, dim), config, tables)
    wide = normed.float()
    weights = counters.product("index_projections", wide, F.linear(wide, indexer.weights))
    weights = weights * (heads * dim) ** -0.5
    assert cache.index_keys is not None, "a full layer keeps its index keys"
    step = max(1, SCORE_BYTES // (4 * total))
    scores = torch.empty(min(step, len(normed)) * total, dtype=torch.float32, device=normed.device)
    for row in range(0, len(normed), step):
        part = queries[row : row + step]
        seen = first + row + len(part)
        found = index_scores(
            part,
            cache.index_keys[:seen],
            weights[row : row + step],
            first + row,
            scores[: len(part) * seen].view(len(part), seen),
        )
        try:
            chosen[whole + row : whole + row + len(part)] = index_select(found, width)
        except FloatingPointError:
            raise ModelError(
                f"the model's index scores are no numbers near token {first + row}: its weights "
                "are damaged or overflow; fetch it again"
            ) from None
    pairs = sum(range(first + 1, first + len(normed) + 1))
    counters.scored(pairs, heads * dim)
    return chosen


def everything_before(first: int, rows: int, width: int, device: torch.device) -> Tensor:
    """Positions 0..p of rows p = `first`, `first` + 1, ..., int32 `[rows, width]`, then -1."""
    columns = torch.arange(width, dtype=torch.int32, device=device)[None]
    ends = torch.arange(first, first + rows, dtype=torch.int32, device=device)[:, None]
    return torch.where(columns <= ends, columns, -1)


def _rotated(x: Tensor, config: NativeConfig, tables: tuple[Tensor, Tensor]) -> Tensor:
    """Index queries or keys `[T, ..., index_dim]`: the first `rope_dim` numbers are rotary."""
    rope, rest = x.split((config.rope_dim, x.shape[-1] - config.rope_dim), dim=-1)
    return torch.cat((rotate(rope, *tables, config.index_rope_interleaved), rest), dim=-1)
