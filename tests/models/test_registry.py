"""What a user calls a model leads to its files, or to a line that says what to do."""

from __future__ import annotations

import hashlib
import json
import os
import struct
from pathlib import Path

import pytest

from longctx import paths
from longctx.errors import EXIT_USAGE, ModelError, UnknownModelError
from longctx.models import fetch, registry, sources
from longctx.models.record import RECORD_FILE, write_record
from longctx.models.registry import list_models, remove, resolve, show
from longctx.models.sources import ENTRIES, ModelEntry, PackageParts

CONTENT = b"GGUF tide tables"
ENTRY = ModelEntry(
    name="tide-1b",
    title="Tide 1B",
    licence="MIT",
    file="tide.gguf",
    size=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    sources=(PackageParts((("tide==1.0", ".gguf"),)),),
    note="for tests",
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch) -> Path:
    """An empty home with one known model, which fetching writes at once."""
    monkeypatch.setenv("LONGCTX_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sources, "ENTRIES", (ENTRY,))
    monkeypatch.setattr(registry, "ENTRIES", (ENTRY,))
    monkeypatch.setattr(fetch.fetch_hub, "hub_reachable", lambda: False)
    monkeypatch.setattr(registry, "hub_cached", lambda repo, file: None)

    def fetch_parts(entry, source, folder: Path, progress, pip) -> Path:
        progress("fetching", 0, entry.size)
        (folder / entry.file).write_bytes(CONTENT)
        return folder / entry.file

    monkeypatch.setattr(fetch, "fetch_parts", fetch_parts)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


def write_model(folder: Path, weights: int = 8) -> Path:
    """The least folder that is a model: settings, tokenizer, one tensor of `weights` bytes."""
    folder.mkdir(parents=True)
    tensor = {"dtype": "U8", "shape": [weights], "data_offsets": [0, weights]}
    header = json.dumps({"tensor": tensor}).encode()
    (folder / "config.json").write_text("{}", encoding="utf-8")
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    content = struct.pack("<Q", len(header)) + header + bytes(weights)
    (folder / "model.safetensors").write_bytes(content)
    return folder


def test_a_known_name_is_fetched_once():
    stages: list[str] = []

    first = resolve("tide-1b", lambda stage, *_: stages.append(stage))
    again = resolve("Tide-1B", lambda *_: pytest.fail("fetched again"))

    assert first == again
    assert (first.kind, first.path.read_bytes()) == ("gguf", CONTENT)
    assert (first.sha256, first.note) == (ENTRY.sha256, "for tests")
    assert "fetching" in stages


def test_nothing_is_fetched_when_that_is_not_wanted():
    with pytest.raises(ModelError, match="not fetched yet; fetch it with `longctx models pull"):
        resolve("tide-1b", download=False)


@pytest.mark.parametrize("damage", [b"GGUF tide", b"GGUF TIDE TABLES"], ids=["cut", "changed"])
def test_a_damaged_model_is_noticed_and_fetched_again(damage: bytes):
    path = resolve("tide-1b").path
    path.write_bytes(damage)
    os.utime(path, ns=(1, 1))
    stages: list[str] = []

    with pytest.raises(ModelError, match="damaged"):
        resolve("tide-1b", download=False)
    model = resolve("tide-1b", lambda stage, *_: stages.append(stage))

    assert model.path.read_bytes() == CONTENT
    assert stages[0] == "tide-1b on disk is damaged; fetching it again"


def test_a_model_that_was_only_touched_is_verified_and_kept(monkeypatch):
    path = resolve("tide-1b").path
    os.utime(path, ns=(1, 1))

    resolve("tide-1b", download=False)

    monkeypatch.setattr("longctx.models.record.file_sha256", lambda *_: pytest.fail("hashed again"))
    resolve("tide-1b", download=False)


def test_a_model_of_an_older_table_is_fetched_again():
    folder = resolve("tide-1b").path.parent
    (folder / "tide.gguf").write_bytes(b"GGUF old")
    write_record(folder, "tide-1b", "x", "0" * 64, [folder / "tide.gguf"])

    assert resolve("tide-1b").path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("tide-1", "did you mean tide-1b?"),
        ("tied-1b", "did you mean tide-1b?"),
        ("tide", "did you mean tide-1b?"),
        ("completely else", "known are tide-1b"),
        ("", "known are"),
    ],
)
def test_a_mistyped_name_gets_a_hint(name: str, hint: str):
    with pytest.raises(UnknownModelError) as failure:
        resolve(name)

    assert failure.value.exit_code == EXIT_USAGE
    assert hint in str(failure.value)
    assert "org/name" in str(failure.value)
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize("name", ["./nothing", "nothing.gguf", "a/nothing.gguf", "~/no-such-file"])
def test_a_missing_path_is_called_so(name: str):
    with pytest.raises(UnknownModelError, match="no such file or folder"):
        resolve(name)


@pytest.mark.parametrize("name", ["org/name", "org/name:file.gguf"])
def test_a_hub_id_without_the_hub_is_one_line(name: str):
    with pytest.raises(ModelError, match=f"{name}: no folder or file of that name here, and"):
        resolve(name)


def test_a_folder_of_safetensors(tmp_path: Path):
    folder = write_model(tmp_path / "mine")

    model = resolve(folder)

    assert (model.name, model.kind, model.path) == ("mine", "directory", folder)


def test_a_folder_cut_short_is_refused_with_what_is_missing(tmp_path: Path):
    folder = write_model(tmp_path / "mine")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-3])
    index = {"weight_map": {"a": "part-1.safetensors", "b": "part-2.safetensors"}}

    with pytest.raises(ModelError, match="fetch it again"):
        resolve(folder)
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(ModelError, match=r"part-1\.safetensors: missing"):
        resolve(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"no tokenizer\.json"):
        resolve(folder)


def test_a_folder_of_other_weights_says_so(tmp_path: Path):
    folder = write_model(tmp_path / "mine")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")

    with pytest.raises(ModelError, match="not safetensors"):
        resolve(folder)


def test_a_gguf_file_or_the_folder_it_is_alone_in(tmp_path: Path):
    folder = tmp_path / "ggufs"
    folder.mkdir()
    file = folder / "a.gguf"
    file.write_bytes(CONTENT)

    assert resolve(file).path == resolve(folder).path == file
    assert resolve("ggufs/a.gguf").name == "a"
    (folder / "b.gguf").write_bytes(CONTENT)
    with pytest.raises(ModelError, match=r"several GGUF files \(a\.gguf, b\.gguf\)"):
        resolve(folder)


def test_a_file_that_is_no_model_is_refused(tmp_path: Path):
    (tmp_path / "a.gguf").write_bytes(b"PK not")
    (tmp_path / "b-00001-of-00002.gguf").write_bytes(CONTENT)
    (tmp_path / "c.safetensors").write_bytes(b"")

    for name, message in [
        ("a.gguf", "not a GGUF file"),
        ("b-00001-of-00002.gguf", "several files"),
        ("c.safetensors", "name the folder"),
    ]:
        with pytest.raises(ModelError, match=message):
            resolve(name)


def test_a_known_name_comes_before_a_folder_of_that_name(tmp_path: Path):
    write_model(tmp_path / "tide-1b")

    assert resolve("tide-1b").kind == "gguf"
    assert resolve("./tide-1b").kind == "directory"


def test_a_model_in_the_hub_cache_is_used_in_place(tmp_path: Path, monkeypatch):
    folder = write_model(tmp_path / "snapshots" / "0abc")
    monkeypatch.setattr(registry, "hub_cached", lambda repo, file: folder)

    model = resolve("org/name")

    assert (model.name, model.path) == ("org/name", folder)


def test_the_list_shows_what_is_here():
    assert [(info.name, info.path) for info in list_models()] == [("tide-1b", None)]

    path = resolve("tide-1b").path
    hub = fetch.hub_folder(paths.models_dir(), "org/name", None)
    write_model(hub)
    write_record(hub, "org/name", "Hugging Face", None, [hub / "model.safetensors"])

    names = {info.name: info for info in list_models()}
    assert names["tide-1b"].path == path
    assert names["org/name"].path == hub
    assert show("ORG/name").size == (hub / "model.safetensors").stat().st_size
    with pytest.raises(ModelError, match="did you mean tide-1b"):
        show("tide")


def test_removing_frees_what_was_fetched_and_half_fetched(home: Path):
    folder = resolve("tide-1b").path.parent
    record_size = (folder / RECORD_FILE).stat().st_size
    half = home / "cache" / "models" / ".partial" / "tide-1b"
    half.mkdir()
    (half / "tide.gguf").write_bytes(b"GGUF")

    assert remove("tide-1b") == len(CONTENT) + record_size + 4

    assert not folder.exists()
    assert not half.exists()
    with pytest.raises(ModelError, match="nothing to remove"):
        remove("tide-1b")
    with pytest.raises(ModelError, match="did you mean"):
        remove("tide")


def test_the_table_is_consistent():
    assert sources.DEFAULT_MODEL in [entry.name for entry in ENTRIES]
    for entry in ENTRIES:
        assert len(entry.sha256) == 64
        for source in entry.sources:
            if isinstance(source, PackageParts):
                assert all("==" in requirement for requirement, _ in source.parts)
