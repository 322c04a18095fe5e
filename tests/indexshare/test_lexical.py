"""Words of texts, and BM25 against the textbook."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longctx.indexshare.lexical import (
    K1,
    STOP_WORDS,
    B,
    bm25,
    document_bm25,
    postings,
    question_terms,
    term_id,
    words,
)

VOCABULARY = ["harbour", "rent", "pilot", "quay", "1200", "crane", "ledger", "tide"]
BLOCK = st.lists(st.sampled_from(VOCABULARY), max_size=12).map(" ".join)
DOCUMENT = st.lists(BLOCK, min_size=1, max_size=6)
QUERY = st.lists(st.sampled_from([*VOCABULARY, "unheard"]), min_size=1, max_size=5, unique=True)


def textbook(query: Sequence[str], blocks: Sequence[str]) -> list[float]:
    """Robertson and Zaragoza (2009), equation 3.15, with the idf that is never negative."""
    counted = [Counter(words(block)) for block in blocks]
    mean = max(sum(map(Counter.total, counted)) / len(blocks), 1.0)
    scores = []
    for counts in counted:
        score = 0.0
        for word in {word for term in query for word in words(term)}:
            holding = sum(word in other for other in counted)
            idf = math.log(1 + (len(blocks) - holding + 0.5) / (holding + 0.5))
            length = 1 - B + B * counts.total() / mean
            score += idf * counts[word] * (K1 + 1) / (counts[word] + K1 * length)
        scores.append(score)
    return scores


def ids(query: Sequence[str]) -> list[int]:
    return [term_id(word) for term in query for word in words(term)]


@given(QUERY, DOCUMENT)
def test_bm25_is_the_textbooks(query: list[str], blocks: list[str]):
    found = bm25(ids(query), [postings(blocks)])

    assert found.dtype == np.float32
    assert np.allclose(found, textbook(query, blocks), rtol=1e-4)


@given(QUERY, st.lists(DOCUMENT, min_size=1, max_size=5))
def test_several_documents_are_one_corpus(query: list[str], documents: list[list[str]]):
    apart = bm25(ids(query), [postings(blocks) for blocks in documents])

    together = bm25(ids(query), [postings([block for blocks in documents for block in blocks])])

    assert np.array_equal(apart, together)


@given(QUERY, st.lists(DOCUMENT, min_size=1, max_size=5))
def test_documents_score_as_if_each_were_one_block(query: list[str], documents: list[list[str]]):
    found = document_bm25(ids(query), [postings(blocks) for blocks in documents])

    assert found.dtype == np.float32
    assert np.allclose(found, textbook(query, [" ".join(d) for d in documents]), rtol=1e-4)


def test_a_block_without_the_word_scores_nothing():
    scores = bm25(ids(["quay"]), [postings(["the quay", "", "a crane"]), postings(["quay quay"])])

    assert scores[1] == scores[2] == 0
    assert 0 < scores[0] < scores[3]


def test_a_rare_word_weighs_more_than_a_common_one():
    blocks = ["rent rent quay", "rent crane pilot", "rent tide ledger"]

    assert bm25(ids(["quay"]), [postings(blocks)])[0] > bm25(ids(["rent"]), [postings(blocks)])[0]


def test_a_word_asked_twice_counts_once():
    blocks = [postings(["quay crane", "crane"])]

    assert np.array_equal(bm25(ids(["quay", "quay"]), blocks), bm25(ids(["quay"]), blocks))


def test_nothing_to_search_or_to_search_for():
    assert bm25(ids(["quay"]), []).shape == (0,)
    assert bm25(ids(["quay"]), [postings([])]).shape == (0,)
    assert bm25([], [postings(["quay", "crane"])]).tolist() == [0, 0]
    assert bm25(ids(["quay"]), [postings(["", ""])]).tolist() == [0, 0]
    assert document_bm25(ids(["quay"]), []).shape == (0,)
    assert document_bm25([], [postings(["quay", "crane"])]).tolist() == [0]
    assert document_bm25(ids(["quay"]), [postings([]), postings([""])]).tolist() == [0, 0]


def test_a_word_repeated_beyond_a_byte():
    counted = postings(["quay " * 300 + "crane"])

    assert sorted(counted.counts.tolist()) == [1, 255]
    assert bm25(ids(["quay"]), [counted])[0] > 0


def test_postings_lie_block_by_block():
    found = postings(["quay crane quay", "", "tide"])

    assert found.ptr.tolist() == [0, 2, 2, 3]
    assert found.terms.tolist() == [term_id("quay"), term_id("cran"), term_id("tide")]
    assert found.counts.tolist() == [2, 1, 1]
    assert (found.terms.dtype, found.counts.dtype, found.ptr.dtype) == ("u4", "u1", "i8")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Retries use backoffSeconds = 1,200", ["retry", "use", "backoff", "second", "1200"]),
        ("max_retry_count", ["max", "retry", "count"]),
        ("getUserName()", ["get", "user", "name"]),
        (
            "on 30 June 2027, 9.5% of 1,234,567.",
            ["on", "30", "june", "2027", "9.5", "of", "1234567"],
        ),
        ("§ 4.2(a)", ["4.2", "a"]),
        ("Größe der Straße", ["größe", "der", "straße"]),
        ("the tenant's", ["the", "tenant", "s"]),
        ("", []),
        (" \n\t—…", []),
    ],
)
def test_words(text: str, found: list[str]):
    assert words(text) == found


@pytest.mark.parametrize(
    "forms",
    [
        ("retry", "retries"),
        ("process", "processes", "processed", "processing"),
        ("box", "boxes"),
        ("branch", "branches"),
        ("stop", "stops", "stopped", "stopping"),
        ("sign", "signs", "signed", "signing"),
        ("store", "stores", "stored", "storing"),
        ("install", "installs", "installed", "installing"),
        ("party", "parties"),
    ],
)
def test_forms_of_a_word_share_a_stem(forms: tuple[str, ...]):
    assert len({words(form)[0] for form in forms}) == 1


@pytest.mark.parametrize(
    ("one", "other"), [("bus", "busy"), ("lease", "less"), ("king", "kin"), ("red", "re")]
)
def test_other_words_keep_apart(one: str, other: str):
    assert words(one) != words(other)


@pytest.mark.parametrize("pair", [("re\u0301sume\u0301", "r\u00e9sum\u00e9"), ("\ufb01le", "file")])
def test_the_same_letters_spelled_otherwise_are_the_same_word(pair: tuple[str, str]):
    """PDFs hold ligatures, some systems write an accent as a character of its own."""
    assert words(pair[0]) == words(pair[1])


def test_function_words_are_left_out_of_a_question():
    assert question_terms("Where does the tenant pay these, and whose crane is there?") == [
        term_id("tenant"),
        term_id("pay"),
        term_id("cran"),
    ]


def test_a_question_of_function_words_keeps_them():
    assert question_terms("Who are we?") == [term_id("who"), term_id("are"), term_id("we")]


@pytest.mark.parametrize("word", ["the", "does", "these", "those", "there", "where", "whose"])
def test_stop_words_are_spelled_as_words_gives_them(word: str):
    assert words(word)[0] in STOP_WORDS


@given(st.text(max_size=60))
def test_any_text_has_words(text: str):
    for word in words(text):
        assert word
        assert 0 <= term_id(word) < 2**32
