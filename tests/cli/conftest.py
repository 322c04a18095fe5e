"""Running the command line inside the test's process, with a context that needs no model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fake_context import FakeIndex
from typer.testing import CliRunner, Result

import longctx
from longctx.cli.commands import app

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LONGCTX_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LONGCTX_HOME", str(tmp_path / "home"))


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> FakeIndex:
    """What stands in for `longctx.index`; importing the real one would load torch."""
    fake = FakeIndex()
    monkeypatch.setitem(longctx.__dict__, "index", fake)
    return fake


@pytest.fixture
def run(index: FakeIndex) -> Run:
    """Run `longctx` with arguments; the result has stdout, stderr and exit_code."""

    def invoke(*arguments: str, input: str | bytes | None = None) -> Result:
        return CliRunner().invoke(app, list(arguments), input=input)

    return invoke
