"""The Python API on a tiny model: index a folder, ask, edit a file, ask again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from engines.test_answer import check_keys
from engines.tiny_model import PROFILE, load_tiny, sentences, write_model

import longctx
from longctx.api import Context
from longctx.engines.base import AskOptions, Done, Evidence, Progress, Token
from longctx.engines.local import LocalEngine
from longctx.errors import ModelError, UsageError
from longctx.models.loaded import LoadedModel

QUESTION = "Who insured the tide gauge in March?"


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny products gain nothing from threads and wait for them on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def model(model_folder: Path) -> LoadedModel:
    return load_tiny(model_folder)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LONGCTX_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three documents and two files that are none."""
    place = tmp_path / "port"
    (place / "notes").mkdir(parents=True)
    (place / "lease.md").write_text(sentences(25, seed=1), encoding="utf-8")
    (place / "log.txt").write_text(sentences(10, seed=2), encoding="utf-8")
    (place / "notes" / "crane.py").write_text("LIMIT = 5000\n" * 9, encoding="utf-8")
    (place / "empty.txt").write_text("", encoding="utf-8")
    (place / "photo.bin").write_bytes(bytes(range(256)) * 4)
    return place


def index(paths: Any, model: LoadedModel | Path, **settings: Any) -> Context:
    chosen = model if isinstance(model, LoadedModel) else str(model)
    settings = {"profile": PROFILE, "device": "cpu", "dtype": "float32"} | settings
    return longctx.index(paths, model=chosen, **settings)


def ask(context: Context, question: str = QUESTION, **options: object):
    return context.ask(question, **{"max_answer_tokens": 8, **options})


def names(context: Context) -> list[str]:
    return [Path(found.path).name for found in context.documents]


def stored(home: Path) -> list[Path]:
    return sorted(home.rglob("*.segment"))


def test_a_folder_is_indexed_and_asked(folder: Path, model_folder: Path):
    context = index(folder, model_folder)

    answer = ask(context)

    assert context.model_name == answer.model == "tiny"
    assert names(context) == ["lease.md", "log.txt", "crane.py"]
    assert context.context_tokens == sum(found.tokens for found in context.documents)
    assert answer.usage.context_tokens == answer.usage.indexed_tokens == context.context_tokens
    assert answer.usage.reused_tokens == 0
    assert {Path(passage.path).name for passage in answer.evidence} <= set(names(context))
    for passage in answer.evidence:
        lines = Path(passage.path).read_text(encoding="utf-8").split("\n")
        assert passage.text in "\n".join(lines[passage.start_line - 1 : passage.end_line])
    check_keys(json.loads(json.dumps(answer.to_json())))


def test_a_second_index_reuses_the_first(folder: Path, model_folder: Path, home: Path):
    first = ask(index(folder, model_folder))
    files = {file: file.stat().st_mtime_ns for file in stored(home)}

    second = ask(index(folder, model_folder))

    assert second.usage.indexed_tokens == 0
    assert second.usage.reused_tokens == second.usage.context_tokens
    assert len(files) == 3
    assert {file: file.stat().st_mtime_ns for file in stored(home)} == files
    assert (second.answer, second.evidence, second.citations, second.heat) == (
        first.answer,
        first.evidence,
        first.citations,
        first.heat,
    )
    assert second.compute.flops < first.compute.flops
    assert second.compute.dense_flops == first.compute.dense_flops


def test_an_edited_file_is_indexed_alone(folder: Path, model: LoadedModel, home: Path):
    index(folder, model)
    log = folder / "log.txt"
    log.write_text(log.read_text(encoding="utf-8") + "The crane is blue.\n", encoding="utf-8")

    context = index(folder, model)

    tokens = {Path(found.path).name: found.tokens for found in context.documents}
    usage = ask(context).usage
    assert usage.indexed_tokens == tokens["log.txt"]
    assert usage.reused_tokens == context.context_tokens - tokens["log.txt"]
    assert len(stored(home)) == 4


def test_a_moved_file_is_not_indexed_again(folder: Path, model: LoadedModel):
    index(folder, model)
    (folder / "log.txt").rename(folder / "notes" / "renamed.txt")

    context = index(folder, model)

    assert names(context) == ["lease.md", "crane.py", "renamed.txt"]
    assert ask(context).usage.indexed_tokens == 0


def test_another_profile_is_another_index(folder: Path, model: LoadedModel, home: Path):
    index(folder, model)

    usage = ask(index(folder, model, profile=replace(PROFILE, window=128))).usage

    assert usage.indexed_tokens == usage.context_tokens
    assert len(stored(home)) == 6


def test_what_was_indexed_is_told_once(folder: Path, model: LoadedModel):
    context = index(folder, model)

    first, second = ask(context), ask(context)

    assert first.usage.indexed_tokens == second.usage.reused_tokens == context.context_tokens
    assert second.usage.indexed_tokens == 0
    assert second.usage.seconds["index"] == second.usage.seconds["load"] == 0
    assert first.answer == second.answer


def test_without_a_store_nothing_is_kept(folder: Path, model: LoadedModel, home: Path):
    context = index(folder, model, store=False)

    assert ask(context).usage.indexed_tokens == context.context_tokens
    assert not home.exists() or stored(home) == []
    assert list(folder.rglob("*.segment")) == []


def test_a_cache_that_takes_no_index_costs_a_warning(folder: Path, model: LoadedModel, home: Path):
    (home / "cache").mkdir(parents=True)
    (home / "cache" / "segments").write_text("no folder")

    context = index(folder, model)

    assert ask(context).usage.indexed_tokens == context.context_tokens
    (warning,) = [line for line in context.warnings if "not kept" in line]
    assert "Not a directory" in warning or "File exists" in warning


def test_words_alone_answer_without_attention(folder: Path, model: LoadedModel):
    context = index(folder, model, index="lexical")

    wanted = ask(index(folder, model, store=False), index="lexical")
    assert ask(context, index="lexical").evidence == wanted.evidence
    with pytest.raises(UsageError, match="the words alone of this context were indexed"):
        ask(context)


def test_attention_after_words_alone_is_that_of_a_fresh_index(folder: Path, model: LoadedModel):
    index(folder, model, index="lexical")

    completed, fresh = ask(index(folder, model)), ask(index(folder, model, store=False))

    assert (completed.evidence, completed.heat) == (fresh.evidence, fresh.heat)
    assert completed.usage.indexed_tokens == fresh.usage.indexed_tokens
    again = ask(index(folder, model, index="lexical"))
    assert again.usage.indexed_tokens == 0, "what is whole serves both"


def test_an_unknown_kind_of_index(folder: Path, model: LoadedModel):
    with pytest.raises(UsageError, match="unknown index 'psychic'"):
        index(folder, model, index="psychic")


def test_a_profile_that_cannot_be_kept_costs_a_warning(
    folder: Path, model: LoadedModel, home: Path, monkeypatch: pytest.MonkeyPatch
):
    home.mkdir()
    (home / "data").write_text("no folder")
    measured = SimpleNamespace(profile=PROFILE)
    monkeypatch.setattr("longctx.api._measure", lambda *ignored: measured)

    context = index(folder, model, profile=None)

    (warning,) = [line for line in context.warnings if "calibration is not kept" in line]
    assert "data" in warning


def test_files_that_are_no_documents_are_told(folder: Path, model: LoadedModel):
    context = index(folder, model)

    found = {Path(item.path).name: item.reason.split(":")[0] for item in context.skipped}

    assert found == {"empty.txt": "empty", "photo.bin": "binary"}
    assert {Path(item["path"]).name for item in ask(context).skipped} == set(found)


@pytest.mark.parametrize("form", [str, Path, lambda path: [path], lambda path: (str(path),)])
def test_paths_in_any_form(folder: Path, model: LoadedModel, form: Any):
    assert names(index(form(folder / "log.txt"), model)) == ["log.txt"]


def test_several_paths_are_one_context(folder: Path, model: LoadedModel):
    context = index([folder / "notes", folder / "lease.md"], model)

    assert sorted(names(context)) == ["crane.py", "lease.md"]


def test_a_missing_path(folder: Path, model: LoadedModel):
    with pytest.raises(UsageError, match="nowhere"):
        index([folder, folder / "nowhere"], model)


def test_a_folder_without_files(tmp_path: Path, model: LoadedModel):
    (tmp_path / "bare").mkdir()

    with pytest.raises(UsageError, match=r"nothing readable in .*bare: no files there"):
        index(tmp_path / "bare", model)


def test_a_file_of_nothing_visible_is_empty(folder: Path, model: LoadedModel):
    (folder / "log.txt").write_text("\u200b\n\ufeff\u2060\n", encoding="utf-8")

    context = index(folder, model)

    assert {Path(s.path).name: s.reason for s in context.skipped}["log.txt"] == "empty"


def test_a_folder_with_nothing_readable(folder: Path, model: LoadedModel):
    with pytest.raises(
        UsageError, match=r"nothing readable in .*: 2 files skipped \(binary, empty"
    ):
        index([folder / "empty.txt", folder / "photo.bin"], model)


def test_no_paths_at_all(model: LoadedModel):
    with pytest.raises(UsageError, match="nothing readable"):
        index([], model)


def test_a_model_that_is_none(folder: Path, tmp_path: Path):
    with pytest.raises(ModelError, match="no such file or folder"):
        index(folder, tmp_path / "nowhere")
    with pytest.raises(ModelError, match=r"no config\.json there"):
        index(folder, folder)


def test_an_unknown_option_is_named(folder: Path, model: LoadedModel):
    context = index(folder, model)

    with pytest.raises(
        UsageError, match=r"unknown option 'max_tokens'; known: .*max_answer_tokens"
    ):
        context.ask(QUESTION, max_tokens=8)
    with pytest.raises(UsageError, match="unknown index"):
        context.ask(QUESTION, index="psychic")


@pytest.mark.parametrize("question", ["", " \n", "\u200b", "\x1b\u202e"])
def test_an_empty_question(folder: Path, model: LoadedModel, question: str):
    with pytest.raises(UsageError, match="the question is empty"):
        index(folder, model).ask(question)


def test_a_closed_context_says_so(folder: Path, model: LoadedModel):
    context = index(folder, model)
    context.close()

    with pytest.raises(UsageError, match="closed"):
        context.ask(QUESTION)


def test_a_stream_ends_with_the_answer(folder: Path, model: LoadedModel):
    events = list(index(folder, model).stream(QUESTION, AskOptions(max_answer_tokens=8)))

    done = events[-1]
    assert isinstance(done, Done)
    assert sum(isinstance(event, Evidence) for event in events) == 1
    said = "".join(event.text for event in events if isinstance(event, Token))
    assert said.strip() == done.answer.answer


def test_a_chat_remembers(folder: Path, model: LoadedModel):
    context = index(folder, model)
    chat = context.chat()
    options = AskOptions(max_answer_tokens=8)

    first = [event for event in chat.stream(QUESTION, options) if isinstance(event, Evidence)]
    assert chat.last is not None
    assert chat.history == [(QUESTION, chat.last.answer)]
    second = [event for event in chat.stream(QUESTION, options) if isinstance(event, Evidence)]

    assert len(chat.history) == 2
    assert isinstance(context._engine, LocalEngine)
    both = context._engine.select(f"{QUESTION} {QUESTION}", context._corpus)
    assert [p.text for p in second[0].passages] == [p.text for p in both.passages]
    assert first[0].passages
    assert context.chat().history == [], "another chat begins afresh"


def test_a_turn_that_was_stopped_is_not_remembered(folder: Path, model: LoadedModel):
    chat = index(folder, model).chat()

    for event in chat.stream(QUESTION, AskOptions(max_answer_tokens=8)):
        if isinstance(event, Token):
            break

    assert chat.history == []
    assert chat.last is None


def test_progress_is_told(folder: Path, model_folder: Path):
    heard: list[Progress] = []

    context = index(folder, model_folder, on_progress=heard.append)

    stages = [progress.stage for progress in heard]
    assert stages.index("read") < stages.index("load") < stages.index("index")
    read = [progress.documents for progress in heard if progress.stage == "read"]
    assert read == [1, 2, 3]
    last = heard[-1]
    assert (last.stage, last.documents, last.total_documents) == ("index", 3, 3)
    assert last.tokens == last.total_tokens == context.context_tokens


def test_progress_ends_where_files_are_alike(folder: Path, model: LoadedModel):
    copy = folder / "copy.md"
    copy.write_text((folder / "lease.md").read_text(encoding="utf-8"), encoding="utf-8")
    heard: list[Progress] = []

    context = index(folder, model, on_progress=heard.append)

    assert (heard[-1].documents, heard[-1].total_documents) == (4, 4)
    assert heard[-1].tokens == heard[-1].total_tokens == context.context_tokens
    usage = ask(context).usage
    assert usage.indexed_tokens + usage.reused_tokens == usage.context_tokens


def test_a_loaded_model_gives_logits(model_folder: Path):
    model = longctx.load_model(str(model_folder), device="cpu", dtype="float32")

    logits = model.forward([1, 2, 3])

    assert logits.shape == (3, model.config.vocab)
    assert logits.dtype == torch.float32
