"""One line, which names the culprit, for each way a checkpoint can be broken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from native_checkpoints import (
    EXPECTED,
    INDEX,
    KV_A,
    NORM,
    Q_A,
    checkpoint,
    rewrite,
    rows,
    shard_of,
)

from longctx.errors import ModelError
from longctx.models.weights import native
from longctx.models.weights.native import NativeSource

BF16 = torch.bfloat16


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return checkpoint(tmp_path / "bf16")


@pytest.fixture
def fp8(tmp_path: Path) -> Path:
    return checkpoint(tmp_path / "fp8", fp8=True)


def message(folder: Path, name: str = "", shape: tuple[int, ...] = ()) -> str:
    """The one line a folder is refused with, on opening, checking names or reading `name`."""
    with pytest.raises(ModelError) as caught:  # noqa: PT012
        source = NativeSource(folder, BF16)
        if name:
            source.tensor(name, shape or EXPECTED[name])
        else:
            source.check_names(EXPECTED)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_missing_tensor_is_named(plain):
    rewrite(plain, Q_A, lambda tensors: tensors.pop(Q_A))

    assert f"lists {Q_A} in {shard_of(plain, Q_A).name}, which lacks it" in message(plain)


def test_a_tensor_neither_listed_nor_stored(plain):
    more = EXPECTED | {"model.layers.0.extra.weight": (2,), "model.layers.1.extra.weight": (2,)}

    with pytest.raises(ModelError, match=r"layers\.0\.extra\.weight and 1 more missing"):
        NativeSource(plain, BF16).check_names(more)


def test_an_index_that_leaves_out_a_shard_names_it(plain):
    shard = shard_of(plain, KV_A).name
    table = json.loads((plain / INDEX).read_text(encoding="utf-8"))
    kept = {name: where for name, where in table["weight_map"].items() if where != shard}
    (plain / INDEX).write_text(json.dumps({"weight_map": kept}), encoding="utf-8")

    assert f"does not list {shard}" in message(plain)


def test_a_missing_shard_is_named(plain):
    shard = shard_of(plain, KV_A)
    shard.unlink()

    assert f"shards missing, the first {shard.name}" in message(plain)


def test_a_tensor_in_two_shards(plain):
    def add(tensors):
        tensors[KV_A] = torch.ones(EXPECTED[KV_A])

    rewrite(plain, "model.embed_tokens.weight", add)

    assert f"{KV_A} is in two shards" in message(plain)


@pytest.mark.parametrize("left", [0.0, 0.5, 0.999])
def test_a_shard_cut_short(plain, left):
    shard = shard_of(plain, KV_A)
    content = shard.read_bytes()
    shard.write_bytes(content[: int(left * len(content))])

    assert shard.name in message(plain)


@pytest.mark.parametrize(
    "head", [b"\xff" * 64, b"\x10" + b"\0" * 7 + b'{"a": {}}       ', b"x" * 9]
)
def test_a_shard_of_something_else(plain, head):
    shard = shard_of(plain, KV_A)
    shard.write_bytes(head)

    assert shard.name in message(plain)


@pytest.mark.parametrize("text", ["{", "[]", '{"weight_map": []}', '{"weight_map": {}}'])
def test_an_index_that_is_none(plain, text):
    (plain / INDEX).write_text(text, encoding="utf-8")

    assert INDEX in message(plain)


def test_an_index_may_not_lead_out_of_its_folder(plain):
    escaped = json.dumps({"weight_map": {"a": "../other/model.safetensors"}})
    (plain / INDEX).write_text(escaped, encoding="utf-8")

    assert "missing" in message(plain)


def test_no_model_at_all(tmp_path):
    assert "is this a model folder?" in message(tmp_path)


def test_a_wrong_shape(plain):
    assert "has shape [96, 128], the config asks for [128, 96]" in message(plain, Q_A, (128, 96))


def test_a_wrong_dtype_is_refused_by_name(plain):
    def halve(tensors):
        tensors[Q_A] = torch.zeros(EXPECTED[Q_A], dtype=torch.uint8)

    rewrite(plain, Q_A, halve)

    assert f"{Q_A} is stored as U8" in message(plain)
    assert f"{Q_A} is stored as U8" in message(plain, Q_A)


def test_fp8_without_its_scales(fp8):
    scale = f"{Q_A}_scale_inv"
    rewrite(fp8, Q_A, lambda tensors: tensors.pop(scale))
    table = json.loads((fp8 / INDEX).read_text(encoding="utf-8"))
    table["weight_map"].pop(scale)
    (fp8 / INDEX).write_text(json.dumps(table), encoding="utf-8")

    assert f"{Q_A} has no {scale}" in message(fp8)
    assert f"{Q_A} has no {scale}" in message(fp8, Q_A)


def test_fp8_in_blocks_of_another_size(fp8):
    def per_row(tensors):
        tensors[f"{Q_A}_scale_inv"] = torch.ones(EXPECTED[Q_A][0], 1)

    rewrite(fp8, Q_A, per_row)

    assert "should be F32 [1, 1]: only FP8 in blocks of 128 x 128" in message(fp8, Q_A)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_not_finite_are_refused_by_name(plain, bad):
    def spoil(tensors):
        tensors[NORM][-1] = bad
        tensors[Q_A][-1, -1] = bad

    rewrite(plain, Q_A, spoil)
    source = NativeSource(plain, BF16)

    assert f"{NORM} holds numbers that are not finite" in message(plain, NORM)
    product = source.linear(Q_A, *EXPECTED[Q_A])
    with pytest.raises(ModelError, match=r"q_a_proj\.weight holds numbers that are not finite"):
        product(rows(1, EXPECTED[Q_A][1]))
    with pytest.raises(ModelError, match="not finite"):
        product.dense()


def test_a_tensor_too_large_to_look_through_is_mapped_unread(plain, monkeypatch):
    rewrite(plain, Q_A, lambda tensors: tensors[Q_A].fill_(float("nan")))
    monkeypatch.setattr(native, "CHECKED_BYTES", 1000)

    assert NativeSource(plain, BF16).tensor(Q_A, EXPECTED[Q_A]).isnan().all()


@pytest.mark.parametrize("part", [Q_A, f"{Q_A}_scale_inv"])
def test_fp8_that_is_not_finite(fp8, part):
    def spoil(tensors):
        spoilt = tensors[part].float()
        spoilt[0, 0] = float("nan")
        tensors[part] = spoilt.to(tensors[part].dtype)

    rewrite(fp8, Q_A, spoil)

    with pytest.raises(ModelError, match=f"{part} holds numbers that are not finite"):
        NativeSource(fp8, BF16).linear(Q_A, *EXPECTED[Q_A])(rows(1, EXPECTED[Q_A][1]))
