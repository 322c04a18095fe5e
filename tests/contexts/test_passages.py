"""Passages: chosen blocks widened to whole sentences, their text and places exactly as they lie."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from engines.tiny_model import sentences
from hypothesis import given
from hypothesis import strategies as st

from contexts.samples import corpus, document
from longctx.contexts.passages import WIDEN_CHARACTERS, passages
from longctx.documents.document import Document, Mark
from longctx.indexshare.select import Run, choose

BLOCK = 40
PROSE = st.text(st.sampled_from('ab .!?\n"')), st.just("A whole sentence, said at length. ")
TEXT = st.lists(st.one_of(*PROSE), min_size=1, max_size=40).map("".join).filter(str.strip)


@given(st.lists(TEXT, min_size=1, max_size=3), st.data())
def test_passages_are_stretches_of_the_text_with_their_places(
    texts: list[str], data: st.DataObject
):
    documents = [document(text, f"{n}.txt") for n, text in enumerate(texts)]
    held = corpus(documents, BLOCK)
    scores = data.draw(
        st.lists(
            st.floats(-9, 0, width=16),
            min_size=held.first_blocks[-1],
            max_size=held.first_blocks[-1],
        )
    )
    runs = choose(np.array(scores, dtype=np.float32), held.first_blocks, 3, 1)

    found = passages(held, runs)

    for passage in found:
        text = texts[passage.document]
        assert passage.path == documents[passage.document].path
        assert passage.text == text[passage.start : passage.end] == passage.text.strip() != ""
        first = 1 + text.count("\n", 0, passage.start)
        assert passage.place.start_line == first
        assert passage.place.end_line == first + passage.text.count("\n")
    for before, after in pairwise(found):
        assert (before.document, before.end) < (after.document, after.start + 1)
        assert before.document < after.document or before.end <= after.start, "never read twice"
    for run in runs:
        start, end = held.entries[run.document].characters(run.first, run.last)
        chosen = texts[run.document][start:end]
        if chosen.strip():
            start += len(chosen) - len(chosen.lstrip())
            end = start + len(chosen.strip())
            (one,) = [
                passage
                for passage in found
                if passage.document == run.document
                and passage.start <= start
                and end <= passage.end
            ]
            assert one.score >= run.score
    for passage in found:
        spans = [
            held.entries[run.document].characters(run.first, run.last)
            for run in runs
            if run.document == passage.document
        ]
        assert any(passage.start >= start - WIDEN_CHARACTERS for start, _ in spans)
        assert any(passage.end <= end + WIDEN_CHARACTERS for _, end in spans)


def widened(text: str, first: int, last: int) -> str:
    (found,) = passages(corpus([document(text)], BLOCK), [Run(0, first, last, 1.0)])
    return found.text


def test_a_block_grows_to_whole_sentences():
    sentence = "The lessee of the northern quay pays it in advance."
    text = " ".join(["Rent is due monthly.", *[sentence] * 4])

    assert widened(text, 0, 0) == f"Rent is due monthly. {sentence}"
    assert widened(text, 1, 1) == f"{sentence} {sentence}", "it began in one and ended in another"


def test_a_block_grows_to_whole_lines():
    lines = [f"line {n}: {'x' * 70}" for n in range(5)]

    assert widened("\n".join(lines), 3, 3) == "\n".join(lines[1:3])


def test_a_closing_quote_belongs_to_its_sentence():
    text = 'He read out: "the quay is closed until the storm has passed." Nobody spoke after that.'

    assert widened(text, 0, 0) == text[: text.index(" Nobody")]


def test_without_a_sentence_near_blocks_stay_as_they_are():
    text = "x" * 5000

    assert widened(text, 50, 51) == "x" * 80


def test_the_begin_and_end_of_a_text_are_limits():
    text = "word " * 60

    assert widened(text, 0, 0).startswith("word")
    assert widened(text, 2, 2).startswith("word word"), "back to the begin, which is near"
    assert widened(text, 6, 6).endswith("word word"), "on to the end, which is near"


def test_runs_that_meet_after_widening_are_one_passage():
    text = sentences(40)
    held = corpus([document(text)], BLOCK)

    found = passages(held, [Run(0, 3, 3, -2.0), Run(0, 5, 5, -1.0), Run(0, 30, 30, -3.0)])

    assert [passage.score for passage in found] == [-1.0, -3.0]
    assert found[0].end <= found[1].start


def test_runs_of_two_documents_never_join():
    held = corpus([document("First.", "a.txt"), document("Second.", "b.txt")], BLOCK)

    found = passages(held, [Run(0, 0, 0, 1.0), Run(1, 0, 0, 1.0)])

    assert [(passage.path, passage.text) for passage in found] == [
        ("a.txt", "First."),
        ("b.txt", "Second."),
    ]


def test_blank_blocks_are_no_passages():
    held = corpus([document("Said.\n" + " \n" * 400 + "Done.")], BLOCK)

    assert passages(held, [Run(0, 12, 13, 1.0)]) == []


def test_pages_and_times_come_from_the_document():
    text = sentences(30)
    paged = Document("a.pdf", text, "pdf", marks=(Mark(0, page=1), Mark(500, page=2)))
    timed = Document("b.vtt", text, "captions", marks=(Mark(0, time="00:00:01"),))

    found = passages(corpus([paged, timed], BLOCK), [Run(0, 20, 20, 1.0), Run(1, 2, 2, 1.0)])

    assert [(p.place.page, p.place.time) for p in found] == [(2, None), (None, "00:00:01")]
