"""Finding files: order, links, ignore files, special files, and paths the user names."""

from __future__ import annotations

import os
import socket
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from longctx.documents import HIDDEN, Found, Skipped, find_files
from longctx.errors import UsageError

pytestmark = pytest.mark.skipif(os.name == "nt", reason="links and pipes are made the POSIX way")


def found(root: Path, *paths: Path, **options) -> list[str]:
    """The files found, relative to `root`."""
    results = find_files(paths or [root], **options)
    return [os.path.relpath(r.path, root) for r in results if isinstance(r, Found)]


def skipped(root: Path, *paths: Path, **options) -> dict[str, str]:
    results = find_files(paths or [root], **options)
    return {os.path.relpath(r.path, root): r.reason for r in results if isinstance(r, Skipped)}


def test_folders_come_in_byte_order_of_whole_paths(tree):
    root = tree({"b": "", "a/z": "", "a.txt": "", "a-b": "", "a/b/c": "", "é": "", "B": ""})
    names = found(root)
    assert names == ["B", "a-b", "a.txt", "a/b/c", "a/z", "b", "é"]
    assert names == sorted(names, key=os.fsencode)


def test_paths_keep_the_order_given_and_files_come_once(tree):
    root = tree({"z.txt": "", "a/b.txt": "", "a/c.txt": ""})
    names = found(root, root / "z.txt", root / "a/c.txt", root / "a", root / "a", root / "z.txt")
    assert names == ["z.txt", "a/c.txt", "a/b.txt"]


def test_shown_paths_are_what_the_user_would_type(tree, monkeypatch):
    monkeypatch.chdir(tree({"docs/a.txt": "", "b.txt": ""}))
    assert [f.shown for f in find_files([Path(".")]) if isinstance(f, Found)] == [
        "b.txt",
        "docs/a.txt",
    ]
    assert [f.shown for f in find_files([Path("docs")]) if isinstance(f, Found)] == ["docs/a.txt"]


@pytest.mark.parametrize("name", ["nowhere", "a.txt/b", "gone"])
def test_a_missing_path_is_named_before_anything_is_walked(tree, name):
    root = tree({"a.txt": ""})
    (root / "gone").symlink_to("nowhere")
    with pytest.raises(UsageError) as error:
        find_files([root, root / name])
    assert str(root / name) in str(error.value)
    assert "\n" not in str(error.value)


def test_hidden_files_are_counted_not_read(tree):
    root = tree({".env": "", ".cache/x": "", ".cache/y": "", "a": ""})
    ignored = Counter()
    assert found(root, ignored=ignored) == ["a"]
    assert ignored == {HIDDEN: 2}
    assert found(root, hidden=True) == [".cache/x", ".cache/y", ".env", "a"]


def test_git_folders_are_never_entered(tree):
    root = tree({".git/config": "", "sub/.git/config": "", "sub/a": ""})
    assert found(root, hidden=True) == ["sub/a"]


def test_ignored_entries_are_counted_per_ignore_file(tree):
    root = tree(
        {".gitignore": "*.log\nbuild/\n", "build/a": "", "build/b": "", "x.log": "", "a": ""}
    )
    ignored = Counter()
    assert found(root, ignored=ignored) == ["a"]
    assert ignored == {f"{root.as_posix()}/.gitignore": 2, HIDDEN: 1}


def test_louder_ignore_files_and_deeper_folders_win(tree):
    root = tree(
        {
            ".gitignore": "*.a\n*.b\n*.c\n",
            ".ignore": "!*.b\n!*.c\n",
            ".longctxignore": "*.c\n",
            "x.a": "",
            "x.b": "",
            "x.c": "",
            "sub/.gitignore": "!*.a\n",
            "sub/y.a": "",
        }
    )
    assert found(root) == ["sub/y.a", "x.b"]


def test_the_last_match_decides(tree):
    root = tree({".gitignore": "*.log\n!keep.log\n", "keep.log": "", "x.log": ""})
    assert found(root) == ["keep.log"]


def test_a_slash_anchors_a_pattern_to_its_own_folder(tree):
    root = tree({"sub/.gitignore": "/x\nd/y\n", "x": "", "sub/x": "", "sub/d/x": "", "sub/d/y": ""})
    assert found(root) == ["sub/d/x", "x"]


def test_the_repositorys_exclude_file_is_the_quietest(tree):
    root = tree(
        {".git/info/exclude": "*.p\n", ".gitignore": "!keep.p\n", "keep.p": "", "x.p": "", "a": ""}
    )
    assert found(root) == ["a", "keep.p"]


def test_a_file_cannot_be_rescued_from_an_ignored_folder(tree):
    root = tree({".gitignore": "build/\n!build/keep.txt\n", "build/keep.txt": "", "a": ""})
    assert found(root) == ["a"]


def test_rules_above_a_named_folder_hold_up_to_the_repository_top(tree):
    root = tree(
        {
            ".gitignore": "*.outside\n",
            "repo/.git/info/exclude": "*.private\n",
            "repo/.gitignore": "*.log\n/docs/only\n",
            "repo/docs/x.log": "",
            "repo/docs/x.private": "",
            "repo/docs/only": "",
            "repo/docs/x.outside": "",
            "repo/docs/sub/only": "",
        }
    )
    assert found(root, root / "repo/docs") == ["repo/docs/sub/only", "repo/docs/x.outside"]


def test_a_worktree_uses_the_exclude_file_of_its_repository(tree):
    root = tree(
        {
            "main/.git/info/exclude": "*.private\n",
            "main/.git/worktrees/w/commondir": "../..\n",
            "w/.git": "gitdir: ../main/.git/worktrees/w\n",
            "w/a.private": "",
            "w/a": "",
        }
    )
    assert found(root, root / "w") == ["w/a"]


def test_what_the_user_names_is_read_even_if_ignored_or_hidden(tree):
    root = tree(
        {
            ".git/config": "",
            ".gitignore": "*.log\nbuild\n*.tmp\n",
            "x.log": "",
            ".secret": "",
            "build/x.tmp": "",
            "build/sub/y": "",
        }
    )
    names = found(root, root / "x.log", root / ".secret", root / "build")
    assert names == ["x.log", ".secret", "build/sub/y", "build/x.tmp"]


def test_links_are_skipped_with_a_reason(tree):
    root = tree({"a": "", "d/b": ""})
    (root / "link").symlink_to("a")
    (root / "folder").symlink_to("d")
    assert found(root) == ["a", "d/b"]
    assert skipped(root) == {"link": "symlink: not followed", "folder": "symlink: not followed"}


def test_links_are_followed_on_request_but_never_out_of_the_folder(tree):
    root = tree({"in/a": "", "in/.store/b": "", "out/secret": "", "in/.git/config": ""})
    inside = root / "in"
    (inside / "again").symlink_to("a")
    (inside / "hop").symlink_to(".store")
    (inside / "up").symlink_to("../out/secret")
    (inside / "away").symlink_to("../out")
    (inside / "broken").symlink_to("nothing")
    (inside / "meta").symlink_to(".git")
    assert found(inside, follow_symlinks=True) == ["a", "hop/b"]
    assert skipped(inside, follow_symlinks=True) == {
        "away": "symlink: leads out of the folder",
        "broken": "symlink: broken",
        "meta": "symlink: leads into .git",
        "up": "symlink: leads out of the folder",
    }


def test_loops_of_links_end(tree):
    root = tree({"a/x": "", "b/y": ""})
    (root / "a/loop").symlink_to("..")
    (root / "a/b").symlink_to("../b")
    (root / "b/a").symlink_to("../a")
    (root / "self").symlink_to("self")
    assert found(root, follow_symlinks=True) == ["a/x", "b/y"]
    assert list(skipped(root, follow_symlinks=True)) == ["self"]


def test_ignore_rules_hold_inside_a_followed_folder(tree):
    root = tree(
        {".gitignore": "*.log\n/hop/only\n", ".store/x.log": "", ".store/only": "", ".store/a": ""}
    )
    (root / "hop").symlink_to(".store")
    assert found(root, follow_symlinks=True) == ["hop/a"]


def test_a_named_link_is_read(tree):
    root = tree({"a": "", "d/b": ""})
    (root / "link").symlink_to("a")
    (root / "folder").symlink_to("d")
    assert found(root, root / "link", root / "folder") == ["link", "folder/b"]
    assert found(root, root / "link", root / "a") == ["link"]


def test_special_files_are_skipped_unopened(tree, monkeypatch):
    root = tree({"a": ""})
    os.mkfifo(root / "pipe")
    os.mkfifo(root / ".ignore")  # opening this one would wait for ever
    monkeypatch.chdir(root)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        assert found(root) == ["a"]
        assert skipped(root) == {
            "pipe": "special file: named pipe",
            "socket": "special file: socket",
        }
    assert skipped(root, root / "pipe") == {"pipe": "special file: named pipe"}


def deny(monkeypatch: pytest.MonkeyPatch, name: str, denied: Path) -> None:
    """Make os.<name> refuse a path, also for root, whom no permission bit stops."""
    original: Callable = getattr(os, name)

    def refuse(path, *args, **kwargs):
        if os.fspath(path) == os.fspath(denied):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return original(path, *args, **kwargs)

    monkeypatch.setattr(os, name, refuse)


def test_a_folder_that_cannot_be_listed_is_skipped(tree, monkeypatch):
    root = tree({"locked/a": "", "b": ""})
    deny(monkeypatch, "scandir", root / "locked")
    assert found(root) == ["b"]
    assert skipped(root) == {"locked": "unreadable: Permission denied"}


def test_an_ignore_file_that_cannot_be_read_is_told(tree, monkeypatch):
    root = tree({".gitignore": "*.log", "a": ""})
    deny(monkeypatch, "lstat", root / ".gitignore")
    assert skipped(root) == {".gitignore": "unreadable: Permission denied"}


def test_a_linked_ignore_file_is_not_followed_and_told(tree):
    root = tree({"rules": "a\n", "a": ""})
    (root / ".gitignore").symlink_to("rules")
    assert found(root) == ["a", "rules"]
    assert skipped(root) == {
        ".gitignore": "symlink: ignore files are not read through links",
    }


def test_names_that_are_not_utf8_survive(tmp_path):
    name = os.fsencode(tmp_path) + b"/caf\xe9"
    try:
        os.mkdir(name)
        with open(name + b"/\xff.txt", "w"):
            pass
    except OSError:
        pytest.skip("this file system takes only UTF-8 names")
    (tmp_path / ".gitignore").write_bytes(b"\xe9*\n")
    [file] = find_files([tmp_path])
    assert isinstance(file, Found)
    assert os.fsencode(file.path) == name + b"/\xff.txt"


def test_very_deep_folders_are_walked(tmp_path):
    deep = Path(*["d"] * 1500)  # deeper than Python recurses, so not for pytest to tidy up
    subprocess.run(["mkdir", "-p", deep], cwd=tmp_path, check=True)
    try:
        (tmp_path / deep / "x").write_text("")
        [file] = find_files([tmp_path])
        assert file == Found(tmp_path / deep / "x")
    finally:
        subprocess.run(["rm", "-r", tmp_path / "d"], check=True)
