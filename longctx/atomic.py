"""Files and folders that appear whole or not at all.

Everything is written under a temporary name beside its place, forced to disk, then renamed. An
interruption leaves nothing; what a crash left is swept by the next write of the same name.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from longctx.errors import DoesNotFitError

_SUFFIX = ".partial"
_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def replace_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file to write that takes the place of `path` when the block ends without an error.

    Raises `DoesNotFitError` when the disk is full. The folder must exist.
    """
    temporary = _temporary(path)
    try:
        with disk_full_message(path):
            with temporary.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_file(path: Path, content: bytes | str) -> None:
    """Write a whole file (text as UTF-8) with `replace_file`."""
    with replace_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def replace_folder(path: Path) -> Iterator[Path]:
    """Yield an empty folder that takes the place of `path` when the block ends without an error.

    Raises `DoesNotFitError` when the disk is full. The parent folder must exist.
    """
    temporary = _temporary(path)
    try:
        with disk_full_message(path):
            temporary.mkdir()
            yield temporary
            for inner in sorted(temporary.rglob("*"), reverse=True):
                _sync(inner)
            _sync(temporary)
            _swap(temporary, path)
            _sync(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def disk_full_message(path: Path) -> Iterator[None]:
    """Turn "no space left" in the block into one line that names the place."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise DoesNotFitError(
            f"the disk of {path.parent} is full: {path.name} was not written; "
            "free some space and run the same command again"
        ) from None


def check_free(folder: Path, needed_bytes: int, what: str) -> None:
    """Raise `DoesNotFitError` unless the disk of `folder` has `needed_bytes` left for `what`.

    `folder` need not exist yet; its nearest existing parent is asked.
    """
    place = folder.absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    free = shutil.disk_usage(place).free
    if free < needed_bytes:
        raise DoesNotFitError(
            f"{what} needs {_gigabytes(needed_bytes)} of disk in {folder}, where "
            f"{_gigabytes(free)} is free; free some space or set LONGCTX_HOME to another disk"
        )


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


def _temporary(path: Path) -> Path:
    """A fresh name beside `path` carrying our process id; sweeps those of dead processes."""
    head = f".{path.name}."
    for left in path.parent.glob(f"{_escape(head)}*{_SUFFIX}"):
        owner = left.name[len(head) :].split("-")[0]
        if owner.isdigit() and not _alive(int(owner)):
            _discard(left)
    return path.with_name(f"{head}{os.getpid()}-{secrets.token_hex(4)}{_SUFFIX}")


def _escape(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def _alive(pid: int) -> bool:
    if os.name == "nt":
        return True  # signal 0 is no probe there
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True  # somebody else's process, or not to be told
    return True


def _swap(new: Path, path: Path) -> None:
    """Rename folder `new` to `path`, moving away whatever stands there, also by another process."""
    for attempt in range(10):
        try:
            new.rename(path)
            return
        except OSError as error:
            if attempt == 9 or error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
        old = _temporary(path)
        with contextlib.suppress(FileNotFoundError):
            path.rename(old)
            _discard(old)


def _discard(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Force a file or a folder's entries to disk, where the system can."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return  # a folder cannot be opened on every system; the rename itself is still atomic
    try:
        with contextlib.suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)
