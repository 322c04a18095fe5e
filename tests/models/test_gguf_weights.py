"""A converted GGUF file computes what `transformers` computes from the same quantised weights."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from decoder_samples import (
    TOLERANCE,
    decoder_of,
    difference,
    logits_of,
    reference,
    token_ids,
)
from gguf import GGMLQuantizationType as Kind
from gguf_samples import SCALES, Tensors, write_gguf
from transformers import PreTrainedModel

from longctx.models.loaded import load
from longctx.models.weights.convert import converted_folder
from longctx.models.weights.gguf_tensors import GGUFTensors
from longctx.models.weights.source import SafetensorsSource

IDS = token_ids(40)
MADE = [Kind.F32, Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1]
WIDE: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 1}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama, tied": ("llama", {"tie_word_embeddings": True}),
    "llama, groups of 1": ("llama", {"num_key_value_heads": 4}),
    "llama, wide heads": ("llama", {"head_dim": 32}),
    "llama, biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, base and norm": ("llama", {"rope_theta": 500.0, "rms_norm_eps": 0.02}),
    "qwen2": ("qwen2", {}),
    "qwen2, tied": ("qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("qwen3", {}),
    "qwen3, wide heads": ("qwen3", {"head_dim": 32}),
}


def check(model: PreTrainedModel, path: Path) -> None:
    """The file's logits are the model's, whose weights `write_gguf` set to what it stored."""
    folder = converted_folder(path, path.parent, torch.float32)

    assert difference(decoder_of(folder).forward(IDS), logits_of(model, IDS)) < TOLERANCE


@pytest.mark.parametrize("name", MODELS)
def test_every_architecture(name: str, tmp_path: Path):
    family, settings = MODELS[name]
    model = reference(family, **settings)

    check(model, write_gguf(tmp_path / "tiny.gguf", model, Kind.Q8_0))


@pytest.mark.parametrize("kind", MADE, ids=lambda kind: kind.name)
def test_every_quantisation_that_can_be_made(kind: Kind, tmp_path: Path):
    model = reference("llama")

    check(model, write_gguf(tmp_path / "tiny.gguf", model, kind))


@pytest.mark.parametrize("kind", SCALES, ids=lambda kind: kind.name)
def test_quantisations_in_blocks_of_256_and_tables(kind: Kind, tmp_path: Path):
    model = reference("llama", **WIDE)

    check(model, write_gguf(tmp_path / "tiny.gguf", model, kind))


def test_a_mixture_of_quantisations(tmp_path: Path):
    model = reference("qwen2")
    embedding = model.get_parameter("model.embed_tokens.weight")
    stored_embedding = embedding.detach().numpy().copy()

    def keep_embedding(tensors: Tensors) -> None:
        tensors["token_embd.weight"] = (stored_embedding, Kind.F32)

    path = write_gguf(tmp_path / "tiny.gguf", model, Kind.Q4_0, tensors=keep_embedding)
    embedding.data = torch.from_numpy(stored_embedding)

    check(model, path)


def test_every_tensor_is_exactly_what_was_stored(tmp_path: Path):
    model = reference("llama")
    path = write_gguf(tmp_path / "tiny.gguf", model, Kind.Q5_1)

    source = SafetensorsSource(converted_folder(path, tmp_path, torch.float32), torch.float32)

    for name, weight in model.named_parameters():
        assert torch.equal(source.tensor(name, tuple(weight.shape)), weight), name


def test_a_large_tensor_is_read_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    model = reference("llama")
    tensors = GGUFTensors(write_gguf(tmp_path / "tiny.gguf", model, Kind.Q4_1))
    embedding = tensors.tensors["token_embd.weight"]
    monkeypatch.setattr("longctx.models.weights.gguf_tensors._BLOCK_ELEMENTS", 5 * 64)

    values = tensors.read(embedding, torch.float32)

    assert torch.equal(values, model.get_parameter("model.embed_tokens.weight"))


@pytest.mark.parametrize("kind", [Kind.F32, Kind.F16, Kind.Q8_0], ids=lambda kind: kind.name)
def test_reading_warns_of_nothing(kind: Kind, tmp_path: Path):
    path = write_gguf(tmp_path / "tiny.gguf", reference("llama"), kind)
    torch.set_warn_always(True)  # else it warns but once in a process

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            converted_folder(path, tmp_path, torch.bfloat16)
    finally:
        torch.set_warn_always(False)


def test_llama_3_stores_its_scaling_as_factors(tmp_path: Path):
    scaling = {
        "rope_type": "llama3",
        "rope_theta": 10_000.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    model = reference("llama", rope_parameters=scaling)

    def add_factors(tensors: Tensors) -> None:
        factors = []
        for pair in range(8):
            wavelength = 2 * math.pi * 10_000 ** (pair / 8)
            blend = min(max((64 / wavelength - 1) / (4 - 1), 0), 1)
            factors.append(1 / ((1 - blend) / 8 + blend))
        tensors["rope_freqs.weight"] = (np.array(factors, np.float32), Kind.F32)

    check(model, write_gguf(tmp_path / "tiny.gguf", model, tensors=add_factors))


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_linear_scaling_in_the_metadata(family: str, tmp_path: Path):
    scaling = {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 3.0}
    model = reference(family, rope_parameters=scaling)

    def add_scaling(writer: gguf.GGUFWriter) -> None:
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(3.0)

    check(model, write_gguf(tmp_path / "tiny.gguf", model, metadata=add_scaling))


@pytest.mark.parametrize("special", [False, True])
def test_yarn_scaling_in_the_metadata(special: bool, tmp_path: Path):
    scaling = {
        "rope_type": "yarn",
        "rope_theta": 100.0,
        "factor": 4.0,
        "original_max_position_embeddings": 32,
    }
    if special:
        scaling |= {"attention_factor": 1.25, "beta_fast": 2.0, "beta_slow": 0.5}
    model = reference("qwen2", rope_parameters=scaling)

    def add_scaling(writer: gguf.GGUFWriter) -> None:
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(4.0)
        writer.add_rope_scaling_orig_ctx_len(32)
        if special:
            writer.add_rope_scaling_yarn_attn_factor(1.25)
            writer.add_rope_scaling_yarn_beta_fast(2.0)
            writer.add_rope_scaling_yarn_beta_slow(0.5)

    check(model, write_gguf(tmp_path / "tiny.gguf", model, metadata=add_scaling))


def test_a_llama_file_with_a_window_is_a_mistral(tmp_path: Path):
    model = reference("mistral", sliding_window=7)

    path = write_gguf(
        tmp_path / "tiny.gguf",
        model,
        metadata=lambda writer: writer.add_sliding_window(7),
        architecture="llama",
    )

    check(model, path)


def test_a_file_is_loaded_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LONGCTX_HOME", str(tmp_path / "home"))
    model = reference("qwen2")
    path = write_gguf(tmp_path / "tiny.gguf", model, Kind.Q8_0)
    heard = []

    loaded = load(
        str(path),
        device="cpu",
        dtype="float32",
        progress=lambda what, done, total: heard.append((what, done, total)),
    )

    assert difference(loaded.forward(IDS), logits_of(model, IDS)) < TOLERANCE
    assert loaded.tokenizer.decode(loaded.tokenizer.encode_text("The tide")[0]) == "The tide"
    assert loaded.config.eos_ids == (loaded.tokenizer.token_id("<|im_end|>"),)
    size = (loaded.folder / "model.safetensors").stat().st_size
    assert heard[-1][0] == "converting tiny.gguf"
    assert heard[-1][1] == heard[-1][2] <= size
