"""A model small enough to teach within a test, and what an exported folder is compared with."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

from longctx.jobs.native_training import tasks
from longctx.jobs.native_training.export import load
from longctx.jobs.native_training.recipe import DENSE, DISTIL, SPARSE, Recipe, Stage
from longctx.jobs.native_training.shape import Shape
from longctx.models.native.config import parse_native_config
from longctx.models.native.decoder import NativeDecoder
from longctx.models.weights.native import NativeSource

MLP = ("gate_proj.weight", "up_proj.weight", "down_proj.weight")
TINY = Shape(
    hidden=32,
    layers=4,
    heads=2,
    q_rank=16,
    kv_rank=16,
    nope=8,
    rope=8,
    value=16,
    intermediate=32,
    expert_intermediate=16,
    experts=4,
    index_heads=4,
    index_dim=16,
    topk=8,
    schedule="FFSS",
)
EVERY_PHASE = Recipe(
    stages=(
        Stage(DENSE, 24, 3, 3, 3e-3),
        Stage(DISTIL, 32, 3, 3, 3e-3),
        Stage(SPARSE, 32, 3, 3, 3e-3, decay=True, reach=4),
    ),
    warmup_steps=2,
)


def expected_names(shape: Shape) -> set[str]:
    """The tensor names of the `glm_moe_dsa` layout, written out from its specification."""
    attention = ("q_a_proj", "q_a_layernorm", "q_b_proj", "kv_a_proj_with_mqa", "kv_a_layernorm")
    attention += ("kv_b_proj", "o_proj")
    indexer = ("wq_b.weight", "wk.weight", "k_norm.weight", "k_norm.bias", "weights_proj.weight")
    names = {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"}
    for layer in range(shape.layers):
        at = f"model.layers.{layer}"
        names |= {f"{at}.input_layernorm.weight", f"{at}.post_attention_layernorm.weight"}
        names |= {f"{at}.self_attn.{name}.weight" for name in attention}
        if shape.full[layer]:
            names |= {f"{at}.self_attn.indexer.{name}" for name in indexer}
        if layer < shape.dense_layers:
            names |= {f"{at}.mlp.{name}" for name in MLP}
            continue
        names |= {f"{at}.mlp.gate.weight", f"{at}.mlp.gate.e_score_correction_bias"}
        names |= {f"{at}.mlp.shared_experts.{name}" for name in MLP}
        names |= {f"{at}.mlp.experts.{e}.{name}" for e in range(shape.experts) for name in MLP}
    return names


def compare_with_decoder(folder: Path, length: int) -> None:
    """The decoder's logits and selections against the trainable model's, in float32."""
    ours = load(folder)
    config = parse_native_config(json.loads((folder / "config.json").read_text()))
    decoder = NativeDecoder(config, NativeSource(folder, torch.float32))
    tokens = torch.from_numpy(tasks.make("track", length, np.random.default_rng(11)).tokens)
    with torch.inference_mode():
        out = ours(tokens[None], sparse=True)
        logits, indices = decoder.forward(tokens, return_indices=True)
        torch.testing.assert_close(ours.lm_head(out.hidden)[0], logits, atol=1e-3, rtol=1e-3)
    for layer, (kept, listed) in enumerate(zip(out.selected, indices, strict=True)):
        assert kept is not None
        theirs = [set(row[row >= 0].tolist()) for row in listed]
        own = [set(row.nonzero().flatten().tolist()) for row in kept[0]]
        assert own == theirs, f"layer {layer}"
