"""From what a user calls a model to the files it is made of.

A name of the registry, a folder, a `.gguf` file and a Hugging Face id all resolve to the same
thing: a place on this disk, fetched first if need be. It loads nothing.
"""

from __future__ import annotations

import difflib
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from longctx import paths
from longctx.errors import ModelError, UnknownModelError
from longctx.models import fetch
from longctx.models.fetch_hub import hub_cached
from longctx.models.folder import check_folder
from longctx.models.record import RECORD_FILE, read_record
from longctx.models.sources import (
    DEFAULT_MODEL,
    ENTRIES,
    ModelEntry,
    Progress,
    entry_named,
    silent,
)

if TYPE_CHECKING:
    from longctx.models.tokenizer import TextTokenizer

# org/name or org/name:file.gguf, and nothing that is plainly a path.
_HUB_ID = re.compile(r"(\w[\w.-]*/(?![\w.-]*\.gguf$)[\w.-]+)(?::([\w./-]+\.gguf))?")
_FORMS = "a folder, a .gguf file or a Hugging Face id (org/name) works too"


@dataclass(frozen=True)
class ResolvedModel:
    """A model on this disk. `path` is a GGUF file or a folder of safetensors, as `kind` says.

    `sha256` is that of a file whose checksum was verified; `note` is what to know before use.
    """

    name: str
    kind: Literal["gguf", "directory"]
    path: Path
    sha256: str | None = None
    note: str = ""

    def tokenizer(self) -> TextTokenizer:
        """Read the tokenizer that belongs to the model."""
        from longctx.models.tokenizer import TextTokenizer

        if self.kind == "gguf":
            return TextTokenizer.from_gguf(self.path)
        return TextTokenizer.from_directory(self.path)


@dataclass(frozen=True)
class ModelInfo:
    """One line of the list of models; sizes in bytes, `path` None until it is fetched."""

    name: str
    title: str
    licence: str
    size: int
    path: Path | None
    sources: tuple[str, ...]
    sha256: str | None = None
    note: str = ""

    @property
    def default(self) -> bool:
        """Whether it is used when no model is named."""
        return self.name == DEFAULT_MODEL


def resolve(
    name: str | Path = DEFAULT_MODEL, progress: Progress = silent, download: bool = True
) -> ResolvedModel:
    """Find a model, fetching it unless `download` is false.

    A name of the registry comes before a path of the same name; `./name` means the path. Raises
    `ModelError` in one line for an unknown, incomplete or unavailable model.
    """
    text = str(name)
    if not text.strip():
        raise _unknown(text)
    if entry := entry_named(text):
        return _resolve_entry(entry, progress, download)
    path = Path(name).expanduser()
    if path.is_dir():
        return _resolve_folder(path)
    if path.is_file():
        return _resolve_file(path)
    if hub_id := _HUB_ID.fullmatch(text):
        return _resolve_hub(hub_id[1], hub_id[2], progress, download)
    if text.startswith((".", "/", "~")) or text.endswith(".gguf"):
        raise UnknownModelError(f"{text}: no such file or folder; check the path of the model")
    raise _unknown(text)


def list_models() -> list[ModelInfo]:
    """The models of the registry, then those fetched from the hub by their id."""
    models = paths.models_dir()
    infos = [_entry_info(entry, models) for entry in ENTRIES]
    for folder in sorted((models / fetch.HUB).glob("*")):
        record = read_record(folder)
        if record is not None:
            infos.append(
                ModelInfo(
                    name=record.name,
                    title=record.name,
                    licence="",
                    size=record.size,
                    path=_model_path(folder),
                    sources=(record.source,),
                    sha256=record.sha256,
                )
            )
    return infos


def show(name: str) -> ModelInfo:
    """What is known of one model of `list_models`; `ModelError` with near names for another."""
    for info in list_models():
        if info.name.lower() == name.lower():
            return info
    raise _unknown(name)


def remove(name: str) -> int:
    """Delete a fetched model, what was converted from it and half-fetched parts.

    Returns the bytes freed. Raises `ModelError` when nothing of it is there or it is in use.
    """
    models = paths.models_dir()
    folder = _folder_of(name, models)
    key = folder.relative_to(models).as_posix().replace("/", "--")
    partial = models / fetch.PARTIAL / key
    if not folder.exists() and not partial.exists():
        raise ModelError(f"{name} is not fetched: there is nothing to remove")
    with fetch.model_lock(models, key, None):
        freed = 0
        for file in folder.glob("*.gguf"):
            freed += _remove_converted(file)
        for place in (folder, partial):
            freed += sum(f.lstat().st_size for f in place.rglob("*") if not f.is_dir())
            shutil.rmtree(place, ignore_errors=True)
    return freed


def _remove_converted(file: Path) -> int:
    if not (paths.cache_dir() / "converted").exists():
        return 0
    from longctx.models.weights.convert import remove_converted

    return remove_converted(file, paths.cache_dir())


def _folder_of(name: str, models: Path) -> Path:
    if entry := entry_named(name):
        return fetch.entry_folder(models, entry)
    hub_id = _HUB_ID.fullmatch(name)
    if hub_id is None:
        raise _unknown(name)
    return fetch.hub_folder(models, hub_id[1], hub_id[2])


def _resolve_entry(entry: ModelEntry, progress: Progress, download: bool) -> ResolvedModel:
    models = paths.models_dir()
    folder = fetch.entry_folder(models, entry)
    record = read_record(folder)
    # A record of another checksum is of an older table.
    if record is None or record.sha256 != entry.sha256 or not fetch.fetched(folder):
        if not download:
            raise ModelError(_absent(entry.name, record is not None))
        if record is not None:
            progress(f"{entry.name} on disk is damaged; fetching it again", 0, entry.size)
            (folder / RECORD_FILE).unlink(missing_ok=True)
        fetch.fetch_entry(entry, models, progress)
    return ResolvedModel(entry.name, "gguf", folder / entry.file, entry.sha256, entry.note)


def _resolve_hub(repo: str, file: str | None, progress: Progress, download: bool) -> ResolvedModel:
    models = paths.models_dir()
    name = f"{repo}:{file}" if file else repo
    folder = fetch.hub_folder(models, repo, file)
    if not fetch.fetched(folder):
        if cached := _resolve_hub_cache(name, repo, file):
            return cached
        if not download:
            raise ModelError(_absent(name, folder.exists()))
        fetch.fetch_hub_model(repo, file, models, progress)
    found = _resolve_file(_model_path(folder)) if file else _resolve_folder(folder)
    return ResolvedModel(name, found.kind, found.path)


def _resolve_hub_cache(name: str, repo: str, file: str | None) -> ResolvedModel | None:
    """A whole model that another program left in Hugging Face's cache."""
    path = hub_cached(repo, file)
    if path is None:
        return None
    try:
        found = _resolve_file(path) if file else _resolve_folder(path)
    except ModelError:
        return None  # half of one: fetch our own
    return ResolvedModel(name, found.kind, found.path)


def _model_path(folder: Path) -> Path:
    """The GGUF file of a fetched folder, or the folder itself."""
    return next(folder.glob("*.gguf"), folder)


def _resolve_folder(folder: Path) -> ResolvedModel:
    files = sorted(folder.glob("*.gguf"))
    if not (folder / "config.json").is_file() and files:
        if len(files) > 1:
            names = ", ".join(file.name for file in files[:5])
            raise ModelError(f"{folder}: holds several GGUF files ({names}); name one of them")
        return _resolve_file(files[0])
    check_folder(folder)
    return ResolvedModel(folder.resolve().name, "directory", folder.resolve())


def _resolve_file(file: Path) -> ResolvedModel:
    if file.suffix == ".safetensors":
        raise ModelError(f"{file}: name the folder it is in, which has its settings and tokenizer")
    with file.open("rb") as data:
        if data.read(4) != b"GGUF":
            raise ModelError(f"{file}: not a GGUF file; a model is {_FORMS}")
    if re.search(r"-\d{5}-of-\d{5}$", file.stem):
        raise ModelError(f"{file}: a GGUF model in several files is not supported; merge them")
    return ResolvedModel(file.stem, "gguf", file.absolute())


def _entry_info(entry: ModelEntry, models: Path) -> ModelInfo:
    folder = fetch.entry_folder(models, entry)
    path = folder / entry.file if read_record(folder) else None
    return ModelInfo(
        name=entry.name,
        title=entry.title,
        licence=entry.licence,
        size=entry.size,
        path=path,
        sources=tuple(str(source) for source in entry.sources),
        sha256=entry.sha256,
        note=entry.note,
    )


def _absent(name: str, damaged: bool) -> str:
    state = "damaged" if damaged else "not fetched yet"
    return f"the model {name} is {state}; fetch it with `longctx models pull {name}`"


def _unknown(name: str) -> UnknownModelError:
    names = [info.name for info in list_models()]
    wanted = name.lower()
    near = [n for n in names if wanted and wanted in n.lower()]
    near += [n for n in difflib.get_close_matches(wanted, names, 3, 0.5) if n not in near]
    hint = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(names)};"
    return UnknownModelError(f"no model is named {name!r}: {hint} {_FORMS}")
