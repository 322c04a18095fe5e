"""Long documents are indexed in parts, so that an interruption loses one of them only."""

from __future__ import annotations

from pathlib import Path

import pytest
from engines.tiny_model import PROFILE, sentences

from contexts.samples import document, same
from contexts.test_corpus import Builder, check_blocks
from longctx.contexts import corpus as module
from longctx.contexts.corpus import part_tokens
from longctx.indexshare.recall import Recall
from longctx.models.loaded import LoadedModel

LONG = document(sentences(60, seed=5), "long.txt")
SHORT = document(sentences(2, seed=6), "short.txt")
PART = 256  # four windows of the tiny profile, eight blocks


@pytest.fixture
def builder(
    model: LoadedModel, recall: Recall, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Builder:
    monkeypatch.setattr(module, "PART_TOKENS", PART + 5)
    return Builder(model, recall, tmp_path / "segments")


def test_a_part_is_whole_windows_and_whole_blocks(builder: Builder):
    assert part_tokens(PROFILE) == PART


def test_parts_make_the_index_of_the_whole(
    builder: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    found = builder.build([SHORT, LONG])

    monkeypatch.setattr(module, "PART_TOKENS", 10**6)
    whole = Builder(builder.model, builder.recall, tmp_path / "whole")
    wanted = whole.build([SHORT, LONG])
    assert [file.name for file in builder.files()] == [file.name for file in whole.files()]
    for one, other in zip(found.entries, wanted.entries, strict=True):
        assert one.segment.tokens == other.segment.tokens
        assert one.segment.starts.tolist() == other.segment.starts.tolist()
        assert one.segment.postings.terms.tolist() == other.segment.postings.terms.tolist()
        assert one.segment.postings.counts.tolist() == other.segment.postings.counts.tolist()
        assert one.segment.postings.ptr.tolist() == other.segment.postings.ptr.tolist()
        for stream, keys in other.segment.keys.keys.items():
            moved = keys.float() - one.segment.keys.keys[stream].float()
            assert moved.abs().max() <= 1, "an int8 step, from another order of adding"
    check_blocks(found)
    assert sum(tokens for tokens, _, _ in builder.heard) == found.tokens
    assert sum(count for _, count, _ in builder.heard) == 2


def test_an_interrupted_document_goes_on_where_it_was(builder: Builder, tmp_path: Path):
    straight = Builder(builder.model, builder.recall, tmp_path / "straight").build([LONG])
    assert straight.tokens > 4 * PART
    kept = []
    for calls in (4, 8, 12):
        with pytest.raises(KeyboardInterrupt):
            builder.build([LONG], stop_after=calls)
        kept.append(len(builder.files()))
    assert 0 < kept[0] < kept[1] < kept[2], "each run gets further"

    found = builder.build([LONG])

    assert 0 < found.indexed_tokens < found.tokens
    assert found.indexed_tokens + found.reused_tokens == found.tokens
    assert same(found.entries[0].segment, straight.entries[0].segment), "bit for bit"
    assert len(builder.files()) == 1, "the parts are gone"
    assert builder.build([LONG]).indexed_tokens == 0


def test_in_memory_the_parts_go_too(model: LoadedModel, recall: Recall, builder: Builder):
    held = Builder(model, recall, None)

    held.build([LONG])

    assert len(held.store._memory) == 1
