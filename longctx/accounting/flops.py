"""Floating point operations of a dense decoder and of recall, in closed form.

A multiply and an add count as two. Norms, activations and softmax are left out: they are below one
percent of a layer. `Shape` is any config with the named sizes; no tensors here.
"""

from __future__ import annotations

from typing import Protocol


class Shape(Protocol):
    """The sizes a formula needs; `longctx.models.config.ModelConfig` has them."""

    @property
    def layers(self) -> int: ...
    @property
    def hidden(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def kv_heads(self) -> int: ...
    @property
    def head_dim(self) -> int: ...
    @property
    def vocab(self) -> int: ...
    @property
    def layer_parameters(self) -> int: ...


def linear(shape: Shape, layers: int, tokens: int) -> int:
    """Matrix products of `layers` layers: 2 operations a weight and token."""
    return 2 * layers * shape.layer_parameters * tokens


def pair(shape: Shape) -> int:
    """One query position with one key position in one layer: q.k and the weighted v, all heads."""
    return 4 * shape.heads * shape.head_dim


def causal_pairs(tokens: int, past: int = 0) -> int:
    """Query-key pairs of `tokens` causal queries that follow `past` positions."""
    return tokens * past + tokens * (tokens + 1) // 2


def dense(shape: Shape, tokens: int, past: int = 0) -> int:
    """A prefill or decode of `tokens` after `past` through every layer, head left out."""
    attention = shape.layers * pair(shape) * causal_pairs(tokens, past)
    return linear(shape, shape.layers, tokens) + attention


def head(shape: Shape, rows: int) -> int:
    """Logits of `rows` positions."""
    return 2 * rows * shape.hidden * shape.vocab


def leader(shape: Shape, depth: int, tokens: int, window: int, sinks: int) -> int:
    """Recall's indexing of `tokens`: `depth` whole layers and the keys of the next.

    A query reads its sinks and, on average, one and a half windows.
    """
    keys = 2 * shape.hidden * shape.kv_heads * shape.head_dim * tokens
    attention = depth * pair(shape) * tokens * (sinks + window + window // 2)
    return linear(shape, depth, tokens) + keys + attention


def scoring(head_dim: int, heads: int, question_tokens: int, context_tokens: int) -> int:
    """q.k of every leader head and question token with every context token."""
    return 2 * head_dim * heads * question_tokens * context_tokens


def survey(shape: Shape, depth: int, tokens: int) -> int:
    """The second look: a prompt of `tokens` through `depth` whole layers and the keys of the next.

    The last position's scores there are one row of products, below one part in ten thousand.
    """
    keys = 2 * shape.hidden * shape.kv_heads * shape.head_dim * tokens
    attention = depth * pair(shape) * causal_pairs(tokens)
    return linear(shape, depth, tokens) + keys + attention
