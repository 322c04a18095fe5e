"""Building a corpus: what is indexed, what is reused, and what an interruption leaves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from engines.tiny_model import PROFILE, sentences
from hypothesis import given
from hypothesis import strategies as st

from contexts.samples import document, same
from longctx.contexts import corpus as module
from longctx.contexts.corpus import Corpus, build_corpus
from longctx.contexts.segment import read_segment
from longctx.contexts.store import SegmentStore
from longctx.documents.document import Document, Skipped
from longctx.indexshare.recall import Recall
from longctx.models.loaded import LoadedModel

LETTERS = st.sampled_from("ab. \n\té\u0301ñ東🦀👩\u200d🚀½")


class Builder:
    """Builds corpora with one model over one folder of segments, and listens."""

    def __init__(self, model: LoadedModel, recall: Recall, root: Path | None):
        self.model, self.recall, self.root = model, recall, root
        self.store = self.opened()
        self.heard: list[tuple[int, int, bool]] = []

    def opened(self) -> SegmentStore:
        """The store as another process would find it."""
        return SegmentStore(self.root, self.model.digest, PROFILE.index_digest())

    def build(
        self, documents: Sequence[Document], stop_after: int | None = None, keys: bool = True
    ) -> Corpus:
        self.store, self.heard = self.opened(), []

        def hear(tokens: int, count: int, reused: bool) -> None:
            self.heard.append((tokens, count, reused))
            if len(self.heard) == stop_after:
                raise KeyboardInterrupt

        tokenizer = self.model.tokenizer
        return build_corpus(documents, [], self.recall, tokenizer, self.store, hear, keys)

    def files(self) -> list[Path]:
        assert self.root is not None
        return sorted(file for file in self.root.rglob("*") if file.is_file())


@pytest.fixture
def builder(model: LoadedModel, recall: Recall, tmp_path: Path) -> Builder:
    return Builder(model, recall, tmp_path / "segments")


DOCUMENTS = [document(sentences(n + 1, seed=n), f"{n}.txt") for n in range(8)]


def test_documents_stay_in_order_with_their_segments(builder: Builder):
    found = builder.build(DOCUMENTS)

    assert [entry.document for entry in found.entries] == DOCUMENTS
    for entry in found.entries:
        ids, _ = builder.model.tokenizer.encode_text(entry.document.text)
        assert entry.segment.tokens == len(ids)
        assert entry.segment.blocks == -(-len(ids) // PROFILE.block)
    assert found.indexed_tokens == found.tokens
    assert found.reused_tokens == 0
    blocks = [entry.segment.blocks for entry in found.entries]
    assert found.first_blocks == [sum(blocks[:n]) for n in range(len(blocks) + 1)]


def test_a_second_run_reuses_everything(builder: Builder):
    first = builder.build(DOCUMENTS)

    second = builder.build(DOCUMENTS)

    assert second.indexed_tokens == 0
    assert second.reused_tokens == second.tokens == first.tokens
    for before, after in zip(first.entries, second.entries, strict=True):
        assert same(before.segment, after.segment)


def test_an_edited_document_costs_itself_alone(builder: Builder):
    builder.build(DOCUMENTS)
    edited = [*DOCUMENTS]
    edited[3] = document(DOCUMENTS[3].text + "One more line.\n", "3.txt")

    found = builder.build(edited)

    assert found.indexed_tokens == found.entries[3].segment.tokens
    assert found.reused_tokens == found.tokens - found.indexed_tokens


def test_order_and_neighbours_do_not_matter(builder: Builder, tmp_path: Path):
    found = builder.build(DOCUMENTS)

    other = Builder(builder.model, builder.recall, tmp_path / "other")
    backwards = other.build(DOCUMENTS[::-1])

    assert [file.name for file in other.files()] == [file.name for file in builder.files()]
    for entry, again in zip(found.entries, backwards.entries[::-1], strict=True):
        for stream, keys in entry.segment.keys.keys.items():
            moved = keys.float() - again.segment.keys.keys[stream].float()
            assert moved.abs().max() <= 1, "an int8 step, from another order of adding"


def test_documents_of_the_same_text_share_a_segment(builder: Builder):
    text = sentences(5)
    found = builder.build([document(text, "a.txt"), document("Other."), document(text, "b.md")])

    assert len(builder.files()) == 2
    assert found.entries[0].segment is found.entries[2].segment
    assert found.entries[2].document.path == "b.md"
    assert found.indexed_tokens + found.reused_tokens == found.tokens
    assert found.reused_tokens == found.entries[2].segment.tokens


def test_progress_adds_up(builder: Builder):
    text = sentences(5)
    documents = [document(text, "a"), document("Other.", "b"), document(text, "c")]

    found = builder.build(documents)
    told = [sum(column) for column in zip(*builder.heard, strict=True)]
    assert told[:2] == [found.indexed_tokens, 3]

    found = builder.build(documents)
    assert [sum(column) for column in zip(*builder.heard, strict=True)][:2] == [
        found.tokens - found.entries[2].segment.tokens,
        3,
    ]
    assert all(reused for _, _, reused in builder.heard)


@pytest.mark.parametrize("calls", [1, 2, 5, 9, 14])
def test_an_interrupted_run_leaves_whole_segments_only(
    builder: Builder, calls: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "GROUP_CHARACTERS", 200)  # several groups, so several rounds

    with pytest.raises(KeyboardInterrupt):
        builder.build(DOCUMENTS, stop_after=calls)

    left = [read_segment(file) for file in builder.files()]
    assert all(file.suffix == ".segment" for file in builder.files()), "nothing half-written"
    kept = sum(segment.tokens for segment in left)
    again = builder.build(DOCUMENTS)
    assert again.reused_tokens == kept
    assert again.indexed_tokens == again.tokens - kept
    assert builder.store.damaged == []


def test_interruptions_lose_no_finished_group(builder: Builder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "GROUP_CHARACTERS", 1)  # every document a group

    runs = 0
    while runs < 50:
        runs += 1
        try:
            found = builder.build(DOCUMENTS, stop_after=13)
            break
        except KeyboardInterrupt:
            continue

    assert 1 < runs < 9, "each run gets further"
    assert found.tokens == builder.build(DOCUMENTS).tokens


def test_an_interrupted_write_leaves_nothing(builder: Builder, monkeypatch: pytest.MonkeyPatch):
    def interrupted(handle: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("longctx.atomic.os.fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            builder.build(DOCUMENTS)

    assert builder.files() == []
    assert builder.build(DOCUMENTS).reused_tokens == 0


def test_a_damaged_segment_is_built_again(builder: Builder):
    wanted = builder.build(DOCUMENTS)
    path = builder.files()[2]
    whole = path.read_bytes()
    path.unlink()  # the corpus above still maps it
    path.write_bytes(whole[: len(whole) // 2])

    found = builder.build(DOCUMENTS)

    assert len(builder.store.damaged) == 1
    assert 0 < found.indexed_tokens < found.tokens == wanted.tokens
    assert len(builder.files()) == len(DOCUMENTS)
    for before, after in zip(wanted.entries, found.entries, strict=True):
        assert before.segment.tokens == after.segment.tokens
    assert builder.build(DOCUMENTS).indexed_tokens == 0


def test_without_a_store_nothing_is_written(model: LoadedModel, recall: Recall, home: Path):
    builder = Builder(model, recall, None)

    found = builder.build(DOCUMENTS)

    assert found.indexed_tokens == found.tokens
    assert builder.build(DOCUMENTS).indexed_tokens == found.tokens
    assert not home.exists()


def test_a_document_without_words(builder: Builder):
    """Braces and dashes have tokens, keys and places, but nothing for BM25."""
    found = builder.build([document("{}\n---\n…"), document("The quay.")])

    assert len(found.entries[0].segment.postings.terms) == 0
    assert builder.build([document("{}\n---\n…")]).indexed_tokens == 0


def test_a_document_the_vocabulary_cannot_spell(builder: Builder, monkeypatch: pytest.MonkeyPatch):
    encode = builder.model.tokenizer.iter_encode
    monkeypatch.setattr(
        builder.model.tokenizer,
        "iter_encode",
        lambda text: iter(()) if text == "東" else encode(text),
    )

    found = builder.build([document("東", "a.txt"), document("The quay.", "b.txt")])

    assert [entry.document.path for entry in found.entries] == ["b.txt"]
    assert found.skipped == [Skipped("a.txt", "empty")]


def test_blanks_without_a_token_belong_to_the_first_block(
    builder: Builder, monkeypatch: pytest.MonkeyPatch
):
    """Some tokenizers pass over blanks before a text: its first token begins later."""
    ids, offsets = builder.model.tokenizer.encode_text("\n\n" + DOCUMENTS[0].text)
    monkeypatch.setattr(
        builder.model.tokenizer, "iter_encode", lambda text: iter([(ids[2:], offsets[2:])])
    )

    check_blocks(builder.build([document("\n\n" + DOCUMENTS[0].text)]))


def check_blocks(found: Corpus) -> None:
    for entry in found.entries:
        text, count = entry.document.text, entry.segment.blocks
        spans = [entry.characters(block, block) for block in range(count)]
        assert "".join(text[start:end] for start, end in spans) == text
        assert all(start <= end for start, end in spans)
        assert entry.characters(0, count - 1) == (0, len(text))
        if count > 2:
            assert entry.characters(1, 2) == (spans[1][0], spans[2][1])


def test_blocks_cover_a_document_without_gaps(builder: Builder):
    check_blocks(builder.build(DOCUMENTS))


def test_any_text_is_covered(model: LoadedModel, recall: Recall):
    """Characters of several tokens may lie across two blocks; none is lost or doubled."""
    builder = Builder(model, recall, None)

    @given(st.text(LETTERS, min_size=1, max_size=120))
    def check(text: str) -> None:
        check_blocks(builder.build([document(text)]))

    check()


def test_words_are_indexed_without_the_model(
    builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*ignored: object) -> None:
        raise AssertionError("the model ran")

    with monkeypatch.context() as patch:
        patch.setattr(builder.recall, "index", run)
        found = builder.build(DOCUMENTS, keys=False)

    assert not found.has_keys
    assert found.indexed_tokens == found.tokens > 0
    assert [sum(column) for column in zip(*builder.heard, strict=True)][:2] == [
        found.tokens,
        len(DOCUMENTS),
    ]
    again = builder.build(DOCUMENTS, keys=False)
    assert again.indexed_tokens == 0
    check_blocks(again)


def test_attention_completes_what_words_began(builder: Builder, tmp_path: Path):
    builder.build(DOCUMENTS, keys=False)

    found = builder.build(DOCUMENTS)

    assert found.has_keys
    assert found.indexed_tokens == found.tokens
    straight = Builder(builder.model, builder.recall, tmp_path / "other")
    for one, other in zip(found.entries, straight.build(DOCUMENTS).entries, strict=True):
        assert same(one.segment, other.segment)
    assert [file.name for file in builder.files()] == [file.name for file in straight.files()]


def test_words_are_taken_from_a_whole_index(builder: Builder):
    builder.build(DOCUMENTS)

    found = builder.build(DOCUMENTS, keys=False)

    assert found.indexed_tokens == 0
    assert found.has_keys


def test_freed_memory_is_given_back_on_the_way(builder: Builder, monkeypatch: pytest.MonkeyPatch):
    given: list[int] = []
    monkeypatch.setattr(module, "RELEASE_TOKENS", 60)
    monkeypatch.setattr(module, "release_memory", lambda: given.append(len(builder.files())))

    found = builder.build(DOCUMENTS)

    assert 1 < len(given) <= found.tokens // 60
    assert given == sorted(set(given)), "between documents"
