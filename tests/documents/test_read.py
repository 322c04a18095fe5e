"""The whole floor: every path named becomes a document or a reason."""

from __future__ import annotations

import io
import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from longctx.documents import Document, Skipped, read_documents
from longctx.documents.readers import READERS
from longctx.documents.reasons import reason_kind
from longctx.documents.sniff import Kind
from longctx.errors import UsageError


def test_a_folder_becomes_documents_and_reasons(tree, monkeypatch):
    root = tree(
        {"a.md": "# A\r\n", "b.py": "x = 1\n", "c.txt": "", "d.docx": b"PK\3\4", "e.bin": b"\0\1"}
    )
    monkeypatch.chdir(root)
    assert list(read_documents([Path(".")])) == [
        Document("a.md", "# A\n", "markdown"),
        Document("b.py", "x = 1\n", "code"),
        Skipped("c.txt", "empty"),
        Skipped("d.docx", "unsupported format: .docx"),
        Skipped("e.bin", "binary"),
    ]


def test_blank_files_are_empty(tree):
    [skipped] = read_documents([tree({"a.txt": " \n\t\r\n"})])
    assert skipped == Skipped(skipped.path, "empty")


@pytest.mark.parametrize("name", ["a.txt", "a.pdf", "a.vtt"])
def test_files_above_the_limit_are_not_read(tree, name):
    [skipped] = read_documents([tree({name: "x" * 2_000_001})], max_bytes=2_000_000)
    assert isinstance(skipped, Skipped)
    assert skipped.reason == "too large: 2.0 MB, the limit is 2.0 MB"


def test_a_file_that_cannot_be_opened_is_skipped(tree, monkeypatch):
    root = tree({"a.txt": "secret", "b.txt": "open"})
    original = os.open

    def refuse(path, *args, **kwargs):
        if Path(path).name == "a.txt":
            raise PermissionError(13, "Permission denied")
        return original(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse)
    skipped, document = read_documents([root])
    assert isinstance(skipped, Skipped)
    assert skipped.reason == "unreadable: Permission denied"
    assert isinstance(document, Document)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_that_takes_a_files_place_is_not_waited_for(tree):
    root = tree({"a.txt": "one", "b.txt": "two"})
    run = read_documents([root])
    next(run)
    (root / "b.txt").unlink()
    os.mkfifo(root / "b.txt")
    [skipped] = run
    assert isinstance(skipped, Skipped)
    assert reason_kind(skipped.reason) == "special file"


def test_a_file_that_vanishes_is_skipped(tree):
    root = tree({"a.txt": "one", "b.txt": "two"})
    run = read_documents([root])
    next(run)
    (root / "b.txt").unlink()
    [skipped] = run
    assert isinstance(skipped, Skipped)
    assert skipped.reason == "unreadable: No such file or directory"


def test_a_readers_bug_costs_only_its_file(tree, monkeypatch):
    def broken(source):
        raise KeyError("no such\nthing")

    monkeypatch.setitem(READERS, Kind.MARKDOWN, lambda: nullcontext(broken))
    skipped, document = read_documents([tree({"a.md": "# A", "b.txt": "words"})])
    assert isinstance(skipped, Skipped)
    assert skipped.reason == "reader failed: KeyError: 'no such\\nthing'"
    assert isinstance(document, Document)


def test_documents_come_one_at_a_time(tree):
    root = tree({"a.txt": "one", "b.txt": "two"})
    run = read_documents([root])
    assert isinstance(next(run), Document)
    (root / "b.txt").write_text("changed meanwhile")
    second = next(run)
    assert isinstance(second, Document)
    assert second.text == "changed meanwhile"


@pytest.mark.parametrize("listing", [b"b.txt\na b.txt\n", b"b.txt\r\na b.txt", b"b.txt\0a b.txt\0"])
def test_paths_can_be_listed_on_stdin(tree, monkeypatch, listing):
    monkeypatch.chdir(tree({"a b.txt": "one", "b.txt": "two", "c.txt": "three"}))
    documents = read_documents([Path("c.txt")], stdin_paths=io.BytesIO(listing))
    assert [document.path for document in documents] == ["c.txt", "b.txt", "a b.txt"]


def test_a_missing_path_is_told_before_anything_is_read(tree):
    root = tree({"a.txt": "one"})
    with pytest.raises(UsageError, match=r"no such file or folder: .*gone"):
        read_documents([root, root / "gone"])
