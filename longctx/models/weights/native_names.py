"""Which tensors a native IndexShare checkpoint holds, and in what shapes, by Hugging Face name.

Generated from sizes alone; neither files nor values are known here. Shapes are `[out, in]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Protocol

BLOCK = 128  # rows and columns of an FP8 weight that share a scale
SCALE_SUFFIX = "_scale_inv"
EMBEDDING, NORM, HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"
_LAYER = re.compile(r"model\.layers\.(\d+)\.")
_QUANTISED = re.compile(  # what FP8 checkpoints store as FP8
    r"\.(self_attn\.(q_a_proj|q_b_proj|kv_a_proj_with_mqa|kv_b_proj|o_proj|indexer\.wq_b|indexer\.wk)"
    r"|mlp\.(\w+\.)*(gate_proj|up_proj|down_proj))\.weight$"
)

Shape = tuple[int, ...]


class NativeSizes(Protocol):
    """The sizes that tensors follow from; `longctx.models.native.config.NativeConfig` has them."""

    @property
    def layers(self) -> int: ...
    @property
    def hidden(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def q_rank(self) -> int: ...
    @property
    def kv_rank(self) -> int: ...
    @property
    def nope_dim(self) -> int: ...
    @property
    def rope_dim(self) -> int: ...
    @property
    def value_dim(self) -> int: ...
    @property
    def index_heads(self) -> int: ...
    @property
    def index_dim(self) -> int: ...
    @property
    def intermediate(self) -> int: ...
    @property
    def expert_intermediate(self) -> int: ...
    @property
    def experts(self) -> int: ...
    @property
    def shared_experts(self) -> int: ...
    @property
    def vocab(self) -> int: ...
    @property
    def full(self) -> tuple[bool, ...]: ...
    @property
    def sparse_mlp(self) -> tuple[bool, ...]: ...
    @property
    def tied(self) -> bool: ...


def tensor_shapes(sizes: NativeSizes, *, fp8: bool = False) -> dict[str, Shape]:
    """Every tensor of a checkpoint in the order it is stored, without the layers of MTP.

    `fp8` adds the scales that stand beside the weights stored as FP8.
    """
    shapes: dict[str, Shape] = {EMBEDDING: (sizes.vocab, sizes.hidden)}
    for layer in range(sizes.layers):
        shapes |= layer_shapes(sizes, layer, fp8=fp8)
    shapes[NORM] = (sizes.hidden,)
    if not sizes.tied:
        shapes[HEAD] = (sizes.vocab, sizes.hidden)
    return shapes


def layer_shapes(sizes: NativeSizes, layer: int, *, fp8: bool = False) -> dict[str, Shape]:
    """The tensors of one decoder layer; the indexer's only where the layer is a full one."""
    parts = [*_attention(sizes), *(_indexer(sizes) if sizes.full[layer] else ())]
    parts += _sparse(sizes) if sizes.sparse_mlp[layer] else _swiglu(sizes.intermediate, sizes)
    return _named(layer, parts, fp8)


def mtp_shapes(sizes: NativeSizes, *, fp8: bool = False) -> dict[str, Shape]:
    """The layer behind the last, which predicts a further token: full, sparse, and 4 more."""
    own = {
        "eh_proj.weight": (sizes.hidden, 2 * sizes.hidden),
        "enorm.weight": (sizes.hidden,),
        "hnorm.weight": (sizes.hidden,),
        "shared_head.norm.weight": (sizes.hidden,),
    }
    parts = [*_attention(sizes), *_indexer(sizes), *_sparse(sizes), *own.items()]
    return _named(sizes.layers, parts, fp8)


def _named(layer: int, parts: Iterable[tuple[str, Shape]], fp8: bool) -> dict[str, Shape]:
    prefix = f"model.layers.{layer}."
    shapes: dict[str, Shape] = {}
    for name, shape in parts:
        shapes[prefix + name] = shape
        if fp8 and quantised(prefix + name):
            shapes[scale_name(prefix + name)] = scale_shape(shape)
    return shapes


def _attention(sizes: NativeSizes) -> Iterator[tuple[str, Shape]]:
    heads, hidden = sizes.heads, sizes.hidden
    query, latent = sizes.nope_dim + sizes.rope_dim, sizes.kv_rank + sizes.rope_dim
    yield "input_layernorm.weight", (hidden,)
    yield "post_attention_layernorm.weight", (hidden,)
    yield "self_attn.q_a_proj.weight", (sizes.q_rank, hidden)
    yield "self_attn.q_a_layernorm.weight", (sizes.q_rank,)
    yield "self_attn.q_b_proj.weight", (heads * query, sizes.q_rank)
    yield "self_attn.kv_a_proj_with_mqa.weight", (latent, hidden)
    yield "self_attn.kv_a_layernorm.weight", (sizes.kv_rank,)
    yield "self_attn.kv_b_proj.weight", (heads * (sizes.nope_dim + sizes.value_dim), sizes.kv_rank)
    yield "self_attn.o_proj.weight", (hidden, heads * sizes.value_dim)


def _indexer(sizes: NativeSizes) -> Iterator[tuple[str, Shape]]:
    yield "self_attn.indexer.wq_b.weight", (sizes.index_heads * sizes.index_dim, sizes.q_rank)
    yield "self_attn.indexer.wk.weight", (sizes.index_dim, sizes.hidden)
    yield "self_attn.indexer.k_norm.weight", (sizes.index_dim,)
    yield "self_attn.indexer.k_norm.bias", (sizes.index_dim,)
    yield "self_attn.indexer.weights_proj.weight", (sizes.index_heads, sizes.hidden)


def _swiglu(width: int, sizes: NativeSizes, part: str = "mlp") -> Iterator[tuple[str, Shape]]:
    yield f"{part}.gate_proj.weight", (width, sizes.hidden)
    yield f"{part}.up_proj.weight", (width, sizes.hidden)
    yield f"{part}.down_proj.weight", (sizes.hidden, width)


def _sparse(sizes: NativeSizes) -> Iterator[tuple[str, Shape]]:
    yield "mlp.gate.weight", (sizes.experts, sizes.hidden)
    yield "mlp.gate.e_score_correction_bias", (sizes.experts,)
    for expert in range(sizes.experts):
        yield from _swiglu(sizes.expert_intermediate, sizes, f"mlp.experts.{expert}")
    if sizes.shared_experts:
        width = sizes.shared_experts * sizes.expert_intermediate
        yield from _swiglu(width, sizes, "mlp.shared_experts")


def quantised(name: str) -> bool:
    """Whether an FP8 checkpoint stores `name` as FP8: the big projections, not the indexer's
    `weights_proj`, the router, norms, embedding and head."""
    return _QUANTISED.search(name) is not None


def scale_name(name: str) -> str:
    """The tensor that holds the scales of an FP8 weight."""
    return name + SCALE_SUFFIX


def scale_shape(shape: Shape) -> Shape:
    """Scales of a weight `[out, in]`; 576 rows take 5, the last of half a block."""
    return tuple(-(-size // BLOCK) for size in shape)


def layer_of(name: str) -> int | None:
    """The layer a tensor belongs to; None for those outside layers."""
    found = _LAYER.match(name)
    return int(found[1]) if found else None


def indexer_layers(names: Iterable[str]) -> tuple[int, ...]:
    """Layers that have an indexer of their own; a config's schedule must name the same ones.

    Layers of MTP are among them where the checkpoint has some.
    """
    found = {layer_of(name) for name in names if name.endswith(".self_attn.indexer.wk.weight")}
    return tuple(sorted(layer for layer in found if layer is not None))


def mtp_layers(names: Iterable[str], layers: int) -> tuple[int, ...]:
    """Layers from `layers` on that predict further tokens: those with an `eh_proj`."""
    found = {layer_of(name) for name in names if name.endswith(".eh_proj.weight")}
    return tuple(sorted(layer for layer in found if layer is not None and layer >= layers))
