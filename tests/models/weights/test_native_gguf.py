"""GGUF files of IndexShare models against the checkpoint they were made from."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from native_checkpoints import EXPECTED, rows, stored
from native_gguf_samples import write_gguf

from longctx.errors import ModelError
from longctx.models.loaded import load
from longctx.models.native.config import parse_native_config
from longctx.models.native.loaded import NativeModel
from longctx.models.native.synth import Sizes, preset, write_checkpoint
from longctx.models.tokenizer import TextTokenizer
from longctx.models.weights import native_gguf
from longctx.models.weights.native_gguf import NativeGGUFSource
from longctx.models.weights.native_names import tensor_shapes

F32 = torch.float32
KV_B = "model.layers.1.self_attn.kv_b_proj.weight"
EXPERT = "model.layers.4.mlp.experts.5.down_proj.weight"
CONFIG = preset("glm-5.2", "tiny")


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    folder = tmp_path_factory.mktemp("gguf") / "model"
    write_checkpoint(CONFIG, folder, seed=2)
    return stored(folder)


def repeat_indexer(arrays: dict[str, np.ndarray]) -> None:
    """As published files do: the indexer of layer 2 again in the layers that share it."""
    for name in [name for name in arrays if name.startswith("blk.2.indexer.")]:
        for layer in (3, 4):
            arrays[name.replace("blk.2.", f"blk.{layer}.")] = arrays[name] + 1


@pytest.mark.parametrize("split", [True, False])
def test_every_tensor_is_the_checkpoints(tmp_path, weights, split):
    path = write_gguf(tmp_path / "m.gguf", CONFIG, weights, split_kv_b=split)

    source = NativeGGUFSource(path, F32)

    assert source.check_names(EXPECTED) == []
    assert source.names() >= EXPECTED.keys()
    for name, shape in EXPECTED.items():
        assert torch.equal(source.tensor(name, shape), weights[name].float()), name


@pytest.mark.parametrize("family", ["glm-5.2", "deepseek-v3.2"])
def test_metadata_gives_the_config_back(tmp_path, family):
    config = preset(family, "tiny")
    write_checkpoint(config, tmp_path / "model")
    path = write_gguf(tmp_path / "m.gguf", config, stored(tmp_path / "model"))

    found = parse_native_config(NativeGGUFSource(path, F32).config)

    wanted = parse_native_config(config | {"eos_token_id": [7, 9]})
    assert found.rope.kind == wanted.rope.kind
    assert found.rope.theta == wanted.rope.theta
    assert found.softmax_scale == pytest.approx(wanted.softmax_scale, rel=1e-6)
    inexact = {"rope", "norm_eps", "latent_norm_eps"}  # float32 in the file
    for field in dataclasses.fields(wanted):
        if field.name not in inexact:
            assert getattr(found, field.name) == getattr(wanted, field.name), field.name
    assert tensor_shapes(found) == tensor_shapes(Sizes.of(config))


def test_indexers_repeated_on_shared_layers_are_left_out(tmp_path, weights):
    path = write_gguf(tmp_path / "m.gguf", CONFIG, weights, change=repeat_indexer)

    source = NativeGGUFSource(path, F32)

    assert "model.layers.2.self_attn.indexer.wk.weight" in source.names()
    assert "model.layers.3.self_attn.indexer.wk.weight" not in source.names()
    assert source.check_names(EXPECTED) == []


def test_files_without_a_schedule(tmp_path, weights):
    """The tensors say it; where every layer has them, GLM-5.2 is known by its rope base."""
    held = write_gguf(tmp_path / "a.gguf", CONFIG, weights, types=False)
    again = write_gguf(tmp_path / "b.gguf", CONFIG, weights, types=False, change=repeat_indexer)
    other = write_gguf(
        tmp_path / "c.gguf", CONFIG, weights, types=False, change=repeat_indexer, rope_base=1e6
    )

    modes = [NativeGGUFSource(path, F32).config["indexer_types"] for path in (held, again, other)]

    assert modes[0] == modes[1] == ["full"] * 3 + ["shared"] * 2
    assert modes[2] == ["full"] * 5


@pytest.mark.parametrize("name", [KV_B, EXPERT, "model.layers.0.self_attn.o_proj.weight"])
def test_a_quantised_product_in_tiles(tmp_path, weights, name, monkeypatch: pytest.MonkeyPatch):
    kind = GGMLQuantizationType.Q8_0
    path = write_gguf(tmp_path / "m.gguf", CONFIG, weights, kind=kind)
    monkeypatch.setattr(native_gguf, "TILE_ROWS", 48)
    source = NativeGGUFSource(path, torch.bfloat16)
    out, in_ = EXPECTED[name]
    x = rows(3, in_)

    product = source.linear(name, out, in_)

    dense = source.tensor(name, (out, in_))
    torch.testing.assert_close(dense.float(), weights[name].float(), atol=0.01, rtol=0.01)
    assert torch.equal(product.dense(), dense)
    torch.testing.assert_close(product(x), x @ dense.T)


def test_bytes_are_the_stored_ones_and_an_experts_its_own(tmp_path, weights):
    path = write_gguf(tmp_path / "m.gguf", CONFIG, weights, kind=GGMLQuantizationType.Q8_0)
    source = NativeGGUFSource(path, F32)
    out, in_ = EXPECTED[EXPERT]

    source.linear(EXPERT, out, in_)

    assert source.bytes_read == out * in_ * 34 // 32, "34 bytes hold 32 numbers of Q8_0"


def test_a_released_layer_reads_again(tmp_path, weights):
    source = NativeGGUFSource(write_gguf(tmp_path / "m.gguf", CONFIG, weights), F32)
    product = source.linear(EXPERT, *EXPECTED[EXPERT])
    x = rows(2, EXPECTED[EXPERT][1], F32)
    before = product(x)

    source.release("model.layers.4.")

    assert torch.equal(product(x), before)


def test_a_split_model_is_read_from_its_first_file(tmp_path, weights):
    first, second = (tmp_path / f"m-0000{n}-of-00002.gguf" for n in (1, 2))

    def keep(front: bool):
        def drop(arrays: dict[str, np.ndarray]) -> None:
            for name in [name for name in arrays if name.startswith("blk.4.") == front]:
                del arrays[name]

        return drop

    write_gguf(first, CONFIG, weights, change=keep(front=True))
    write_gguf(second, CONFIG, weights, change=keep(front=False))

    assert NativeGGUFSource(first, F32).check_names(EXPECTED) == []
    second.unlink()
    with pytest.raises(ModelError, match=f"1 of 2 files missing, the first {second.name}"):
        NativeGGUFSource(first, F32)


def spoil(arrays: dict[str, np.ndarray]) -> None:
    arrays["blk.0.attn_output.weight"] = arrays["blk.0.attn_output.weight"].copy()
    arrays["blk.0.attn_output.weight"][0, 0] = np.nan


def drop(arrays: dict[str, np.ndarray]) -> None:
    del arrays["blk.1.ffn_norm.weight"]


def drop_indexers(arrays: dict[str, np.ndarray]) -> None:
    for name in [name for name in arrays if ".indexer." in name]:
        del arrays[name]


def drop_values(arrays: dict[str, np.ndarray]) -> None:
    del arrays["blk.1.attn_v_b.weight"]


def add(arrays: dict[str, np.ndarray]) -> None:
    arrays["blk.1.attn_sinks.weight"] = np.zeros((2, 32), np.float32)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (spoil, "blk.0.attn_output.weight holds numbers that are not finite"),
        (drop, "model.layers.1.post_attention_layernorm.weight is missing"),
        (drop_indexers, "holds no indexer"),
        (drop_values, "blk.1.attn_k_b.weight has no attn_v_b"),
        (add, "unexpected tensor 'blk.1.attn_sinks.weight'"),
    ],
)
def test_a_spoilt_file_is_one_line(tmp_path: Path, weights, change, said):
    path = write_gguf(tmp_path / "m.gguf", CONFIG, weights, types=False, change=change)

    with pytest.raises(ModelError, match=said) as caught:  # noqa: PT012
        source = NativeGGUFSource(path, F32)
        source.check_names(EXPECTED)
        name = "model.layers.0.self_attn.o_proj.weight"
        source.linear(name, *EXPECTED[name])(rows(1, EXPECTED[name][1], F32))
    assert "\n" not in str(caught.value)


def test_other_architectures_and_damaged_files(tmp_path, weights):
    other = write_gguf(tmp_path / "o.gguf", CONFIG, weights, architecture="glm4moe")
    with pytest.raises(ModelError, match="'glm4moe' is not supported; supported: glm-dsa"):
        NativeGGUFSource(other, F32)

    cut = tmp_path / "cut.gguf"
    cut.write_bytes(other.read_bytes()[:-1000])
    with pytest.raises(ModelError, match="cut short"):
        NativeGGUFSource(cut, F32)


def test_a_file_loads_as_the_checkpoint_it_was_made_from(tmp_path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "model"
    write_checkpoint(CONFIG, folder, seed=2, dtype=F32)
    path = write_gguf(tmp_path / "m.gguf", CONFIG, stored(folder))
    # The file holds no vocabulary: what reads those has its own tests.
    monkeypatch.setattr(
        TextTokenizer, "from_gguf", lambda file: TextTokenizer.from_directory(folder)
    )
    ids = list(range(3, 60))

    ours = load(str(path), device="cpu", dtype="float32")
    theirs = load(str(folder), device="cpu", dtype="float32")

    assert isinstance(ours, NativeModel)
    assert torch.equal(ours.forward(ids), theirs.forward(ids))
    assert {7, 9} <= ours.generation.stop_ids
    assert ours.digest != theirs.digest
