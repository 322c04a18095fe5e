"""A GGUF file is converted once, again when it changed, and never half."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from decoder_samples import TOLERANCE, decoder_of, difference, logits_of, reference, token_ids
from gguf_samples import write_gguf

from longctx.errors import DoesNotFitError, ModelError
from longctx.models import loaded
from longctx.models.weights.convert import converted_folder, remove_converted
from longctx.models.weights.gguf_tensors import GGUFTensors


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "tiny.gguf", reference("llama"))


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the tensors dequantised since the test began."""
    names: list[str] = []
    read = GGUFTensors.read
    monkeypatch.setattr(
        GGUFTensors,
        "read",
        lambda self, tensor, dtype: names.append(tensor.name) or read(self, tensor, dtype),
    )
    return names


def test_the_second_call_reads_nothing(path: Path, tmp_path: Path, reads: list[str]):
    first = converted_folder(path, tmp_path, torch.float32)
    converted = len(reads)

    assert converted == 21
    assert converted_folder(path, tmp_path, torch.float32) == first
    assert len(reads) == converted


def test_each_precision_has_its_own_folder(path: Path, tmp_path: Path, reads: list[str]):
    wide = converted_folder(path, tmp_path, torch.float32)
    half = converted_folder(path, tmp_path, torch.bfloat16)
    converted = len(reads)

    assert wide != half
    assert decoder_of(half, torch.bfloat16).dtype == torch.bfloat16
    assert converted_folder(path, tmp_path, torch.float32) == wide
    assert converted_folder(path, tmp_path, torch.bfloat16) == half
    assert len(reads) == converted


def test_another_file_in_its_place_is_converted_anew(path: Path, tmp_path: Path):
    ids = token_ids(9)
    converted_folder(path, tmp_path, torch.float32)
    other = reference("qwen2")

    write_gguf(path, other)

    decoder = decoder_of(converted_folder(path, tmp_path, torch.float32))
    assert difference(decoder.forward(ids), logits_of(other, ids)) < TOLERANCE


def test_a_file_that_was_touched_is_converted_anew(path: Path, tmp_path: Path, reads: list[str]):
    converted_folder(path, tmp_path, torch.float32)
    converted = len(reads)
    os.utime(path, ns=(1, 1))

    converted_folder(path, tmp_path, torch.float32)

    assert len(reads) == 2 * converted


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: os.truncate(folder / "model.safetensors", 5000),
        lambda folder: (folder / "model.safetensors").unlink(),
        lambda folder: (folder / "config.json").unlink(),
        lambda folder: (folder / "tokenizer.json").unlink(),
        lambda folder: (folder / "source.json").write_text("{"),
        lambda folder: (folder / "source.json").unlink(),
    ],
    ids=["cut short", "no weights", "no config", "no tokenizer", "bad record", "no record"],
)
def test_a_damaged_folder_is_made_again(damage, path: Path, tmp_path: Path):
    ids = token_ids(9)
    folder = converted_folder(path, tmp_path, torch.float32)
    expected = decoder_of(folder).forward(ids).clone()
    damage(folder)

    assert converted_folder(path, tmp_path, torch.float32) == folder

    assert difference(decoder_of(folder).forward(ids), expected) == 0


def test_an_interrupted_conversion_leaves_nothing(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def interrupt(what: str, done: int, total: int) -> None:
        if done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        converted_folder(path, tmp_path, torch.float32, interrupt)

    assert not list((tmp_path / "converted").iterdir())


def test_a_full_disk_is_told_before_anything_is_written(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: list[str]
):
    def full(folder: Path, needed_bytes: int, what: str) -> None:
        raise DoesNotFitError(f"{what} needs {needed_bytes}")

    monkeypatch.setattr("longctx.models.weights.convert.check_free", full)

    with pytest.raises(DoesNotFitError, match=r"the converted weights of tiny.gguf needs 67\d{6}"):
        converted_folder(path, tmp_path, torch.float32)

    assert not reads


def test_a_model_too_large_for_memory_is_not_converted(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: list[str]
):
    monkeypatch.setenv("LONGCTX_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(loaded, "memory_total", lambda device: 1000)

    with pytest.raises(DoesNotFitError, match="choose a smaller model"):
        loaded.load(str(path), device="cpu", dtype="float32")

    assert not reads


def test_removing_what_was_converted(path: Path, tmp_path: Path):
    kept = converted_folder(write_gguf(tmp_path / "tiny-2.gguf", reference("llama")), tmp_path,
                            torch.float32)  # fmt: skip
    folder = converted_folder(path, tmp_path, torch.float32)
    size = sum(file.stat().st_size for file in folder.iterdir())

    assert remove_converted(path, tmp_path) == size

    assert not folder.exists()
    assert kept.exists()
    assert remove_converted(path, tmp_path) == 0


def test_an_unreadable_file_leaves_no_folder(tmp_path: Path):
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF, or so it says")

    with pytest.raises(ModelError, match="not a readable GGUF file"):
        converted_folder(bad, tmp_path, torch.float32)

    assert not list((tmp_path / "converted").iterdir())
