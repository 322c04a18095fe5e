"""The shape of an IndexShare decoder (GLM-5.x, DeepSeek-V3.2), read from a `config.json`.

It knows names and numbers only: no tensors, no files. What it cannot compute it refuses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

from longctx.errors import ModelError
from longctx.models.config import RopeConfig

NATIVE_FAMILIES = ("glm_moe_dsa", "deepseek_v32")
ROPE_KINDS = ("default", "yarn")
TRANSFORMERS_LATENT_EPS = 1e-6  # what transformers norms q_a and kv_a with, whatever the config


@dataclass(frozen=True)
class NativeConfig:
    """Sizes in elements. `full[i]` says whether layer i runs an indexer or shares one's choice.

    `latent_norm_eps` is the norms' of the two low-rank projections: `rms_norm_eps` here and in
    servers, 1e-6 in transformers (`TRANSFORMERS_LATENT_EPS`, with `dataclasses.replace`).
    """

    family: str
    layers: int
    hidden: int
    heads: int
    q_rank: int
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    index_heads: int
    index_dim: int
    index_topk: int
    intermediate: int
    expert_intermediate: int
    experts: int
    experts_per_token: int
    shared_experts: int
    expert_groups: int
    kept_groups: int
    renormalise: bool
    routed_scale: float
    vocab: int
    max_positions: int
    norm_eps: float
    latent_norm_eps: float
    rope: RopeConfig
    rope_interleaved: bool
    index_rope_interleaved: bool
    eos_ids: tuple[int, ...]
    full: tuple[bool, ...]
    sparse_mlp: tuple[bool, ...]
    tied: bool = False

    @property
    def dense_layers(self) -> int:
        """Layers whose MLP is one dense block."""
        return self.sparse_mlp.count(False)

    @property
    def entry_dim(self) -> int:
        """Numbers cached a token and layer: the latent and its rotary key."""
        return self.kv_rank + self.rope_dim

    @property
    def softmax_scale(self) -> float:
        """`1 / sqrt(head size)`, with YaRN's `mscale` squared (specification 3.1, step 5)."""
        scale = (self.nope_dim + self.rope_dim) ** -0.5
        if self.rope.kind == "default":
            return scale
        weight = float(self.rope.scaling.get("mscale_all_dim") or 0.0)
        factor = float(self.rope.scaling["factor"])
        mscale = 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0
        return scale * mscale**2

    def source_of(self, layer: int) -> int:
        """The full layer whose choice `layer` attends with: itself or the last before it."""
        return max(i for i in range(layer + 1) if self.full[i])

    def check_schedule(self, names: Set[str]) -> None:
        """Raise `ModelError` unless exactly the full layers have indexer tensors among `names`.

        A layer run against its schedule gives fluent, wrong text (specification 8.3, 8.4).
        """
        marks = tuple(f"model.layers.{i}.self_attn.indexer." for i in range(self.layers))
        present = {name[: name.index(".indexer.") + 9] for name in names if ".indexer." in name}
        for layer, (mark, full) in enumerate(zip(marks, self.full, strict=True)):
            if full == (mark in present):
                continue
            said, found = ("full", "has no") if full else ("shared", "has")
            raise ModelError(
                f"layer {layer} is {said} by the config but {found} indexer weights; the config "
                "and the weights belong to different models: fetch both again"
            )


def parse_native_config(raw: Mapping[str, Any]) -> NativeConfig:
    """Build a `NativeConfig` from the keys of a `config.json`; `ModelError` says what is wrong."""
    family = raw.get("model_type")
    if family not in NATIVE_FAMILIES:
        raise ModelError(
            f"model family {family!r} is not supported; supported: {', '.join(NATIVE_FAMILIES)}"
        )
    _refuse_other_kinds(raw)
    try:
        config = _read(str(family), raw)
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"the model's config lacks or misstates {error}; fetch it again") from None
    _check(config)
    return config


def _refuse_other_kinds(raw: Mapping[str, Any]) -> None:
    """Refuse the values of a key that would need other arithmetic."""
    known = {
        "hidden_act": ("silu", "swish"),
        "scoring_func": ("sigmoid",),
        "topk_method": ("noaux_tc",),
        "attention_bias": (False,),
        "mlp_bias": (False,),
        "moe_layer_freq": (1,),
    }
    for key, supported in known.items():
        value = raw.get(key)
        if value is not None and value not in supported:
            raise ModelError(
                f"the model's {key} is {value!r}, which is not supported; "
                f"supported: {', '.join(map(str, supported))}"
            )


def _read(family: str, raw: Mapping[str, Any]) -> NativeConfig:
    glm = family == "glm_moe_dsa"
    layers = int(raw["num_hidden_layers"])
    eos = raw.get("eos_token_id")
    eps = float(raw.get("rms_norm_eps", 1e-5 if glm else 1e-6))
    experts = raw.get("n_routed_experts")
    return NativeConfig(
        family=family,
        layers=layers,
        hidden=int(raw["hidden_size"]),
        heads=int(raw["num_attention_heads"]),
        q_rank=int(raw["q_lora_rank"]),
        kv_rank=int(raw["kv_lora_rank"]),
        nope_dim=int(raw["qk_nope_head_dim"]),
        rope_dim=int(raw["qk_rope_head_dim"]),
        value_dim=int(raw["v_head_dim"]),
        index_heads=int(raw["index_n_heads"]),
        index_dim=int(raw["index_head_dim"]),
        index_topk=int(raw["index_topk"]),
        intermediate=int(raw["intermediate_size"]),
        expert_intermediate=int(raw["moe_intermediate_size"]),
        experts=int(raw["num_experts"] if experts is None else experts),
        experts_per_token=int(raw["num_experts_per_tok"]),
        shared_experts=int(raw.get("n_shared_experts", 1)),
        expert_groups=int(raw.get("n_group") or 1),
        kept_groups=int(raw.get("topk_group") or 1),
        renormalise=bool(raw.get("norm_topk_prob", True)),
        routed_scale=float(raw.get("routed_scaling_factor", 2.5)),
        vocab=int(raw["vocab_size"]),
        max_positions=int(raw["max_position_embeddings"]),
        norm_eps=eps,
        latent_norm_eps=eps,
        rope=_rope(raw),
        rope_interleaved=_flag(raw, "rope_interleave", True),
        index_rope_interleaved=_flag(raw, "indexer_rope_interleave", glm),
        eos_ids=tuple(map(int, eos)) if isinstance(eos, list) else _one(eos),
        full=_schedule(raw, layers),
        sparse_mlp=_sparse_mlp(raw, layers),
        tied=bool(raw.get("tie_word_embeddings", False)),
    )


def _flag(raw: Mapping[str, Any], key: str, default: bool) -> bool:
    value = raw.get(key)
    return default if value is None else bool(value)


def _one(eos: Any) -> tuple[int, ...]:
    return () if eos is None else (int(eos),)


def _schedule(raw: Mapping[str, Any], layers: int) -> tuple[bool, ...]:
    """Which layers are full: the list, else the pattern, else the formula of specification 1.2."""
    kinds = raw.get("indexer_types")
    key = "indexer_types"
    if kinds is None:
        kinds, key = raw.get("index_topk_pattern"), "index_topk_pattern"
    if kinds is None:
        every = max(int(raw.get("index_topk_freq") or 1), 1)
        given = raw.get("index_skip_topk_offset")
        offset = 2 if given is None else int(given)
        return tuple(max(i - offset + 1, 0) % every == 0 for i in range(layers))
    meaning = {"F": True, "full": True, "S": False, "shared": False}
    unknown = sorted({str(kind) for kind in kinds if kind not in meaning})
    if unknown:
        raise ModelError(f"the model's {key} has {unknown[0]!r}; known: full (F), shared (S)")
    if len(kinds) != layers:
        raise ModelError(
            f"the model's {key} has {len(kinds)} entries for {layers} layers; fetch it again"
        )
    return tuple(meaning[kind] for kind in kinds)


def _sparse_mlp(raw: Mapping[str, Any], layers: int) -> tuple[bool, ...]:
    kinds = raw.get("mlp_layer_types")
    if kinds is None:
        first = int(raw.get("first_k_dense_replace", 3))
        return tuple(layer >= first for layer in range(layers))
    if len(kinds) != layers or not set(kinds) <= {"dense", "sparse"}:
        raise ModelError(
            f"the model's mlp_layer_types does not name {layers} dense or sparse layers; "
            "fetch it again"
        )
    return tuple(kind == "sparse" for kind in kinds)


def _rope(raw: Mapping[str, Any]) -> RopeConfig:
    # Newer configs nest theta and scaling under rope_parameters; older ones keep them apart.
    nested = raw.get("rope_parameters") or {}
    scaling = dict(raw.get("rope_scaling") or nested)
    theta = scaling.get("rope_theta") or nested.get("rope_theta") or raw.get("rope_theta")
    kind = str(scaling.get("rope_type") or scaling.get("type") or "default")
    if kind not in ROPE_KINDS:
        raise ModelError(f"rope scaling {kind!r} is not supported; known: {', '.join(ROPE_KINDS)}")
    if theta is None:
        raise ModelError("the model's config has no rope_theta; fetch it again")
    if kind == "yarn":
        for key in ("factor", "original_max_position_embeddings"):
            scaling[key] = float(scaling.get(key) or raw[key])
    return RopeConfig(theta=float(theta), kind=kind, scaling=scaling)


def _check(config: NativeConfig) -> None:
    sizes = {key: value for key, value in vars(config).items() if type(value) is int}
    for key, size in sizes.items():
        if size < 1:
            raise ModelError(f"the model's config has a {key} of {size}; fetch it again")
    if config.rope_dim % 2 or config.rope_dim > config.index_dim:
        raise ModelError(
            f"a rotary part of {config.rope_dim} does not fit index keys of {config.index_dim}"
        )
    if not config.full[0]:
        raise ModelError("the model's layer 0 shares an index that no layer before it makes")
    groups, kept = config.expert_groups, config.kept_groups
    if config.experts % groups or kept > groups or (groups > 1 and config.experts < 2 * groups):
        raise ModelError(
            f"the model's config keeps {kept} of {groups} groups of {config.experts} experts, "
            "which do not divide; fetch it again"
        )
    if config.experts_per_token > config.experts // groups * kept:
        raise ModelError(
            f"the model's config chooses {config.experts_per_token} experts a token of "
            f"{config.experts // groups * kept}; fetch it again"
        )
    if config.rope.theta <= 1 or config.norm_eps <= 0:
        raise ModelError("the model's config misstates rope_theta or rms_norm_eps; fetch it again")
