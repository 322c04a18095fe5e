"""Profiles: what is written is what is read, what changes an index, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from engines.tiny_model import PROFILE

from longctx.errors import ModelError
from longctx.indexshare.profile import (
    LeaderHead,
    find_profile,
    own_profile_path,
    parse_profile,
    read_profile,
    shipped_profile,
)

FULL = replace(
    PROFILE,
    decline_margin=-1.5,
    measured={"questions": 160, "held_out_fused": {"facts": 0.98}},
)


def changed(**values: object) -> str:
    return json.dumps(json.loads(FULL.to_json()) | values)


def test_a_written_profile_reads_as_it_was():
    assert parse_profile(FULL.to_json(), "here") == FULL


def test_the_leader_is_the_deepest_head():
    assert PROFILE.leader == 2


def test_heads_that_share_keys_share_a_stream():
    heads = tuple(LeaderHead(layer, head, 1.0) for layer, head in ((6, 4), (5, 11), (6, 5), (6, 0)))

    assert replace(PROFILE, heads=heads).streams(12, 2) == ((5, 1), (6, 0))
    assert replace(PROFILE, heads=heads).streams(12, 12) == ((5, 11), (6, 0), (6, 4), (6, 5))


@pytest.mark.parametrize(
    "change",
    [
        {"window": 128},
        {"block": 16},
        {"preamble": "Other documents.\n"},
        {"heads": (LeaderHead(1, 0, 1.0),)},
        {"heads": (*PROFILE.heads, LeaderHead(3, 0, 1.0))},
    ],
)
def test_what_changes_stored_keys_changes_the_digest(change: dict):
    assert replace(PROFILE, **change).index_digest() != PROFILE.index_digest()


def test_what_only_changes_the_choice_keeps_the_index():
    other = replace(
        FULL,
        heads=tuple(replace(head, weight=9.0) for head in reversed(PROFILE.heads)),
        lexical_weight=0.1,
        top_blocks=99,
        neighbours=3,
        question_format="{question}",
    )

    assert other.index_digest() == PROFILE.index_digest()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '"text"',
        changed(heads=[]),
        changed(heads=[{"layer": 1, "head": 0}]),
        changed(heads=None),
        changed(decline_margin="low"),
        changed(top_blocks=2.5),
        changed(model=3),
        json.dumps({"version": 1}),
    ],
)
def test_what_is_no_profile_is_refused(text: str):
    with pytest.raises(ModelError, match=r"^profile\.json: .*calibrate again$"):
        parse_profile(text, "profile.json")


def test_another_version_is_refused():
    with pytest.raises(ModelError, match="a profile of version 9"):
        parse_profile(changed(version=9), "profile.json")


def test_a_later_profile_may_hold_more():
    assert parse_profile(changed(unheard=1), "here") == FULL


def test_a_profile_that_cannot_be_read(tmp_path: Path):
    with pytest.raises(ModelError, match="cannot read this profile"):
        read_profile(tmp_path / "absent.json")


def test_ones_own_profile_comes_before_the_shipped_one(home: Path):
    name, digest = "qwen2.5-coder-1.5b", "0123456789abcdef" * 4
    shipped = shipped_profile(name)
    assert shipped is not None
    assert find_profile(name, digest) == shipped
    path = own_profile_path(digest)
    assert home in path.parents
    path.parent.mkdir(parents=True)

    path.write_text(FULL.to_json(), encoding="utf-8")

    assert find_profile(name, digest) == FULL
    assert find_profile(name, digest[::-1]) == shipped


def test_a_model_without_a_profile_has_none():
    assert find_profile("somebody/else", "0" * 64) is None
