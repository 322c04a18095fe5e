"""What a native engine tells of a question: its evidence, its figures, and when it has none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import longctx
from longctx.api import Context
from longctx.contexts.laid_out import BLOCK, LaidOut
from longctx.engines.base import AskOptions, Done
from longctx.engines.native import NativeEngine
from longctx.engines.prompt import NOT_FOUND
from longctx.errors import UsageError
from longctx.models.native.loaded import NativeModel
from longctx.models.native.synth import preset, write_checkpoint

QUESTION = "Who pays?"
TEXT = "the rent of the mill was paid by her for two years and then by the town "
CHOICES = "longctx.engines.native.index_choices"


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> NativeModel:
    folder = tmp_path_factory.mktemp("native") / "tiny"
    write_checkpoint(preset("glm-5.2", "tiny"), folder, seed=3, dtype=torch.float32)
    loaded = longctx.load_model(str(folder), dtype="float32", device="cpu")
    assert isinstance(loaded, NativeModel)
    return loaded


def opened(native: NativeModel, folder: Path, **settings: object) -> Context:
    folder.mkdir(exist_ok=True)
    for name, times in (("a.txt", 24), ("b.txt", 16)):
        (folder / name).write_text(TEXT * times, encoding="utf-8")
    return longctx.index(folder, model=native, **settings)  # type: ignore[arg-type]


def corpus_of(context: Context) -> LaidOut:
    assert isinstance(context._corpus, LaidOut)
    return context._corpus


def test_evidence_is_nothing_but_what_an_indexer_chose(
    native: NativeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    context = opened(native, tmp_path / "docs", store=False)
    there = corpus_of(context).positions[1][0] + BLOCK + 1
    monkeypatch.setattr(CHOICES, lambda decoder, ids, *_: [torch.full((len(ids), 1), there)])

    (passage,) = context.ask(QUESTION, max_answer_tokens=2).evidence

    assert passage.path.endswith("b.txt")


def test_indexers_that_chose_no_document_leave_no_evidence_and_no_heat(
    native: NativeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    context = opened(native, tmp_path / "docs", store=False)
    monkeypatch.setattr(CHOICES, lambda decoder, ids, *_: [torch.full((len(ids), 2), -1)])

    answer = context.ask(QUESTION, max_answer_tokens=2)

    assert (answer.evidence, answer.heat, answer.citations) == ((), (), ())


def test_positions_outside_documents_belong_to_no_block(native: NativeModel, tmp_path: Path):
    corpus = corpus_of(opened(native, tmp_path / "docs", store=False))
    (first, last), (second, end) = corpus.positions
    asked = np.array([-1, 0, first - 1, first, first + BLOCK, last, second, end - 1, end])

    blocks = corpus.blocks_at(asked).tolist()

    assert blocks == [0, 1, corpus.first_blocks[1], corpus.first_blocks[2] - 1]


def test_another_way_of_thinking_reads_the_documents_and_says_so(
    native: NativeModel, tmp_path: Path
):
    context = opened(native, tmp_path / "docs", store=False)
    context.ask(QUESTION, max_answer_tokens=2)

    usage = context.ask(QUESTION, max_answer_tokens=2, thinking="max").usage

    assert (usage.indexed_tokens, usage.reused_tokens) == (context.context_tokens, 0)


def test_reused_tokens_are_those_of_documents(native: NativeModel, tmp_path: Path):
    before = corpus_of(opened(native, tmp_path / "docs"))
    kept = before.entries[0].segment.tokens
    (tmp_path / "docs" / "b.txt").write_text("nobody " + TEXT * 16, encoding="utf-8")

    after = corpus_of(longctx.index(tmp_path / "docs", model=native))

    assert after.reused_tokens == kept
    assert after.reused_tokens + after.indexed_tokens == after.tokens


def test_what_the_model_computed_elsewhere_is_no_part_of_an_answer(
    native: NativeModel, tmp_path: Path
):
    context = opened(native, tmp_path / "docs", store=False)
    context.ask(QUESTION, max_answer_tokens=2)
    alone = context.ask(QUESTION, max_answer_tokens=2).compute.flops

    native.forward(list(range(64)))

    assert context.ask(QUESTION, max_answer_tokens=2).compute.flops == alone


def test_a_closed_context_says_so_and_holds_no_caches(native: NativeModel, tmp_path: Path):
    context = opened(native, tmp_path / "docs", store=False)
    context.close()

    with pytest.raises(UsageError, match="closed"):
        context.ask(QUESTION)
    assert isinstance(context._engine, NativeEngine)
    assert not context._engine._caches


def test_an_answer_that_declines_has_found_nothing(
    native: NativeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    ids = native.tokenizer.encode_text(NOT_FOUND)[0]
    monkeypatch.setattr("longctx.engines.native.generate", lambda *_: ((i, 0.0) for i in ids))

    answer = opened(native, tmp_path / "docs", store=False).ask(QUESTION)

    assert (answer.answer, answer.found, answer.citations) == (NOT_FOUND, False, ())


def test_a_long_conversation_drops_its_oldest_questions(
    native: NativeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("longctx.engines.native.QUESTION_ROOM", 120)
    chat = opened(native, tmp_path / "docs", store=False).chat()
    chat.history = [("what " * 90, "this"), ("When?", "then")]

    done = list(chat.stream(QUESTION, AskOptions(max_answer_tokens=4)))[-1]

    assert isinstance(done, Done)
    assert 10 < done.answer.usage.read_tokens < 116


def test_documents_are_encoded_once(
    native: NativeModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    context = opened(native, tmp_path / "docs", store=False)
    encode, asked = native.tokenizer.encode_text, []

    def counted(text: str, continued: bool = False):
        asked.append(len(text))
        return encode(text, continued)

    monkeypatch.setattr(native.tokenizer, "encode_text", counted)
    context.ask(QUESTION, max_answer_tokens=1)

    assert max(asked) < 100
