"""Ignore rules: single lines by example, whole trees against git itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longctx.documents.gitignore import parse_rules
from longctx.documents.walk import Found, find_files

GIT_ALONE = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "HOME": os.devnull}


@pytest.mark.parametrize(
    ("line", "path", "is_folder", "matches"),
    [
        ("*.log", "a/b/x.log", False, True),
        ("/x.log", "a/x.log", False, False),
        ("a/x.log", "a/x.log", False, True),
        ("build/", "build", True, True),
        ("build/", "build", False, False),
        ("build", "build/out.txt", False, False),  # the walk prunes `build`; the rule says no more
        ("doc/**", "doc", True, False),
        ("doc/**", "doc/a/b", False, True),
        ("**/c", "c", False, True),
        ("a/**/c", "a/c", False, True),
        ("a/**/c", "a/x/y/c", False, True),
        ("a/*/c", "a/x/y/c", False, False),
        ("x[0-9].txt", "x7.txt", False, True),
        ("x[!0-9].txt", "x7.txt", False, False),
        ("x[[:alpha:]].txt", "xq.txt", False, True),
        ("x[", "x[", False, False),
        ("x[[:]y", "x:y", False, True),
        ("x[[:y", "x:y", False, False),
        ("x[[:none:]]", "x:]", False, False),
        ("x[]-]", "x]", False, True),
        ("a/b**", "a/bc/d", False, True),  # oddities of git's own
        ("a/b**/c", "a/bc", False, True),
        ("\\#x", "#x", False, True),
        ("x\\ ", "x ", False, True),
        ("x  ", "x", False, True),
        ("x\r", "x", False, True),
    ],
)
def test_a_line_means_what_it_means_to_git(line: str, path: str, is_folder: bool, matches: bool):
    rules = parse_rules(line.encode())
    assert any(rule.matches(path.encode(), is_folder) for rule in rules) is matches


@pytest.mark.parametrize("line", ["", "# comment", "/", "!", "   "])
def test_lines_without_a_pattern_are_no_rules(line: str):
    assert parse_rules(line.encode()) == []


def test_a_byte_order_mark_is_not_part_of_the_first_pattern():
    [rule] = parse_rules(b"\xef\xbb\xbfx\n")
    assert rule.matches(b"x", False)


@pytest.mark.parametrize("line", [b"*a" * 60 + b"b", b"**/*a*a*/" * 30 + b"b", b"x/" + b"*a*" * 60])
def test_a_hostile_pattern_is_matched_in_no_time(line: bytes):
    [rule] = parse_rules(line)
    start = time.monotonic()
    assert not rule.matches(b"a" * 255, False)
    assert not rule.matches(b"/".join([b"a" * 60] * 60), False)
    assert time.monotonic() - start < 1  # backtracking would take longer than the universe has


NAMES = ["a", "b", "ab", "a.b", "[a]", "é", "!a", "c "]
PIECES = [
    *["a", "b", "*", "?", "**", "[ab]", "[!a]", "[^b]", "[a-c]", "[[:alpha:]]", "[]a]", "\\a"],
    *[".", "[a", "[-a]", "[a-]", "\\", "***", " ", "é", "[[:x:]]", "[\\]]", "[[:]"],
]
segments = st.one_of(
    st.sampled_from([*NAMES, "**", "*", "a*", "*b"]),
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=3).map("".join),
)
patterns = st.builds(
    lambda bang, slash, parts, end: bang + slash + "/".join(parts) + end,
    st.sampled_from(["", "", "!"]),
    st.sampled_from(["", "", "/"]),
    st.lists(segments, min_size=1, max_size=3),
    st.sampled_from(["", "", "", "/", "/", " ", "\\ ", "\r", "\t"]),
)
ignore_files = st.lists(patterns, min_size=2, max_size=5).map("\n".join)
folders = st.recursive(
    st.none(),
    lambda inner: st.fixed_dictionaries(
        {},
        optional=dict.fromkeys(NAMES, inner) | {".gitignore": ignore_files},
    ),
    max_leaves=16,
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("git") is None:
        pytest.skip("needs git")
    root = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", root], check=True, env=os.environ | GIT_ALONE)
    return root


def fill(folder: Path, entries: dict | None) -> list[str]:
    """Write the tree and list its files."""
    files = []
    for name, entry in (entries or {}).items():
        path = folder / name
        if isinstance(entry, dict):
            path.mkdir()
            files += [f"{name}/{file}" for file in fill(path, entry)]
        else:
            path.write_text(entry or "", encoding="utf-8", newline="")
            files.append(name)
    return files


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    tree=st.fixed_dictionaries(
        {".gitignore": ignore_files}, optional=dict.fromkeys(NAMES, folders)
    ),
    exclude=ignore_files,
)
def test_the_walk_finds_what_git_does_not_ignore(repository: Path, tree: dict, exclude: str):
    for entry in repository.iterdir():
        if entry.name != ".git":
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    files = fill(repository, tree)
    (repository / ".git/info/exclude").write_text(exclude, encoding="utf-8", newline="")

    found = {
        str(file.path.relative_to(repository))
        for file in find_files([repository], hidden=True)
        if isinstance(file, Found)
    }

    ignored = subprocess.run(
        ["git", "-C", repository, "check-ignore", "--no-index", "--stdin", "-z"],
        input="\0".join(files).encode(),
        capture_output=True,
        env=os.environ | GIT_ALONE,
    ).stdout
    assert found == set(files) - set(ignored.decode().split("\0"))
