"""Synthetic checkpoints: the on-disk form, finite answers, the same numbers for the same seed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from native_checkpoints import INDEX, KV_A, Q_A, stored
from transformers import AutoModelForCausalLM

from longctx.errors import UsageError
from longctx.models.chat import ChatTemplate, encode_chat
from longctx.models.folder import check_folder
from longctx.models.native.synth import FAMILIES, Sizes, preset, write_checkpoint
from longctx.models.tokenizer import TextTokenizer
from longctx.models.weights.native import NativeSource
from longctx.models.weights.native_names import tensor_shapes

CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Ü <|user|> hi"}]


@pytest.fixture(scope="module", params=FAMILIES)
def family(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def folder(family, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("synth") / family
    write_checkpoint(preset(family, "tiny"), path, seed=1, shard_bytes=800_000)
    return path


def read(path: Path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_a_folder_is_a_whole_model(family, folder):
    check_folder(folder)

    expected = tensor_shapes(Sizes.of(read(folder / "config.json")))
    assert NativeSource(folder, torch.bfloat16).check_names(expected) == []


def test_shards_hold_what_they_may_and_the_index_says_what(folder):
    shards = sorted(folder.glob("*.safetensors"))
    index = read(folder / INDEX)

    count = len(shards)
    assert [s.name for s in shards] == [
        f"model-{n:05}-of-{count:05}.safetensors" for n in range(1, count + 1)
    ]
    assert set(index["weight_map"].values()) == {shard.name for shard in shards}
    assert index["metadata"]["total_size"] == sum(t.nbytes for t in stored(folder).values())
    assert all(shard.stat().st_size < 800_000 + 50_000 for shard in shards), "headers come on top"


def test_transformers_loads_it_and_answers_finitely(folder):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokens = torch.randint(0, 256, (1, 40), generator=torch.Generator().manual_seed(0))

    with torch.no_grad():
        logits = model(tokens).logits

    assert logits.isfinite().all()
    assert 0.3 < logits.std() < 3
    named = {name for name, _ in model.named_parameters()}
    assert "model.layers.0.self_attn.indexer.wk.weight" in named


def test_its_tokenizer_speaks_the_family_form(family, folder):
    tokenizer = TextTokenizer.from_directory(folder)
    template = ChatTemplate.for_tokenizer(tokenizer)
    config = read(folder / "config.json")

    if family == "deepseek-v3.2":
        wanted = "<｜begin▁of▁sentence｜>Be brief.<｜User｜>Ü <|user|> hi<｜Assistant｜></think>"  # noqa: RUF001
        assert tokenizer.eos_ids == (config["eos_token_id"],)
    else:
        wanted = (
            "[gMASK]<sop><|system|>Reasoning Effort: Max<|system|>Be brief."
            "<|user|>Ü <|user|> hi<|assistant|><think>"
        )
        assert tokenizer.eos_ids == tuple(config["eos_token_id"])
        assert len(tokenizer.eos_ids) == 3
    assert template.render(CHAT) == wanted
    ids = encode_chat(tokenizer, template, CHAT)
    assert max(ids) < config["vocab_size"]
    assert ids[0] in tokenizer.control_ids
    text = "Any text: żółć \U0001f600\n\tdef f(x): return x"
    assert tokenizer.decode(tokenizer.encode_text(text)[0]) == text


def test_glm_without_thinking_and_with_tool_results(tmp_path):
    write_checkpoint(preset("glm-5.2", "tiny"), tmp_path / "m")
    template = ChatTemplate.for_tokenizer(TextTokenizer.from_directory(tmp_path / "m"))
    turns = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "tool", "content": "c"},
        {"role": "tool", "content": "d"},
    ]

    assert template.render(turns, enable_thinking=False) == (
        "[gMASK]<sop><|user|>a<|assistant|><think></think>b<|observation|>cd"
        "<|assistant|><think></think>"
    )
    assert "Reasoning Effort: High<|user|>" in template.render(turns, reasoning_effort="high")


def test_fp8_holds_the_same_model_as_bf16(tmp_path):
    config = preset("glm-5.2", "tiny")
    write_checkpoint(config, tmp_path / "bf16", seed=3)
    write_checkpoint(config, tmp_path / "fp8", seed=3, fp8=True, shard_bytes=100_000)

    plain, small = stored(tmp_path / "bf16"), NativeSource(tmp_path / "fp8", torch.float32)

    assert read(tmp_path / "fp8/config.json")["quantization_config"]["quant_method"] == "fp8"
    assert plain.keys() < small.names()
    for name in (Q_A, KV_A):
        exact = plain[name].float()
        close = (small.tensor(name, tuple(exact.shape)) - exact).abs()
        assert 0 < close.max() < exact.abs().max() / 16
    gate = "model.layers.3.mlp.gate.weight"
    assert torch.equal(small.tensor(gate, tuple(plain[gate].shape)), plain[gate].float())


def test_deepseek_scales_are_powers_of_two(tmp_path):
    write_checkpoint(preset("deepseek-v3.2", "tiny"), tmp_path / "m", fp8=True)

    scales = stored(tmp_path / "m")[f"{Q_A}_scale_inv"]

    assert (torch.frexp(scales).mantissa == 0.5).all()
    assert read(tmp_path / "m/config.json")["quantization_config"]["scale_fmt"] == "ue8m0"


def test_a_seed_means_the_same_numbers_in_any_shards(tmp_path):
    config = preset("glm-5.2", "tiny")
    for name, seed, shard_bytes in (("a", 5, 10**9), ("b", 5, 10**5), ("c", 6, 10**9)):
        write_checkpoint(config, tmp_path / name, seed=seed, shard_bytes=shard_bytes)
    a, b, c = (stored(tmp_path / name) for name in "abc")

    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert not torch.equal(a[Q_A], c[Q_A])


def test_a_schedule_decides_which_layers_have_an_indexer(tmp_path):
    config = preset("glm-5.2", "tiny", schedule="FSSF", index_topk=4)
    write_checkpoint(config, tmp_path / "m")

    held = {n.split(".")[2] for n in stored(tmp_path / "m") if n.endswith("indexer.wk.weight")}
    assert held == {"0", "3", "4"}, "layer 4 is the one of MTP"
    assert read(tmp_path / "m/config.json")["indexer_types"] == ["full", "shared", "shared", "full"]


def test_eight_layers_follow_the_published_schedule():
    assert "".join("SF"[f] for f in Sizes.of(preset("glm-5.2", "small")).full) == "FFFSSSFS"
    assert sum(Sizes.of(preset("glm-5.2")).full) == 21


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"family": "glm-6"}, "there are glm-5.2, glm-5.1, deepseek-v3.2"),
        ({"family": "glm-5.2", "size": "huge"}, "there are tiny, small, full"),
        ({"family": "glm-5.2", "schedule": "SFF"}, "F first"),
        ({"family": "glm-5.2", "schedule": "FFX"}, "F first"),
        ({"family": "glm-5.2", "schedule": "FF", "num_hidden_layers": 3}, "does not fit 3 layers"),
        ({"family": "glm-5.2", "size": "tiny", "n_routed_experts": 1}, "1 experts cannot be"),
        ({"family": "deepseek-v3.2", "size": "tiny", "n_routed_experts": 6}, "from 4 groups"),
    ],
)
def test_what_cannot_be_is_refused(arguments, said):
    with pytest.raises(UsageError, match=said):
        preset(**arguments)


def test_a_folder_in_use_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")

    with pytest.raises(UsageError, match="not empty; choose another folder"):
        write_checkpoint(preset("glm-5.2", "tiny"), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_vocabulary_without_room_for_every_byte(tmp_path):
    with pytest.raises(UsageError, match="choose a larger vocabulary"):
        write_checkpoint(preset("glm-5.2", "tiny", vocab_size=200), tmp_path / "m")
    assert not (tmp_path / "m").exists()
