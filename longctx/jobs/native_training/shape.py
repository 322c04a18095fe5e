"""The sizes of the small model and the keys its `config.json` says them with.

It knows numbers and names only; the keys are those of the `glm_moe_dsa` family.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from longctx.errors import ModelError, UsageError
from longctx.jobs.native_training.tasks import END, UNKNOWN, VOCABULARY

# How far a prompt may go: beyond the training length, as far as `evaluate` measures.
MAX_POSITIONS = 8192

_KEYS = {
    "vocab": "vocab_size", "hidden": "hidden_size", "layers": "num_hidden_layers",
    "heads": "num_attention_heads", "q_rank": "q_lora_rank", "kv_rank": "kv_lora_rank",
    "nope": "qk_nope_head_dim", "rope": "qk_rope_head_dim", "value": "v_head_dim",
    "intermediate": "intermediate_size", "expert_intermediate": "moe_intermediate_size",
    "experts": "n_routed_experts", "experts_per_token": "num_experts_per_tok",
    "shared_experts": "n_shared_experts", "dense_layers": "first_k_dense_replace",
    "routed_scale": "routed_scaling_factor", "index_heads": "index_n_heads",
    "index_dim": "index_head_dim", "topk": "index_topk", "norm_eps": "rms_norm_eps",
}  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """Sizes in elements, counts, and `schedule`: F (has an indexer) or S (reuses it), a layer each.

    The schedule is GLM-5.2's rule for 8 layers: freq 4, offset 3.
    """

    vocab: int = VOCABULARY
    hidden: int = 128
    layers: int = 8
    heads: int = 4
    q_rank: int = 64
    kv_rank: int = 64
    nope: int = 32
    rope: int = 16
    value: int = 48
    intermediate: int = 256
    expert_intermediate: int = 64
    experts: int = 8
    experts_per_token: int = 2
    shared_experts: int = 1
    dense_layers: int = 1
    routed_scale: float = 2.5
    index_heads: int = 4
    index_dim: int = 32
    topk: int = 64
    norm_eps: float = 1e-6
    theta: float = 1000.0
    schedule: str = "FFFSSSFS"

    def __post_init__(self) -> None:
        if len(self.schedule) != self.layers or set(self.schedule) - set("FS"):
            raise UsageError(f"schedule {self.schedule!r} is not {self.layers} letters of F and S")
        if not self.schedule.startswith("F"):
            raise UsageError(f"schedule {self.schedule!r}: layer 0 has nothing to reuse, needs F")

    @property
    def full(self) -> tuple[bool, ...]:
        """Per layer, whether it selects for itself."""
        return tuple(letter == "F" for letter in self.schedule)

    def with_schedule(self, schedule: str) -> Shape:
        """The same sizes under another schedule."""
        return replace(self, schedule=schedule)


def to_config(shape: Shape, dtype: str = "bfloat16") -> dict[str, Any]:
    """The content of `config.json`."""
    sizes = asdict(shape)
    config: dict[str, Any] = {key: sizes[name] for name, key in _KEYS.items()}
    rule = _rule(shape)
    return {
        "architectures": ["GlmMoeDsaForCausalLM"],
        "model_type": "glm_moe_dsa",
        **config,
        **({"index_topk_freq": rule[0], "index_skip_topk_offset": rule[1]} if rule else {}),
        "index_topk_pattern": None if rule else shape.schedule,
        "indexer_types": ["full" if full else "shared" for full in shape.full],
        "mlp_layer_types": [
            "dense" if layer < shape.dense_layers else "sparse" for layer in range(shape.layers)
        ],
        "num_key_value_heads": shape.heads,
        "qk_head_dim": shape.nope + shape.rope,
        "rope_parameters": {"rope_theta": shape.theta, "rope_type": "default"},
        "rope_interleave": True,
        "indexer_rope_interleave": True,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "hidden_act": "silu",
        "n_group": 1,
        "topk_group": 1,
        "norm_topk_prob": True,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "moe_layer_freq": 1,
        "num_nextn_predict_layers": 0,
        "max_position_embeddings": MAX_POSITIONS,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": END,
        "pad_token_id": UNKNOWN,
        "dtype": dtype,
        "use_cache": True,
    }


def from_config(config: Mapping[str, Any]) -> Shape:
    """The shape a `config.json` of `to_config` says. Raises `ModelError` when a key is missing."""
    try:
        sizes = {name: config[key] for name, key in _KEYS.items()}
        schedule = "".join("F" if kind == "full" else "S" for kind in config["indexer_types"])
        return Shape(**sizes, theta=config["rope_parameters"]["rope_theta"], schedule=schedule)
    except (KeyError, TypeError) as error:
        raise ModelError(f"the config lacks {error}: not a model of this training") from None


def _rule(shape: Shape) -> tuple[int, int] | None:
    """The (freq, offset) that gives the schedule, or None when none does."""
    for offset in range(1, shape.layers + 1):
        for freq in range(1, shape.layers + 1):
            layers = range(shape.layers)
            if shape.full == tuple(max(i - offset + 1, 0) % freq == 0 for i in layers):
                return freq, offset
    return None
