"""Citations: quotes are looked up, never believed; supporting sentences are cut from the text."""

from __future__ import annotations

import pytest
from engines.tiny_model import sentences
from hypothesis import given
from hypothesis import strategies as st

from contexts.samples import corpus, document
from longctx.contexts.cite import MAX_CITATIONS, MAX_QUOTE_CHARACTERS, Cited, cite, find_quote
from longctx.contexts.corpus import Corpus
from longctx.contexts.passages import Passage, passages
from longctx.documents.document import Document, Mark, Place
from longctx.indexshare.select import Run

LEASE = """Lease of the northern quay

The tenant, Marlow & Sons, pays a rent of 1,200 a month in advance. The
lease ends on 30 June 2027 unless either side gives notice of
ninety days in writing.
The landlord's surveyor inspects the quay twice a year.

- Pets are not allowed.
- Subletting needs the landlord's consent.
"""
LOG = "The pilot reported “a heavy swell \u2013 from the west” before noon. Nobody was hurt.\n"
CODE = '''
def deposit(rent):
    """Three months in advance."""
    return 3 * rent


deposit_limit = 5000
daily_fee = 40
'''


def reading(*texts: str, kind: str = "text", first: int = 0) -> tuple[Corpus, list[Passage]]:
    """Documents that are read from their block `first` on, as passages 1, 2, ..."""
    held = corpus([document(text, f"{n}.txt", kind) for n, text in enumerate(texts, 1)])
    runs = [Run(n, first, entry.segment.blocks - 1, 1.0) for n, entry in enumerate(held.entries)]
    return held, passages(held, runs)


def check(cited: list[Cited], held: Corpus) -> None:
    """Whatever is called verified stands in its file at its lines, word for word."""
    texts = {entry.document.path: entry.document.text for entry in held.entries}
    for one in cited:
        assert one.verified == (one.path is not None) == (one.place is not None)
        if one.path and one.place:
            lines = texts[one.path].split("\n")
            stretch = "\n".join(lines[one.place.start_line - 1 : one.place.end_line])
            assert one.quote in stretch
            assert one.quote.split("\n")[0] in lines[one.place.start_line - 1]
            assert one.quote.split("\n")[-1] in lines[one.place.end_line - 1]


@pytest.mark.parametrize(
    ("quote", "stands"),
    [
        ("ends on 30 June 2027", "ends on 30 June 2027"),
        ("The lease  ends\non 30 June", "The\nlease ends on 30 June"),
        ("the LANDLORD'S surveyor", "The landlord's surveyor"),
        ("the landlord\u2019s surveyor", "The landlord's surveyor"),
        ("  Marlow & Sons ", "Marlow & Sons"),
        ("1,200 a month", "1,200 a month"),
    ],
)
def test_a_quote_is_found_however_it_is_spaced_or_spelled(quote: str, stands: str):
    span = find_quote(quote, LEASE)

    assert span is not None
    assert LEASE[slice(*span)] == stands


@pytest.mark.parametrize(
    "quote",
    ['"a heavy swell - from the west"', "“A heavy swell — from", 'swell \u2010 from the west"'],
)
def test_quotation_marks_and_dashes_are_alike(quote: str):
    assert find_quote(quote, LOG) is not None


@pytest.mark.parametrize(
    "quote", ["", "  \n", "ends on 31 June 2027", "lease end on", "1.200 a month", "rent (", ".*"]
)
def test_what_is_not_there_is_not_found(quote: str):
    assert find_quote(quote, LEASE) is None


@given(st.text("abXÉ .(*[\\\n\t東", min_size=1, max_size=60).filter(str.strip), st.data())
def test_any_stretch_of_a_text_is_found_in_it(text: str, data: st.DataObject):
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))

    span = find_quote(text[start:end], text)

    assert (span is not None) == bool(text[start:end].strip())
    if span:
        assert text[slice(*span)].casefold().split() == text[start:end].casefold().split()


def test_a_true_quote_is_verified_with_its_place():
    held, read = reading(LOG, LEASE)

    cited = cite("When does it end?", 'It says "the lease ends on 30 June 2027".', read, held)

    assert cited[0] == Cited(2, "The\nlease ends on 30 June 2027", "2.txt", Place(3, 4), True)
    check(cited, held)


def test_a_quote_is_placed_in_its_document_not_its_passage():
    held, read = reading(sentences(9) + LEASE, first=6)

    (one, *_) = cite("Rent?", 'It says "pays a rent of 1,200 a month".', read, held)

    assert one.quote == "pays a rent of 1,200 a month"
    assert one.place == Place(9 + 3, 9 + 3)


def test_an_invented_quote_is_not_verified():
    held, read = reading(LOG, LEASE)

    cited = cite("When?", 'It says "the lease ends on 30 June 2031".', read, held)

    assert cited[0] == Cited(0, "the lease ends on 30 June 2031", None, None, False)
    assert not any(one.quote == cited[0].quote for one in cited[1:])
    check(cited, held)


def test_a_quote_from_a_document_that_was_not_read():
    held, read = reading(LOG, LEASE)

    cited = cite("Pets?", 'It says "Pets are not allowed."', read[:1], held)

    assert (cited[0].passage, cited[0].path, cited[0].verified) == (0, "2.txt", True)
    assert cited[0].quote == "Pets are not allowed"
    check(cited, held)


def test_curly_and_cut_quotes():
    held, read = reading(LOG, LEASE)
    answer = "“Subletting needs the landlord\u2019s consent…” and “a heavy swell - from the west”"

    cited = cite("What?", answer, read, held)

    assert [one.verified for one in cited[:2]] == [True, True]
    check(cited, held)


def test_a_word_in_quotation_marks_is_no_citation():
    held, read = reading(LEASE)

    cited = cite("Who?", 'The so-called "Marlow Sons" pays.', read, held)

    assert all(one.verified for one in cited)


def test_the_sentence_that_supports_an_answer_comes_first():
    held, read = reading(LOG, LEASE)

    cited = cite("What is the rent?", "The rent is 1,200 a month.", read, held)

    assert cited[0].quote == ("The tenant, Marlow & Sons, pays a rent of 1,200 a month in advance.")
    assert cited[0].passage == 2
    check(cited, held)


def test_a_sentence_that_wraps_over_lines_is_quoted_whole():
    held, read = reading(LEASE)

    (one, *_) = cite("How long is the notice?", "Ninety days, in writing.", read, held)

    assert one.quote == (
        "The\nlease ends on 30 June 2027 unless either side gives notice of\n"
        "ninety days in writing."
    )
    assert one.place is not None
    assert (one.place.start_line, one.place.end_line) == (3, 5)


def test_items_of_a_list_are_sentences():
    held, read = reading(LEASE)

    (one, *_) = cite("Are pets allowed?", "No, pets are not allowed.", read, held)

    assert one.quote == "- Pets are not allowed."
    check([one], held)


def test_a_line_of_code_is_quoted_alone():
    held, read = reading(CODE, kind="code")

    (one, *_) = cite("What is the limit?", "deposit_limit is 5000.", read, held)

    assert one.quote == "deposit_limit = 5000"
    assert one.place is not None
    assert one.place.start_line == one.place.end_line == 7


def test_a_named_passage_is_preferred():
    held, read = reading("The fee is 40 euro.", "A fee of 40 euro.", "Fee: 40 euro.")

    assert cite("What is the fee?", "40 euro [3]", read, held)[0].passage == 3
    assert cite("What is the fee?", "40 euro [2]", read, held)[0].passage == 2


def test_numbers_of_passages_are_not_words_of_the_answer():
    held, read = reading("Berth 2 is free.", "The crane is blue.")

    cited = cite("Which colour?", "Blue [2].", read, held)

    assert [one.passage for one in cited] == [2]


def test_a_sentence_is_not_cited_twice():
    held, read = reading(LEASE)
    answer = 'The rent is 1,200 a month: "pays a rent of 1,200 a month in advance".'

    cited = cite("What is the rent?", answer, read, held)

    assert sum("1,200" in one.quote for one in cited) == 1
    check(cited, held)


def test_a_long_line_is_cut():
    held, read = reading("x" * 50 + " rent " + "y " * 900)

    (one,) = cite("What?", "rent", read, held)

    assert len(one.quote) <= MAX_QUOTE_CHARACTERS
    check([one], held)


def test_an_answer_that_shares_nothing_has_no_citations():
    held, read = reading(LEASE)

    assert cite("Who won?", "Zanzibar.", read, held) == []
    assert cite("Who won?", "", read, held) == []
    assert cite("Who won?", "Marlow", [], held) == []


def test_no_more_than_a_handful():
    held, read = reading(*(sentences(20, seed=seed) for seed in range(4)))
    answer = " ".join(f'"The harbour master measured number {n}"' for n in range(9))

    cited = cite("Who?", answer + sentences(20, seed=2), read, held)

    assert len(cited) == MAX_CITATIONS


@given(st.integers(0, 10_000), st.text(st.sampled_from("ab \"“”'[1]2\n.-"), max_size=80))
def test_whatever_is_answered_what_is_verified_stands_there(seed: int, said: str):
    held, read = reading(sentences(30, seed=seed), sentences(9) + LEASE, first=6)
    assert all(passage.start > 0 for passage in read)
    quotes = f'"{sentences(1, seed=seed).strip()}" and "pays a rent of 1,200 a month"'
    answer = f"{said} {sentences(2, seed=seed + 1)} {quotes} {said}"

    check(cite("Who signed the ledger in March?", answer, read, held), held)


def test_pages_and_times_are_told():
    text = "The pilot forgot the ledger.\n\nThe tenant paid for a barge.\n"
    held = corpus([Document("a.pdf", text, "pdf", marks=(Mark(0, page=1), Mark(30, page=2)))])
    read = passages(held, [Run(0, 0, held.entries[0].segment.blocks - 1, 1.0)])

    (one, *_) = cite("Who paid?", "The tenant paid for a barge.", read, held)

    assert one.place is not None
    assert one.place.page == 2


def test_the_sentence_that_holds_the_answer_comes_first():
    held, read = reading("Capital B.\n", "Capital A.\n")

    found = cite("capital?", "Capital A.", read, held)

    assert found[0].quote == "Capital A."
