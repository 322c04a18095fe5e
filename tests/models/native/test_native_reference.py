"""What transformers ignores, against a reference of our own that follows the config.

The rotation's layout, read from the flags; the epsilon of the latents' norms, read from
`rms_norm_eps`; ties, taken by the lower position.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from native_samples import LOGITS_TOLERANCE, config_of, saved, token_ids
from reference_decoder import forward as by_hand
from safetensors.torch import load_file, save_file

from longctx.models.native.decoder import NativeDecoder
from longctx.models.weights.native import NativeSource

TOKENS = 40


def changed(folder: Path, **keys: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | keys))


def compared(folder: Path, ids: torch.Tensor) -> float:
    """The largest difference in logits, once the same tokens were chosen everywhere."""
    config = config_of(folder)
    wanted, chosen = by_hand(config, load_file(folder / "model.safetensors").__getitem__, ids)
    decoder = NativeDecoder(config, NativeSource(folder, torch.float32))
    logits, indices = decoder.forward(ids, return_indices=True)
    for layer, rows in enumerate(indices):
        ours = [[i for i in row if i >= 0] for row in rows.tolist()]
        assert ours == chosen[layer], f"layer {layer}"
    return float((logits - wanted).abs().max())


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("main", [True, False])
def test_rotations_are_the_configs(main: bool, index: bool, tmp_path: Path):
    saved(tmp_path, "glm", num_hidden_layers=2)
    changed(tmp_path, rope_interleave=main, indexer_rope_interleave=index)

    assert compared(tmp_path, token_ids(TOKENS)) < LOGITS_TOLERANCE


def test_latent_norms_use_the_configs_epsilon(tmp_path: Path):
    saved(tmp_path, "glm", num_hidden_layers=2, rms_norm_eps=0.05)

    assert compared(tmp_path, token_ids(TOKENS)) < LOGITS_TOLERANCE


def test_groups_and_plain_weights_of_experts(tmp_path: Path):
    saved(tmp_path, "glm", num_hidden_layers=2, n_group=4, topk_group=2, norm_topk_prob=False)

    assert compared(tmp_path, token_ids(TOKENS)) < LOGITS_TOLERANCE


def test_equal_scores_take_the_earlier_tokens(tmp_path: Path):
    """Index keys of zeros score zero everywhere."""
    saved(tmp_path, "glm", num_hidden_layers=1)
    weights = load_file(tmp_path / "model.safetensors")
    for name in ("wk.weight", "k_norm.bias"):
        weights[f"model.layers.0.self_attn.indexer.{name}"].zero_()
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})

    decoder = NativeDecoder(config_of(tmp_path), NativeSource(tmp_path, torch.float32))
    _, indices = decoder.forward(token_ids(TOKENS), return_indices=True)

    assert indices[0][-1].tolist() == list(range(8))
