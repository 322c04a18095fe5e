"""Reading sharded BF16 and FP8 checkpoints: views, products, bytes, what belongs to a config."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from native_checkpoints import (
    EXPECTED,
    KV_A,
    Q_A,
    checkpoint,
    rewrite,
    rows,
    stored,
)
from safetensors.torch import save_file

from longctx.kernels.fp8_blocks import dequantise_weight
from longctx.models.weights import native
from longctx.models.weights.native import NativeSource

BF16 = torch.bfloat16
KV_B = "model.layers.1.self_attn.kv_b_proj.weight"


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return checkpoint(tmp_path / "bf16")


@pytest.fixture
def fp8(tmp_path: Path) -> Path:
    return checkpoint(tmp_path / "fp8", fp8=True)


def test_every_tensor_of_a_bf16_checkpoint_is_what_another_reader_reads(plain):
    source, wanted = NativeSource(plain, BF16), stored(plain)

    assert len(list(plain.glob("*.safetensors"))) > 2, "shards are what is tried"
    assert source.names() == wanted.keys()
    for name, shape in EXPECTED.items():
        dtype = wanted[name].dtype  # float32 for the router's bias
        assert torch.equal(source.tensor(name, shape, dtype), wanted[name])
        assert source.tensor(name, shape).dtype == BF16


def test_fp8_is_multiplied_out(fp8):
    source, wanted = NativeSource(fp8, torch.float32), stored(fp8)

    for name in (Q_A, KV_A):
        assert wanted[name].dtype == torch.float8_e4m3fn
        dense = dequantise_weight(wanted[name], wanted[f"{name}_scale_inv"])
        assert torch.equal(source.tensor(name, EXPECTED[name]), dense)
        assert torch.equal(source.tensor(name, EXPECTED[name], BF16), dense.bfloat16())


def test_a_tensor_in_the_wanted_dtype_is_a_view_of_the_file(plain):
    source = NativeSource(plain, BF16)

    twice = [source.tensor(Q_A, EXPECTED[Q_A]) for _ in range(2)]

    assert twice[0].data_ptr() == twice[1].data_ptr()


@pytest.mark.parametrize("stored_as", ["plain", "fp8"])
@pytest.mark.parametrize("dtype", [BF16, torch.float32])
def test_a_product_is_that_of_the_dense_weight_in_tiles(
    stored_as, dtype, request, monkeypatch: pytest.MonkeyPatch
):
    folder = request.getfixturevalue(stored_as)
    monkeypatch.setattr(native, "TILE_ROWS", 128)
    source = NativeSource(folder, dtype)
    out, in_ = EXPECTED[KV_B]
    assert out > 128
    assert out % 128, "the last tile is a part of one"
    x = rows(5, in_, dtype)

    product = source.linear(KV_B, out, in_)

    dense = source.tensor(KV_B, (out, in_))
    assert torch.equal(product.dense(), dense)
    torch.testing.assert_close(product(x), x @ dense.T, rtol=1e-5, atol=1e-5)
    assert product(x).dtype == dtype


def test_a_gradient_goes_back_through_an_fp8_product(fp8, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(native, "TILE_ROWS", 128)
    product = NativeSource(fp8, torch.float32).linear(KV_B, *EXPECTED[KV_B])
    x = rows(3, EXPECTED[KV_B][1], torch.float32).requires_grad_()

    product(x).sum().backward()

    assert x.grad is not None
    torch.testing.assert_close(x.grad, product.dense().sum(0).expand(3, -1))


def test_every_byte_of_a_whole_reading_is_counted_once(fp8):
    source, everything = NativeSource(fp8, BF16), stored(fp8)

    for name, shape in EXPECTED.items():
        if len(shape) == 2 and name != "model.embed_tokens.weight":
            source.linear(name, *shape)
        else:
            source.tensor(name, shape)

    wanted = {name for name in everything if not name.startswith("model.layers.5.")}
    assert source.bytes_read == sum(everything[name].nbytes for name in wanted)


def test_a_product_counts_when_it_is_handed_out_and_not_again(plain):
    source = NativeSource(plain, BF16)
    product = source.linear(Q_A, *EXPECTED[Q_A])
    before = source.bytes_read

    product(rows(1, EXPECTED[Q_A][1]))

    assert before == 2 * EXPECTED[Q_A][0] * EXPECTED[Q_A][1]
    assert source.bytes_read == before


def test_a_released_layer_reads_again(fp8):
    source = NativeSource(fp8, BF16)
    product = source.linear(Q_A, *EXPECTED[Q_A])
    x = rows(2, EXPECTED[Q_A][1])
    before = product(x)

    source.release("model.layers.0.")

    assert torch.equal(product(x), before)
    assert torch.equal(source.linear(Q_A, *EXPECTED[Q_A])(x), before)


def test_one_file_without_an_index(tmp_path):
    save_file({"a": torch.ones(2, 3)}, tmp_path / "model.safetensors")

    source = NativeSource(tmp_path, torch.float32)

    assert source.names() == {"a"}
    assert source.tensor("a", (2, 3)).tolist() == [[1.0] * 3] * 2


def test_a_checkpoint_has_what_its_config_asks_for_and_mtp_aside(plain, fp8):
    for folder in (plain, fp8):
        source = NativeSource(folder, BF16)

        assert any(name.startswith("model.layers.5.") for name in source.names())
        assert source.check_names(EXPECTED) == []


def test_unexpected_tensors_are_reported(plain):
    indexer = "model.layers.3.self_attn.indexer.wk.weight"  # of a layer that shares one

    def add(tensors):
        tensors[indexer] = torch.ones(2, 2)

    rewrite(plain, KV_A, add)

    assert NativeSource(plain, BF16).check_names(EXPECTED) == [indexer]


def test_layers_the_config_does_not_have_are_unexpected_unless_mtp(plain):
    fewer = {name: shape for name, shape in EXPECTED.items() if ".layers.4." not in name}

    unexpected = NativeSource(plain, BF16).check_names(fewer)

    assert unexpected
    assert all(name.startswith("model.layers.4.") for name in unexpected)


def test_an_offset_that_suits_no_view_is_copied(tmp_path):
    """Writers are told to align tensors, and some do not."""
    head = json.dumps(
        {
            "a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
            "b": {"dtype": "BF16", "shape": [2], "data_offsets": [1, 5]},
        }
    ).encode()
    values = torch.tensor([1.5, -2.0], dtype=BF16)
    body = b"\0" + bytes(values.view(torch.uint8).tolist())
    (tmp_path / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + body)

    assert NativeSource(tmp_path, BF16).tensor("b", (2,)).tolist() == [1.5, -2.0]
