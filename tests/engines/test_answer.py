"""The answer as data: exactly the keys that are documented."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from longctx.engines.base import (
    Answer,
    AskOptions,
    Citation,
    Compute,
    EvidencePassage,
    HeatRow,
    Usage,
)
from longctx.errors import UsageError

KEYS = ["answer", "found", "model", "evidence", "citations", "skipped", "usage", "compute"]
EVIDENCE_KEYS = ["path", "start_line", "end_line", "page", "time", "score", "text"]
CITATION_KEYS = ["quote", "path", "start_line", "end_line", "page", "time", "verified"]
USAGE_KEYS = [
    "context_tokens",
    "indexed_tokens",
    "reused_tokens",
    "read_tokens",
    "answer_tokens",
    "seconds",
]
SECONDS_KEYS = ["load", "index", "select", "first_token", "total"]
COMPUTE_KEYS = ["flops", "dense_flops", "every_layer_index_flops"]

ANSWER = Answer(
    answer="In June.",
    found=True,
    model="tiny",
    evidence=(EvidencePassage(1, "a.md", 3, 7, None, None, -0.25, "The lease ends in June."),),
    citations=(Citation(1, "in June", "a.md", 3, 3, None, None, True),),
    skipped=({"path": "b.bin", "reason": "binary"},),
    usage=Usage(1000, 900, 100, 300, 4, dict.fromkeys(SECONDS_KEYS, 0.5)),
    compute=Compute(1, 2, 3),
    heat=(HeatRow("a.md", 1000, (0.0, 1.0)),),
    warnings=("something",),
)


def check_keys(found: dict) -> None:
    """The object of `--json` has these keys, in this order, and no others."""
    assert list(found) == KEYS
    assert all(list(passage) == EVIDENCE_KEYS for passage in found["evidence"])
    assert all(list(citation) == CITATION_KEYS for citation in found["citations"])
    assert all(list(item) == ["path", "reason"] for item in found["skipped"])
    assert list(found["usage"]) == USAGE_KEYS
    assert list(found["usage"]["seconds"]) == SECONDS_KEYS
    assert list(found["compute"]) == COMPUTE_KEYS


def test_the_keys_are_those_documented():
    check_keys(ANSWER.to_json())


def test_the_values_survive_json():
    found = json.loads(json.dumps(ANSWER.to_json()))

    check_keys(found)
    assert found["evidence"] == [
        {
            "path": "a.md",
            "start_line": 3,
            "end_line": 7,
            "page": None,
            "time": None,
            "score": -0.25,
            "text": "The lease ends in June.",
        }
    ]
    assert found["citations"][0]["verified"] is True
    assert found["usage"]["seconds"]["first_token"] == 0.5
    assert found["compute"]["every_layer_index_flops"] == 3


def test_making_json_changes_nothing():
    before = ANSWER.to_json()
    before["usage"]["seconds"]["load"] = 99
    before["evidence"][0]["path"] = "other"

    assert ANSWER.usage.seconds["load"] == 0.5
    assert ANSWER.evidence[0].path == "a.md"
    assert len(fields(Answer)) == len(KEYS) + 2, "heat and warnings are not part of it"


@pytest.mark.parametrize("limit", [0, -1])
def test_an_answer_has_a_token_at_least(limit: int):
    with pytest.raises(UsageError, match=f"an answer of {limit} tokens"):
        AskOptions(max_answer_tokens=limit)


@pytest.mark.parametrize("temperature", [-0.1, float("nan")])
def test_a_temperature_is_not_negative(temperature: float):
    with pytest.raises(UsageError, match="a temperature of"):
        AskOptions(temperature=temperature)
