"""A GGUF file that is damaged, incomplete or of another kind is refused in one line."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from decoder_samples import reference
from gguf import GGMLQuantizationType as Kind
from gguf_samples import Tensors, write_gguf
from hypothesis import given, settings
from hypothesis import strategies as st

from longctx.errors import ModelError
from longctx.models.config import parse_config
from longctx.models.weights.convert import converted_folder
from longctx.models.weights.gguf import GGUFFile

VECTOR = np.ones(16, np.float32)


def refusal(path: Path) -> str:
    with pytest.raises(ModelError) as error:
        converted_folder(path, path.parent, torch.float32)
    message = str(error.value)
    assert "\n" not in message
    return message


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "tiny.gguf"
    return write_gguf(path, reference("qwen2", num_hidden_layers=1), Kind.Q8_0)


def add(name: str) -> dict:
    def change(tensors: Tensors) -> None:
        tensors[name] = (VECTOR, Kind.F32)

    return {"tensors": change}


def drop(name: str) -> dict:
    def change(tensors: Tensors) -> None:
        del tensors[name]

    return {"tensors": change}


def cut(name: str) -> dict:
    def change(tensors: Tensors) -> None:
        values, kind = tensors[name]
        tensors[name] = (values[:-1], kind)

    return {"tensors": change}


def say(key: str, value: int | str | list[int]) -> dict:
    def change(writer: gguf.GGUFWriter) -> None:
        writer.kv_data[0].pop(key, None)
        adders = {int: writer.add_uint32, str: writer.add_string, list: writer.add_array}
        adders[type(value)](key, value)

    return {"metadata": change}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (add("blk.0.ssm_in.weight"), "unexpected tensor 'blk.0.ssm_in.weight'"),
        (add("blk.0.attn_q.scale"), "unexpected tensor 'blk.0.attn_q.scale'"),
        (add("blk.weight"), "unexpected tensor 'blk.weight'"),
        (add("nonsense"), "unexpected tensor 'nonsense'"),
        (add("a\nb.weight"), r"unexpected tensor 'a\nb.weight'"),
        (add("blk.2.attn_norm.weight"), "unexpected tensor 'model.layers.2.input_layernorm.weight"),
        (add("blk.1.ffn_up.bias"), "unexpected tensor 'model.layers.1.mlp.up_proj.bias'"),
        (add("blk.0.attn_q_norm.weight"), "unexpected tensor 'model.layers.0.self_attn.q_norm"),
        (drop("blk.1.ffn_up.weight"), "tensor model.layers.1.mlp.up_proj.weight is missing"),
        (drop("output_norm.weight"), "tensor model.norm.weight is missing"),
        (drop("token_embd.weight"), "tensor token_embd.weight is missing"),
        (cut("output_norm.weight"), "model.norm.weight has shape (63,), its settings ask for (64,"),
        (cut("blk.0.attn_k.weight"), "self_attn.k_proj.weight has shape (31, 64)"),
        (say("llama.expert_count", 8), "mixture-of-experts"),
        (say("llama.block_count", 3), "layers.2.input_layernorm.weight is missing"),
        (say("llama.block_count", 0), "a size below 1"),
        (say("llama.attention.head_count", 0), "misstates its sizes"),
        (say("llama.attention.head_count", [4, 4]), "misstates its sizes"),
        (say("llama.attention.head_count_kv", 3), "do not divide"),
        (say("llama.embedding_length", "wide"), "misstates its sizes"),
        (say("llama.feed_forward_length", [96, 96]), "lacks or misstates"),
        (say("llama.rope.dimension_count", 8), "partial rotary"),
        (say("general.alignment", 0), "alignment 0 is unknown"),
        (say("general.alignment", "wide"), "not a readable GGUF file"),
    ],
)
def test_a_file_that_is_not_what_it_says(change: dict, message: str, tmp_path: Path):
    path = tmp_path / "tiny.gguf"

    assert message in refusal(write_gguf(path, reference("llama"), **change))


@pytest.mark.parametrize("kind", ["longrope", "unheard-of"])
def test_scaling_that_cannot_be_computed(kind: str, tmp_path: Path):
    def add_scaling(writer: gguf.GGUFWriter) -> None:
        writer.add_string("llama.rope.scaling.type", kind)
        writer.add_rope_scaling_factor(2.0)

    path = write_gguf(tmp_path / "tiny.gguf", reference("llama"), metadata=add_scaling)

    assert f"{kind}" in refusal(path)


def test_another_architecture(tmp_path: Path):
    path = write_gguf(tmp_path / "tiny.gguf", reference("qwen2"), architecture="gemma")

    assert "architecture 'gemma' is not supported; supported: llama, qwen2, qwen3" in refusal(path)


def test_a_quantisation_nobody_can_read(tmp_path: Path):
    def integers(tensors: Tensors) -> None:
        tensors["output_norm.weight"] = (np.ones(64, np.int32), Kind.I32)

    path = write_gguf(tmp_path / "tiny.gguf", reference("llama"), tensors=integers)

    assert "quantisation I32 cannot be read" in refusal(path)
    assert not list((tmp_path / "converted").iterdir())


def test_no_file(tmp_path: Path):
    with pytest.raises(ModelError, match="no such file"):
        GGUFFile(tmp_path / "absent.gguf")


@pytest.mark.parametrize("part", [0, 3, 20, 60, 0.02, 0.3, 0.9, -1])
def test_a_file_cut_short(part: float, whole: Path, tmp_path: Path):
    path, content = tmp_path / "tiny.gguf", whole.read_bytes()
    path.write_bytes(content[: part if isinstance(part, int) else int(part * len(content))])

    assert "not a readable GGUF file" in refusal(path)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_damage_is_refused_or_harmless(data: st.DataObject, whole: Path):
    content = bytearray(whole.read_bytes())
    tensors = content.index(b"token_embd.weight")
    places = [(0, 400), (0, tensors), (tensors, tensors + 900)]  # settings, all, list of tensors
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(*data.draw(st.sampled_from(places))))
        content[place] = data.draw(st.integers(0, 255))
    path = whole.with_name("damaged.gguf")
    path.write_bytes(content)

    refusals = []
    try:
        file = GGUFFile(path)
        parse_config(file.config())
        file.shapes()
    except ModelError as error:
        refusals.append(str(error))

    assert "\n" not in "".join(refusals)
