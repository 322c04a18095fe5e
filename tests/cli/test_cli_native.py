"""`longctx ask --model FOLDER` on native checkpoints, whole and broken, with its exit codes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from typer.testing import CliRunner, Result

from longctx.cli.commands import app
from longctx.errors import EXIT_DOES_NOT_FIT, EXIT_FAILURE, EXIT_OK, EXIT_USAGE
from longctx.models.native.synth import preset, write_checkpoint

Q_A = "model.layers.0.self_attn.q_a_proj.weight"
TEXT = "the rent of the mill was paid by her for two years and then by the town "


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoints")
    write_checkpoint(preset("glm-5.2", "tiny"), folder / "plain")
    write_checkpoint(preset("glm-5.2", "tiny"), folder / "fp8", fp8=True)
    return folder


@pytest.fixture
def model(written: Path, tmp_path: Path) -> Path:
    """A checkpoint of this test's own, to spoil."""
    return Path(shutil.copytree(written / "plain", tmp_path / "model"))


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.txt").write_text(TEXT * 12, encoding="utf-8")
    (folder / "b.txt").write_text(TEXT * 6, encoding="utf-8")
    return folder


def ask(model: Path, *arguments: str | Path) -> Result:
    command = ["ask", "Who pays?", "--model", model, "--max-answer-tokens", "4", *arguments]
    return CliRunner().invoke(app, [str(argument) for argument in command])


def refused(result: Result, code: int) -> str:
    """The one line a command that failed with `code` tells."""
    assert (result.exit_code, result.stdout) == (code, "")
    (line,) = [text for text in result.stderr.splitlines() if text.startswith("longctx: ")]
    assert "internal error" not in line
    return line


def change_tensors(model: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    (shard,) = model.glob("*.safetensors")
    tensors = {name: tensor.clone() for name, tensor in load_file(shard).items()}
    change(tensors)
    save_file(tensors, shard)


def change_config(model: Path, **changes: object) -> None:
    path = model / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_the_second_question_reuses_all_and_answers_the_same(written: Path, documents: Path):
    first, second = (ask(written / "plain", documents) for _ in range(2))

    assert first.exit_code == second.exit_code == EXIT_OK
    assert first.stdout == second.stdout
    assert "reused 0 of " in first.stderr
    (line,) = [text for text in second.stderr.splitlines() if " 0 indexed now" in text]
    reused, of = line.split("reused ")[1].split(",  ")[0].split(" of ")
    assert of.startswith(reused)


def test_fp8_checkpoints_answer_too(written: Path, documents: Path):
    assert ask(written / "fp8", documents, "--thinking", "high").exit_code == EXIT_OK


def test_passages_stand_on_lines_of_their_own(written: Path, documents: Path):
    result = ask(written / "plain", documents, "--show-evidence")

    (at,) = [i for i, text in enumerate(result.output.splitlines()) if text.startswith("[1] ")]
    assert at > 0


def test_a_shard_cut_short(model: Path, documents: Path):
    (shard,) = model.glob("*.safetensors")
    shard.write_bytes(shard.read_bytes()[:-1000])

    assert shard.name in refused(ask(model, documents), EXIT_FAILURE)


def test_a_tensor_of_another_dtype(model: Path, documents: Path):
    change_tensors(model, lambda t: t.update({Q_A: t[Q_A].to(torch.int8)}))

    line = refused(ask(model, documents), EXIT_FAILURE)
    assert f"{Q_A} is stored as I8" in line


def test_a_scale_that_is_missing(written: Path, tmp_path: Path, documents: Path):
    model = Path(shutil.copytree(written / "fp8", tmp_path / "model"))
    change_tensors(model, lambda t: t.pop(f"{Q_A}_scale_inv"))

    assert f"{Q_A}_scale_inv" in refused(ask(model, documents), EXIT_FAILURE)


def test_weights_that_are_no_numbers(model: Path, documents: Path, tmp_path: Path):
    change_tensors(model, lambda t: t[Q_A].view(-1)[5].fill_(float("nan")))

    line = refused(ask(model, documents), EXIT_FAILURE)
    assert f"{Q_A} holds numbers that are not finite" in line
    assert not list((tmp_path / "home").rglob("*.cache"))


def test_a_schedule_that_the_tensors_contradict(model: Path, documents: Path):
    change_config(model, indexer_types=["full"] * 5)

    assert "indexer weights" in refused(ask(model, documents), EXIT_FAILURE)


def test_an_unknown_kind_of_rope(model: Path, documents: Path):
    change_config(model, rope_parameters={"rope_type": "spiral", "rope_theta": 10_000})

    assert "rope scaling 'spiral' is not supported" in refused(ask(model, documents), EXIT_FAILURE)


def test_a_context_beyond_the_window_names_both_numbers(model: Path, documents: Path):
    change_config(model, max_position_embeddings=300)

    line = refused(ask(model, documents), EXIT_DOES_NOT_FIT)
    assert "window is 300" in line
    assert "documents take " in line


def test_an_answer_beyond_the_window(model: Path, documents: Path):
    line = refused(ask(model, documents, "--max-answer-tokens", "5000"), EXIT_DOES_NOT_FIT)

    assert "window is 4,096" in line


def test_searching_by_words_is_refused(written: Path, documents: Path):
    line = refused(ask(written / "plain", documents, "--index", "lexical"), EXIT_USAGE)

    assert "indexer" in line


@pytest.mark.parametrize("damage", ["another model", "another version", "cut"])
def test_a_prefix_that_cannot_be_used_is_named_and_made_again(
    written: Path, documents: Path, tmp_path: Path, damage: str
):
    good = ask(written / "plain", documents)
    (cache,) = (tmp_path / "home").rglob("*.cache")
    data = cache.read_bytes()
    digest = cache.parent.name.encode()
    spoiled = {
        "another model": data.replace(digest, digest[::-1], 1),
        "another version": data.replace(b'"version": "1"', b'"version": "0"', 1),
        "cut": data[: len(data) // 2],
    }[damage]
    assert spoiled != data
    cache.write_bytes(spoiled)

    again = ask(written / "plain", documents)

    warnings = [text for text in again.stderr.splitlines() if text.startswith("warning")]
    assert sum(cache.name in text for text in warnings) == 1
    assert (again.exit_code, again.stdout) == (EXIT_OK, good.stdout)
    assert "reused 0 of " in again.stderr
    assert " 0 indexed now" in ask(written / "plain", documents).stderr
