"""Mending words: joined where the hyphen is the typesetter's, kept where it is the word's own."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longctx.documents.readers.hyphens import mend


@pytest.mark.parametrize(
    ("page", "mended"),
    [
        ("the agree-\nment ends\n", "the agreement\nends\n"),
        ("Agree-\nment, or\nnot\n", "Agreement,\nor\nnot\n"),
        ("a non-\nexclusive right\n", "a non-exclusive\nright\n"),
        ("well-known, well-\nknown\n", "well-known, well-known\n\n"),
        ("a cost-effective or cost-\neffective one\n", "a cost-effective or cost-effective\none\n"),
        (
            "paid interest, rate, interest-\nrate swap\n",
            "paid interest, rate, interest-rate\nswap\n",
        ),
        ("soft\u00ad\nened words\n", "softened\nwords\n"),
        ("in-\u00advisible\n", "in-visible\n"),
        ("section A-\nfour\n", "section A-\nfour\n"),
        ("Smith-\nJones\n", "Smith-\nJones\n"),
        ("pages 3-\n4\n", "pages 3-\n4\n"),
        ("one -\ntwo\n", "one -\ntwo\n"),
        ("\ufb01nal o\ufb03ce \ufb02ow\n", "final office flow\n"),
    ],
)
def test_words_are_mended(page: str, mended: str):
    assert mend([page]) == [mended]


def test_other_pages_tell_how_a_word_is_written():
    assert mend(["the make-\nup\n", "all makeup\n"])[0] == "the makeup\n\n"


@settings(deadline=None)
@given(st.lists(st.text("ab-\n \u00ad.,A\ufb01", max_size=40), max_size=3))
def test_lines_stay_as_many_and_letters_the_same(pages: list[str]):
    mended = mend(pages)
    for before, after in zip(pages, mended, strict=True):
        assert after.count("\n") == before.count("\n")
        letters = before.replace("\ufb01", "fi")
        assert [c for c in letters if c.isalpha()] == [c for c in after if c.isalpha()]
