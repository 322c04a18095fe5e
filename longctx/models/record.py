"""What is known of a fetched model: which files, how large, checked against which checksum.

The record is written after the checksum was verified, so that a start needs only sizes and
modification times to tell a whole model from a cut or changed one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from longctx.atomic import write_file
from longctx.errors import ModelError
from longctx.models.sources import Progress, silent

RECORD_FILE = ".longctx.json"
FORMAT_VERSION = 1
_CHUNK_BYTES = 4 * 1024**2


@dataclass(frozen=True)
class Record:
    """`files` maps a name inside the model's folder to its size and modification time (ns)."""

    name: str
    source: str
    sha256: str | None
    files: dict[str, tuple[int, int]]
    format: int = FORMAT_VERSION

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(size for size, _ in self.files.values())


def write_record(
    folder: Path, name: str, source: str, sha256: str | None, files: Sequence[Path]
) -> None:
    """Record that these files of `folder` are whole."""
    stats = {file.relative_to(folder).as_posix(): file.stat() for file in files}
    sizes = {name: (stat.st_size, stat.st_mtime_ns) for name, stat in stats.items()}
    record = Record(name, source, sha256, sizes)
    write_file(folder / RECORD_FILE, json.dumps(asdict(record), indent=1))


def read_record(folder: Path) -> Record | None:
    """The record of a folder; None where there is none of this format."""
    try:
        found = json.loads((folder / RECORD_FILE).read_text(encoding="utf-8"))
        files = {str(k): (int(size), int(time)) for k, (size, time) in found.pop("files").items()}
        record = Record(**found, files=files)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return record if record.format == FORMAT_VERSION else None


def is_whole(folder: Path, record: Record) -> bool:
    """Whether every recorded file has its size and is unchanged since it was verified.

    A single file with a known checksum that was merely copied or touched is verified again.
    """
    touched = False
    for name, (size, mtime_ns) in record.files.items():
        try:
            stat = (folder / name).stat()
        except OSError:
            return False
        if stat.st_size != size:
            return False
        touched |= stat.st_mtime_ns != mtime_ns
    if not touched:
        return True
    files = [folder / name for name in record.files]
    if record.sha256 is None or len(files) != 1 or file_sha256(files[0]) != record.sha256:
        return False
    write_record(folder, record.name, record.source, record.sha256, files)
    return True


def verify(file: Path, size: int, sha256: str, source: str, progress: Progress = silent) -> None:
    """Compare a file with its size and checksum; a wrong one is deleted, with `ModelError`."""
    found_size = file.stat().st_size
    if found_size != size:
        file.unlink()
        raise ModelError(
            f"{file.name} from {source} has {found_size:,} bytes instead of {size:,}: deleted"
        )
    found = file_sha256(file, progress)
    if found != sha256:
        file.unlink()
        raise ModelError(
            f"{file.name} from {source} has the wrong checksum "
            f"({found[:12]}… instead of {sha256[:12]}…): deleted"
        )


def file_sha256(file: Path, progress: Progress = silent) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    digest, done, total = hashlib.sha256(), 0, file.stat().st_size
    with file.open("rb") as data:
        while chunk := data.read(_CHUNK_BYTES):
            digest.update(chunk)
            done += len(chunk)
            progress(f"checking {file.name}", done, total)
    return digest.hexdigest()
