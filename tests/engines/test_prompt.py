"""The prompt: every passage under its label, then the question, in the roles of a chat."""

from __future__ import annotations

from longctx.contexts.passages import Passage
from longctx.documents.document import Place
from longctx.engines.prompt import EXAMPLES, NOT_FOUND, SYSTEM, label, messages


def passage(text: str, path: str, place: Place) -> Passage:
    return Passage(0, path, 0, len(text), text, place, 0.0)


LINES = passage("The lease ends.", "contracts/lease.md", Place(3, 7))
PAGE = passage("Rent is due.", "contracts/rent.pdf", Place(40, 52, page=2))
TIME = passage("We agreed.", "calls/may.vtt", Place(9, 12, time="00:12:05"))


def test_labels_say_where_to_look():
    assert label(1, LINES) == "[1] contracts/lease.md, lines 3-7"
    assert label(2, PAGE) == "[2] contracts/rent.pdf, page 2"
    assert label(12, TIME) == "[12] calls/may.vtt, at 00:12:05"


def test_evidence_stands_before_the_question():
    system, *examples, user = messages("When does it end?", [LINES, PAGE])

    assert system == {"role": "system", "content": SYSTEM}
    assert NOT_FOUND in SYSTEM
    assert [m["role"] for m in examples] == ["user", "assistant"] * len(EXAMPLES)
    assert {m["content"] for m in examples} == {text for turn in EXAMPLES for text in turn}
    assert user == {
        "role": "user",
        "content": (
            "Excerpts:\n\n"
            "[1] contracts/lease.md, lines 3-7:\nThe lease ends.\n\n"
            "[2] contracts/rent.pdf, page 2:\nRent is due.\n\n"
            "Question: When does it end?"
        ),
    }


def test_earlier_turns_stand_between():
    chat = messages("And the rent?", [PAGE], [("When?", "In June."), ("Sure?", "Yes.")])

    assert [m["role"] for m in chat[-5:]] == ["user", "assistant", "user", "assistant", "user"]
    assert [m["content"] for m in chat[-5:-1]] == ["When?", "In June.", "Sure?", "Yes."]
    assert "Rent is due." in chat[-1]["content"]


def test_without_evidence_the_model_is_told_so():
    assert messages("When?", [])[-1]["content"] == "There are no excerpts.\n\nQuestion: When?"
