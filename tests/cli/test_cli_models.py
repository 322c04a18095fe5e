"""`longctx models`: tables and bars over the registry, which is replaced by a small one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

import longctx
from longctx.errors import ModelError
from longctx.models import registry
from longctx.models.registry import ModelInfo, ResolvedModel

INFO = ModelInfo(
    name="tiny-1m",
    title="Tiny, 1M",
    licence="Apache-2.0",
    size=98_362_432,
    path=None,
    sources=("Hugging Face",),
    note="for \x1b[5mtests",
)


@pytest.fixture(autouse=True)
def _small_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "list_models", lambda: [INFO])


def test_the_list_has_sizes_licences_and_safe_notes(run) -> None:
    result = run("models", "list")

    assert result.stdout == (
        "NAME     SIZE     LICENCE     FETCHED  NOTE\n"
        "tiny-1m  98.4 MB  Apache-2.0  no       for tests\n"
    )


def test_the_list_as_json(run) -> None:
    (model,) = json.loads(run("models", "list", "--json").stdout)

    assert model["name"] == "tiny-1m"
    assert model["size"] == 98_362_432
    assert model["path"] is None


def test_show_says_how_to_fetch(run) -> None:
    result = run("models", "show", "tiny-1m")

    assert "size     98.4 MB (98,362,432 bytes)" in result.stdout
    assert "not fetched; longctx models pull tiny-1m" in result.stdout
    assert json.loads(run("models", "show", "tiny-1m", "--json").stdout)["licence"] == "Apache-2.0"


def test_an_unknown_model_is_one_line(run) -> None:
    result = run("models", "show", "tony-1m")

    assert result.exit_code == 2
    assert result.stderr.startswith("longctx: no model is named 'tony-1m': did you mean tiny-1m?")


def test_pull_tells_where_the_model_is(run, monkeypatch) -> None:
    def resolve(name, progress):
        progress("fetching", 10, 100)
        return ResolvedModel(name, "gguf", Path("/models/x.gguf"), note="answers poorly")

    monkeypatch.setattr(registry, "resolve", resolve)

    result = run("models", "pull", "tiny-1m")

    assert result.stdout == "tiny-1m: /models/x.gguf\n"
    assert result.stderr == "answers poorly\n"


def test_pull_takes_the_default_model(run, monkeypatch) -> None:
    asked = []

    def resolve(name, progress):
        asked.append(name)
        raise ModelError("cannot fetch it: no network")

    monkeypatch.setattr(registry, "resolve", resolve)

    assert run("models", "pull").exit_code == 1
    assert asked == [registry.DEFAULT_MODEL]


def test_remove_tells_what_was_freed(run, monkeypatch) -> None:
    monkeypatch.setattr(registry, "remove", lambda name: 98_362_432)

    assert run("models", "remove", "tiny-1m").stdout == "removed tiny-1m: 98.4 MB freed\n"


@dataclass(frozen=True)
class _Calibration:
    table: list[dict]
    path: Path


def test_calibrate_prints_its_table(run, monkeypatch) -> None:
    asked = {}

    def calibrate(model, **options):
        asked.update(options, model=model)
        return _Calibration([{"layer": 7, "heads": (1, 4), "recall": 0.97531}], Path("p.json"))

    monkeypatch.setitem(longctx.__dict__, "calibrate", calibrate)

    result = run("models", "calibrate", "m", "--questions", "a.json", "--quick", "--out", "p.json")

    assert result.stdout == "layer  heads  recall\n7      1,4    0.975\n"
    assert result.stderr == "profile written to p.json\n"
    del asked["on_progress"]
    assert asked == {
        "model": "m",
        "questions": [Path("a.json")],
        "quick": True,
        "out": Path("p.json"),
    }
