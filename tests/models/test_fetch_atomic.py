"""Files and folders appear whole or not at all, and leave nothing behind."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from longctx import paths
from longctx.atomic import check_free, replace_file, replace_folder, write_file
from longctx.errors import DoesNotFitError, LongctxError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_whole(tmp_path: Path):
    target = tmp_path / "a.json"
    write_file(target, "old")

    write_file(target, "néw")

    assert target.read_text(encoding="utf-8") == "néw"
    assert names(tmp_path) == ["a.json"]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, ValueError])
def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, stop):
    target = tmp_path / "a.json"
    write_file(target, "old")

    def write_half() -> None:
        with replace_file(target) as file:
            file.write(b"half")
            raise stop

    with pytest.raises(stop):
        write_half()

    assert target.read_text(encoding="utf-8") == "old"
    assert names(tmp_path) == ["a.json"]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, ValueError])
def test_an_interrupted_folder_leaves_the_old_one_and_nothing_else(tmp_path: Path, stop):
    target = tmp_path / "model"
    target.mkdir()
    (target / "old").touch()

    def write_half() -> None:
        with replace_folder(target) as work:
            (work / "new").touch()
            raise stop

    with pytest.raises(stop):
        write_half()

    assert names(tmp_path) == ["model"]
    assert names(target) == ["old"]


def test_a_folder_replaces_another_or_a_file(tmp_path: Path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "old").touch()
    (tmp_path / "file").touch()

    for name in ("folder", "file", "none"):
        with replace_folder(tmp_path / name) as work:
            (work / "inner").mkdir()
            (work / "inner" / "new").touch()

    assert names(tmp_path) == ["file", "folder", "none"]
    assert all(names(path) == ["inner"] for path in tmp_path.iterdir())


def test_what_a_crash_left_is_swept_and_a_living_writer_is_not(tmp_path: Path):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (tmp_path / f".a[1].json.{gone.pid}-0000.partial").touch()
    alive = tmp_path / f".a[1].json.{os.getppid()}-0000.partial"
    alive.touch()

    write_file(tmp_path / "a[1].json", "x")

    assert names(tmp_path) == [alive.name, "a[1].json"]


def test_a_full_disk_is_one_clear_line(tmp_path: Path):
    with (
        pytest.raises(DoesNotFitError, match=r"is full: a\.bin was not written") as failure,
        replace_file(tmp_path / "a.bin"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")

    assert "\n" not in str(failure.value)
    assert names(tmp_path) == []


def test_free_space_is_asked_of_the_nearest_existing_folder(tmp_path: Path):
    check_free(tmp_path / "not" / "yet", 1, "a model")

    with pytest.raises(DoesNotFitError, match=r"a model needs 1000000000\.0 GB of disk"):
        check_free(tmp_path / "not" / "yet", 10**18, "a model")


def test_one_variable_moves_every_folder(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("LONGCTX_HOME", str(tmp_path))

    assert paths.models_dir() == tmp_path / "cache" / "models"
    assert paths.data_dir() == tmp_path / "data"
    assert paths.config_dir() == tmp_path / "config"
    assert names(tmp_path) == []  # asking creates nothing


def test_without_the_variable_the_system_decides(monkeypatch):
    monkeypatch.delenv("LONGCTX_HOME", raising=False)

    assert paths.cache_dir().name == "longctx"
    assert paths.cache_dir() != paths.data_dir()


def test_a_folder_that_cannot_be_made_says_what_to_set(tmp_path: Path):
    (tmp_path / "file").touch()

    with pytest.raises(LongctxError, match="set LONGCTX_HOME"):
        paths.ensure(tmp_path / "file" / "inner")
