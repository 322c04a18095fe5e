"""Decoding from 4-bit copies of the weights: near the exact model, and only where it is wanted."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from decoder_samples import decoder_of, difference, reference, saved, token_ids
from gguf import GGMLQuantizationType
from gguf_samples import write_gguf
from torch import Tensor

from longctx.errors import DoesNotFitError
from longctx.models import packed as packing
from longctx.models.decoder import Decoder
from longctx.models.linear import EXACT_WORDS, Linear, PackedHead, PackedLinear
from longctx.models.loaded import LoadedModel, load
from longctx.models.packed import PACKED_FILE, on_grid, pack, packed_products

pytestmark = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() != "AVX512", reason="torch's kernel needs AVX-512"
)
ROUNDING = 0.004  # bf16 keeps 8 bits


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def four_bits(rows: int, columns: int, levels: int = 16) -> Tensor:
    """bf16 weights of `levels` values per 32 columns, whose extremes need not occur in a group."""
    codes = torch.randint(0, levels, (rows, columns // 32, 32), generator=torch.manual_seed(1))
    scale, shift = normal(2, rows, columns // 32, 1).abs()
    return ((codes - 8 * shift.clamp(max=1)) * scale).view(rows, columns).bfloat16()


def error(weight: Tensor, planes: int) -> float:
    """Relative error of the product of random rows with packed weights."""
    x = normal(3, weight.shape[1], seed=2).bfloat16()
    exact = F.linear(x.double(), weight.double())
    found = PackedLinear(Linear(weight), *pack(weight, planes))(x)
    return float((found - exact).norm() / exact.norm())


@pytest.mark.parametrize("levels", range(8, 17))
def test_weights_of_a_4_bit_file_lose_nothing(levels: int):
    weight = four_bits(128, 96, levels)

    assert on_grid(weight)
    assert error(weight, planes=1) < ROUNDING


def test_other_weights_take_two_planes():
    weight = normal(128, 96).bfloat16()

    assert not on_grid(weight)
    assert error(weight, planes=2) < 2 * ROUNDING < error(weight, planes=1)


@pytest.mark.parametrize("planes", [1, 2])
def test_packing_in_parts_changes_nothing(planes: int, monkeypatch: pytest.MonkeyPatch):
    weight = four_bits(320, 64)
    whole = pack(weight, planes)

    monkeypatch.setattr(packing, "CHUNK_WEIGHTS", 2 * 64 * 64)

    assert all(map(torch.equal, pack(weight, planes), whole))


def test_a_bias_is_added():
    exact = Linear(four_bits(64, 32), normal(64).bfloat16())
    x = normal(1, 32).bfloat16()

    found = PackedLinear(exact, *pack(exact.weight, 1))(x)

    assert difference(found, exact(x)) < 2 * ROUNDING * float(exact(x).abs().max())


def test_the_best_words_are_scored_exactly():
    exact = Linear(normal(1024, 64).bfloat16())
    x = normal(2, 64, seed=1).bfloat16()

    logits = PackedHead(exact, *pack(exact.weight, 1))(x)

    assert torch.equal(logits.argmax(-1), exact(x).argmax(-1))
    assert ((logits == exact(x)).sum(-1) >= EXACT_WORDS).all()
    assert difference(logits, exact(x)) < 0.2 * float(exact(x).abs().max())


@pytest.fixture
def gguf_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LONGCTX_HOME", str(tmp_path / "home"))
    model = reference("qwen2", intermediate_size=128, num_key_value_heads=4)
    return write_gguf(tmp_path / "tiny.gguf", model, GGMLQuantizationType.Q4_0)


def loaded(file: Path, packed: bool = True) -> LoadedModel:
    model = load(str(file), device="cpu", dtype="bfloat16", packed=packed)
    assert isinstance(model, LoadedModel)
    return model


@pytest.fixture
def model(gguf_file: Path) -> LoadedModel:
    return loaded(gguf_file)


def steps(decoder: Decoder, ids: list[int], prompt: int) -> tuple[Tensor, Tensor]:
    """Logits of the prompt, and of the rest token by token."""
    cache = decoder.new_cache(len(ids))
    first = decoder.forward(ids[:prompt], cache)
    return first, torch.cat([decoder.forward([token], cache) for token in ids[prompt:]])


def test_only_decoding_is_packed(model: LoadedModel, gguf_file: Path):
    plain = loaded(gguf_file, packed=False)
    ids = token_ids(40)

    prompt, decoded = steps(model.decoder, ids, 30)
    exact_prompt, exact = steps(plain.decoder, ids, 30)

    assert plain.decoder.packed is None
    assert torch.equal(model.forward(ids), plain.forward(ids))
    assert torch.equal(model.forward(ids[:1]), plain.forward(ids[:1]))
    assert torch.equal(prompt, exact_prompt)
    assert not torch.equal(decoded, exact)
    assert (decoded - exact).norm() < 0.03 * exact.norm()  # bf16 itself is off by 0.02


def test_decoding_repeats_itself(model: LoadedModel):
    ids = token_ids(20)

    assert torch.equal(steps(model.decoder, ids, 10)[1], steps(model.decoder, ids, 10)[1])


def test_a_second_start_maps_the_file(model: LoadedModel, gguf_file: Path):
    before = (model.folder / PACKED_FILE).stat()
    heard: list[str] = []

    again = load(
        str(gguf_file), device="cpu", dtype="bfloat16", progress=lambda what, *_: heard.append(what)
    )

    assert isinstance(again, LoadedModel)
    assert again.decoder.packed
    assert heard == []
    assert (model.folder / PACKED_FILE).stat().st_ino == before.st_ino


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 100)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def of_other_weights(path: Path) -> None:
    os.utime(path.with_name("model.safetensors"))


@pytest.mark.parametrize("spoil", [cut_short, emptied, of_other_weights, Path.unlink])
def test_an_unfit_file_is_written_again(spoil: Callable[[Path], None], model: LoadedModel):
    path = model.folder / PACKED_FILE
    size = path.stat().st_size
    spoil(path)

    assert packed_products(model.decoder, model.folder)
    assert path.stat().st_size == size


@pytest.mark.parametrize("version", ["FORMAT_VERSION", "torch"])
def test_a_file_of_another_version_is_written_again(
    version: str, model: LoadedModel, monkeypatch: pytest.MonkeyPatch
):
    before = (model.folder / PACKED_FILE).stat().st_ino
    if version == "torch":
        monkeypatch.setattr(torch, "__version__", "99.0.0")
    else:
        monkeypatch.setattr(packing, version, 99)

    assert packed_products(model.decoder, model.folder)
    assert (model.folder / PACKED_FILE).stat().st_ino != before


def test_a_full_disk_leaves_decoding_as_it_was(gguf_file: Path, monkeypatch: pytest.MonkeyPatch):
    def full(*_: object) -> None:
        raise DoesNotFitError("full")

    monkeypatch.setattr(packing, "check_free", full)

    model = loaded(gguf_file)

    assert model.decoder.packed is None
    assert not (model.folder / PACKED_FILE).exists()


def test_float32_is_never_packed(gguf_file: Path):
    model = load(str(gguf_file), device="cpu", dtype="float32")

    assert isinstance(model, LoadedModel)
    assert model.decoder.packed is None
    assert not (model.folder / PACKED_FILE).exists()


def test_products_of_other_shapes_stay_exact(tmp_path: Path):
    folder = saved(reference("llama", intermediate_size=96), tmp_path)
    decoder = decoder_of(folder, torch.bfloat16)

    packed = packed_products(decoder, folder)

    assert packed
    assert packed.layers[0].up is decoder.layers[0].up  # 96 rows are no whole blocks of 64
    assert isinstance(packed.layers[0].down, PackedLinear)
