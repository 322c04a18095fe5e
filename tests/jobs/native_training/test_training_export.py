"""An exported folder is a model folder of the public layout, and gives the training's logits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from native_training_samples import TINY, compare_with_decoder, expected_names
from safetensors.torch import load_file

from longctx.errors import ModelError
from longctx.jobs.native_training import tasks
from longctx.jobs.native_training.export import export, load
from longctx.jobs.native_training.model import NativeModel
from longctx.jobs.native_training.shape import Shape, from_config, to_config
from longctx.models.folder import check_folder
from longctx.models.native.config import parse_native_config
from longctx.models.tokenizer import TextTokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained tiny model, with router biases that are not all zero."""
    torch.manual_seed(1)
    model = NativeModel(TINY)
    for name, value in model.state_dict().items():
        if "correction_bias" in name:
            value.copy_(torch.linspace(-0.1, 0.1, len(value)))
    place = tmp_path_factory.mktemp("export") / "model"
    export(model, place, notes="# A model\n")
    return place


def test_tensors_have_the_public_names(folder: Path) -> None:
    stored = load_file(folder / "model.safetensors")

    assert set(stored) == expected_names(TINY)
    kinds = {name for name, value in stored.items() if value.dtype == torch.float32}
    assert kinds == {name for name in stored if name.endswith("e_score_correction_bias")}
    assert all(stored[n].dtype == torch.bfloat16 for n in stored if n not in kinds)


def test_the_config_says_the_shape_and_its_schedule_rule() -> None:
    config = to_config(Shape())
    read = parse_native_config(config)

    assert from_config(config) == Shape()
    assert (config["index_topk_freq"], config["index_skip_topk_offset"]) == (4, 3)
    assert read.full == Shape().full
    without = {key: value for key, value in config.items() if key != "indexer_types"}
    assert parse_native_config(without).full == Shape().full


def test_a_schedule_no_rule_gives_is_written_as_a_pattern() -> None:
    config = to_config(TINY.with_schedule("FSFF"))
    del config["indexer_types"]

    assert parse_native_config(config).full == (True, False, True, True)


def test_the_folder_is_a_whole_model_with_a_readme(folder: Path) -> None:
    check_folder(folder)
    assert (folder / "README.md").read_text() == "# A model\n"


def test_words_are_tokens_and_back(folder: Path) -> None:
    tokenizer = TextTokenizer.from_directory(folder)
    ids, spans = tokenizer.encode_text("recall k7 = v3 w1 ? k7")

    assert ids == [tasks.RECALL, 71, tasks.EQUALS, 291, 9, tasks.ASK, 71]
    assert spans[1] == (7, 9)
    assert tokenizer.decode(ids) == "recall k7 = v3 w1 ? k7"
    assert tasks.END in tokenizer.eos_ids


def test_the_decoder_gives_the_same_logits_and_selections(folder: Path) -> None:
    compare_with_decoder(folder, length=100)


def test_transformers_gives_the_same_logits(folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.GlmMoeDsaForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    ours = load(folder)
    tokens = torch.from_numpy(tasks.batch(40, 1, 3, 0)[0])
    ours.topk = 40  # equal scores beyond the top would be taken in any order there
    theirs.config.index_topk = 40
    for layer in theirs.model.layers:
        if layer.self_attn.indexer is not None:
            layer.self_attn.indexer.index_topk = 40

    with torch.inference_mode():
        torch.testing.assert_close(
            ours.logits(tokens, sparse=True), theirs(tokens).logits, atol=1e-4, rtol=1e-4
        )


def test_a_schedule_without_its_indexers_is_refused(folder: Path) -> None:
    assert load(folder, TINY.with_schedule("FSSS")).shape.schedule == "FSSS"
    with pytest.raises(ModelError, match=r"no model\.layers\.2\.self_attn\.indexer"):
        load(folder, TINY.with_schedule("FFFS"))
