"""`longctx doctor`: what it finds, and that a machine without an essential part fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from longctx.cli import checkup
from longctx.cli.checkup import Finding
from longctx.cli.machine import memory


def _finds(monkeypatch: pytest.MonkeyPatch, *findings: Finding) -> None:
    monkeypatch.setattr(checkup, "checkup", lambda: iter(findings))


def test_a_healthy_machine_is_told_line_by_line(run, monkeypatch) -> None:
    _finds(
        monkeypatch, Finding("device", "ok", "CPU"), Finding("kernels", "note", "none", "get it")
    )

    result = run("doctor")

    assert result.stdout == "ok      device     CPU\nnote    kernels    none  -> get it\n"
    assert result.exit_code == 0


def test_a_missing_essential_fails(run, monkeypatch) -> None:
    _finds(monkeypatch, Finding("packages", "missing", "not installed: torch", "pip install torch"))

    assert run("doctor").exit_code == 1
    assert json.loads(run("doctor", "--json").stdout) == {
        "ok": False,
        "findings": [
            {
                "name": "packages",
                "status": "missing",
                "value": "not installed: torch",
                "advice": "pip install torch",
            }
        ],
    }


def test_a_package_that_is_not_there_is_named_with_its_cure(monkeypatch) -> None:
    monkeypatch.setattr(checkup, "_present", lambda module: module not in ("torch", "gguf"))

    found = {finding.name: finding for finding in checkup.checkup()}

    assert found["packages"].status == "missing"
    assert found["packages"].value == "not installed: torch, gguf"
    assert found["packages"].advice.endswith("-m pip install torch gguf")
    assert "device" not in found


def test_a_cache_that_cannot_be_written_is_missing(monkeypatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("LONGCTX_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(checkup, "_present", lambda module: module != "torch")

    found = {finding.name: finding for finding in checkup.checkup()}

    assert found["cache"].status == "missing"
    assert "LONGCTX_HOME" in found["cache"].advice


def test_memory_is_what_the_machine_and_the_container_leave(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  16000 kB\nMemFree: 1 kB\nMemAvailable:  8000 kB\n")
    (tmp_path / "memory.max").write_text("4096000\n")
    (tmp_path / "memory.current").write_text("1000\n")

    assert memory(meminfo, tmp_path / "none").total == 16_384_000
    assert memory(meminfo, tmp_path / "none").free == 8_192_000
    assert memory(meminfo, tmp_path).total == 4_096_000
    assert memory(meminfo, tmp_path).free == 4_095_000


def test_a_container_without_a_limit_has_the_machines_memory(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 500 kB\n")
    (tmp_path / "memory.max").write_text("max\n")

    assert memory(tmp_path / "meminfo", tmp_path).total == 1_024_000
