"""A model folder that is damaged or too large, and input it cannot take, end in one clear line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from decoder_samples import (
    TOLERANCE,
    VOCAB,
    decoder_of,
    difference,
    logits_of,
    reference,
    saved,
    token_ids,
)
from safetensors.torch import load_file, save_file
from torch import Tensor

from longctx.errors import DoesNotFitError, LongctxError, ModelError
from longctx.models import loaded
from longctx.models.loaded import check_memory, load
from longctx.models.registry import ResolvedModel
from longctx.models.sources import Progress
from longctx.models.weights.source import SafetensorsSource

WEIGHTS = "model.safetensors"
UP = "model.layers.1.mlp.up_proj.weight"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return saved(reference("llama"), tmp_path / "tiny")


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    return saved(reference("llama"), tmp_path / "sharded", max_shard_size="100KB")


def shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("model-*.safetensors"))


def change_weights(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    tensors = load_file(folder / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS)


def refusal(folder: Path, kind: type[LongctxError] = ModelError) -> str:
    """What `load` and the bare reader say; both must refuse."""
    with pytest.raises(kind):
        decoder_of(folder)
    with pytest.raises(kind) as error:
        load(str(folder), device="cpu", dtype="float32")
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_missing_shard(sharded: Path):
    last = shards(sharded)[-1]
    last.unlink()

    assert last.name in refusal(sharded)


@pytest.mark.parametrize("size", [0, 5, 300, 20_000])
def test_a_shard_cut_short(size: int, sharded: Path):
    os.truncate(shards(sharded)[0], size)

    assert shards(sharded)[0].name in refusal(sharded)


@pytest.mark.parametrize("size", [0, 5, 300, 200_000])
def test_weights_cut_short(size: int, folder: Path):
    os.truncate(folder / WEIGHTS, size)

    assert WEIGHTS in refusal(folder)


def test_weights_that_are_something_else(folder: Path):
    (folder / WEIGHTS).write_bytes(b"<html>404</html>" * 100)

    assert "fetch it again" in refusal(folder)


def test_no_weights(folder: Path):
    (folder / WEIGHTS).unlink()

    assert f"no {WEIGHTS} there" in refusal(folder)


@pytest.mark.parametrize("content", ["{", "[]", '{"weight_map": 3}', '{"metadata": {}}'])
def test_an_index_that_is_something_else(content: str, sharded: Path):
    (sharded / "model.safetensors.index.json").write_text(content)

    with pytest.raises(ModelError, match="not a readable index"):
        SafetensorsSource(sharded, torch.float32)


def test_an_index_cannot_point_outside_its_folder(sharded: Path, folder: Path):
    index = sharded / "model.safetensors.index.json"
    table = json.loads(index.read_text())
    table["weight_map"][UP] = f"../{folder.name}/{WEIGHTS}"
    index.write_text(json.dumps(table))

    with pytest.raises(ModelError, match=r"shard ../tiny/model.safetensors is missing"):
        SafetensorsSource(sharded, torch.float32)


def test_a_shard_without_a_tensor_that_the_index_promises(sharded: Path):
    index = sharded / "model.safetensors.index.json"
    table = json.loads(index.read_text())
    table["weight_map"][UP] = next(
        shard.name for shard in shards(sharded) if UP not in load_file(shard)
    )
    index.write_text(json.dumps(table))

    assert f"lacks tensor {UP}" in refusal(sharded)


def test_a_missing_tensor(folder: Path):
    change_weights(folder, lambda tensors: tensors.pop(UP))

    assert f"tensor {UP} is missing" in refusal(folder)


def test_a_tensor_of_another_shape(folder: Path):
    change_weights(folder, lambda tensors: tensors.update({UP: tensors[UP][:-1].clone()}))

    assert f"{UP} has shape (95, 64), the config asks for (96, 64)" in refusal(folder)


@pytest.mark.parametrize("kind", [torch.int8, torch.float8_e4m3fn])
def test_weights_that_need_scales(kind: torch.dtype, folder: Path):
    change_weights(folder, lambda tensors: tensors.update({UP: tensors[UP].to(kind)}))

    assert f"{UP} is stored as {str(kind)[6:]}" in refusal(folder)


def test_a_config_of_another_model(folder: Path):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "gpt2"}))

    assert "family 'gpt2' is not supported" in refusal(folder)


def test_a_scaling_that_lacks_a_value(folder: Path):
    config = json.loads((folder / "config.json").read_text())
    config["rope_parameters"] = {"rope_type": "yarn", "rope_theta": 10_000.0}
    (folder / "config.json").write_text(json.dumps(config))

    assert "yarn rope scaling lacks or misstates 'factor'" in refusal(folder)


def test_memory_too_small(folder: Path, monkeypatch: pytest.MonkeyPatch):
    config = decoder_of(folder).config
    needed = 4 * config.parameters
    monkeypatch.setattr(loaded, "memory_total", lambda device: int(needed / 0.89))
    check_memory(config, torch.float32, "cpu")

    monkeypatch.setattr(loaded, "memory_total", lambda device: int(needed / 0.91))
    with pytest.raises(DoesNotFitError, match=r"GB in float32, this machine has .* smaller model"):
        load(str(folder), device="cpu", dtype="float32")

    check_memory(config, torch.bfloat16, "cpu")
    monkeypatch.setattr(loaded, "memory_total", lambda device: None)
    check_memory(config, torch.float32, "cpu")


def test_this_machine_has_memory():
    total = loaded.memory_total()

    assert total is None or total > 2**28


@pytest.mark.parametrize("bad", [VOCAB, -1, 10**9])
def test_a_token_that_does_not_exist(bad: int, folder: Path):
    model = load(str(folder), device="cpu", dtype="float32")

    with pytest.raises(ValueError, match=r"token ids must lie in 0\.\.511"):
        model.forward([1, bad, 2])


def test_more_tokens_than_the_window(folder: Path):
    model = load(str(folder), device="cpu", dtype="float32")

    assert model.forward(token_ids(128)).shape == (128, VOCAB)
    with pytest.raises(DoesNotFitError, match="129 tokens do not fit the model's window of 128"):
        model.forward(token_ids(129))


def test_ids_as_a_list_or_as_a_tensor(folder: Path):
    model = load(str(folder), device="cpu", dtype="float32")
    ids = token_ids(9)

    assert torch.equal(model.forward(ids), model.forward(torch.tensor(ids)))
    assert torch.equal(model.forward(ids), model.forward(torch.tensor(ids, dtype=torch.int32)))
    assert model.forward([]).shape == (0, VOCAB)


def test_nobody_need_watch_the_progress(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def resolve(name: str, progress: Progress) -> ResolvedModel:
        progress("fetching", 1, 2)
        return ResolvedModel(name, "directory", folder)

    monkeypatch.setattr("longctx.models.registry.resolve", resolve)

    assert load("any", device="cpu", dtype="float32").name == "any"


def test_the_digest_tells_weights_and_precisions_apart(folder: Path):
    first = load(str(folder), device="cpu", dtype="float32").digest

    assert load(str(folder), device="cpu", dtype="float32").digest == first
    assert load(str(folder), device="cpu", dtype="bfloat16").digest != first
    change_weights(folder, lambda tensors: tensors[UP].add_(1))
    assert load(str(folder), device="cpu", dtype="float32").digest != first


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precisions_are_near_float32(dtype: str, folder: Path):
    ids = token_ids(30)
    exact = logits_of(reference("llama"), ids)

    found = load(str(folder), device="cpu", dtype=dtype).forward(ids)

    assert found.dtype == torch.float32
    assert (found - exact).square().mean() < 0.01 * exact.square().mean()


def test_weights_in_the_wanted_precision_are_not_copied(folder: Path):
    source = SafetensorsSource(folder, torch.float32)

    first, second = (source.tensor(UP, (96, 64)) for _ in range(2))

    assert first.data_ptr() == second.data_ptr()
    assert difference(first, load_file(folder / WEIGHTS)[UP]) < TOLERANCE
