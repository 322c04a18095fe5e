import io
import json
import logging
import shutil

import pytest
from conftest import ROOT

from tidemark import log
from tidemark.cli import main
from tidemark.config import load
from tidemark.errors import ConfigError
from tidemark.store import BUSY_TIMEOUT_MS


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A copy of the configuration with its own database and no gauge."""
    shutil.copytree(ROOT / "config", tmp_path / "config")
    shutil.copytree(ROOT / "migrations", tmp_path / "migrations")
    monkeypatch.setenv("TIDEMARK__GAUGE__ENABLED", "no")
    monkeypatch.setenv("TIDEMARK_FREEZE_CLOCK", "2026-05-01T12:00:00Z")
    return tmp_path


def run(root, *arguments: str) -> int:
    return main(["--root", str(root), *arguments])


def test_a_booking_from_an_empty_directory(root, capsys):
    assert run(root, "hold", "--vessel", "wren", "--arrives", "2026-05-02T09:00Z",
               "--departs", "2026-05-03T09:00Z") == 3
    assert run(root, "migrate") == 0
    assert run(root, "berth", "add", "A1", "--length", "40ft", "--beam", "4.2", "--depth", "2") == 0
    assert run(root, "vessel", "wren", "--name", "Wren", "--loa", "26ft", "--beam", "2.7",
               "--draught", "1.1") == 0
    capsys.readouterr()
    assert main(["--root", str(root), "--json", "hold", "--vessel", "wren", "--arrives",
                 "2026-05-02T09:00Z", "--departs", "2026-05-03T09:00Z"]) == 0
    held = json.loads(capsys.readouterr().out)
    assert held["berth"] == "A1"
    assert run(root, "confirm", held["id"]) == 0
    assert run(root, "cancel", held["id"]) == 0
    assert "owed: £" in capsys.readouterr().out


def test_tables_in_every_format(root, capsys):
    for style, first in (("text", "Kelwick Bar"), ("csv", "station,"), ("ical", "BEGIN:VCAL")):
        assert run(root, "table", "kelwick-bar", "--days", "2", "--format", style) == 0
        assert capsys.readouterr().out.startswith(first)


def test_a_terminal_gets_a_month_at_most(root, capsys):
    assert run(root, "table", "saltmere", "--days", "32") == 1
    assert "TM2002" in capsys.readouterr().err


def test_config_shows_where_things_came_from(root, capsys, monkeypatch):
    monkeypatch.setenv("TIDEMARK_SIGNING_KEY", "hush")
    assert run(root, "config") == 0
    shown = capsys.readouterr().out
    assert "berths.hold_minutes = 30" in shown
    assert "hush" not in shown
    assert "default.toml" in shown


def test_the_last_word_wins():
    environ = {"TIDEMARK__BERTHS__HOLD_MINUTES": "40", "TIDEMARK_DB": "x.db"}
    settings = load(ROOT, environ, {"http": {"port": 9000}})
    assert settings.berths.hold_minutes == 40
    assert settings.store.path == "x.db"
    assert settings.http.port == 9000
    assert settings.store.busy_timeout_ms == BUSY_TIMEOUT_MS
    assert settings.retry.max_attempts == 5


def test_production_needs_its_secrets():
    environ = {"TIDEMARK_CONFIG": "config/production.toml"}
    with pytest.raises(ConfigError, match="tokens"):
        load(ROOT, environ)
    environ["TIDEMARK__HTTP__TOKENS"] = "one, two"
    with pytest.raises(ConfigError, match="signed"):
        load(ROOT, environ)
    environ["TIDEMARK_SIGNING_KEY"] = "k"
    settings = load(ROOT, environ)
    assert settings.http.tokens == ("one", "two")
    assert settings.retry.max_attempts == 3


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("TIDEMARK__RETRY__MAX_ATEMPTS", "9", "did you mean max_attempts"),
        ("TIDEMARK__BERTH__HOLD_MINUTES", "9", "did you mean berths"),
        ("TIDEMARK__HTTP__PORT", "eighty", "should be a number"),
        ("TIDEMARK__BERTHS__HOLD_MINUTES", "2", "below 5"),
        ("TIDEMARK__GAUGE__ENABLED", "perhaps", "true or false"),
    ],
)
def test_mistakes_are_named(name, value, complaint):
    with pytest.raises(ConfigError, match=complaint):
        load(ROOT, {name: value})


def test_log_lines_are_json_and_discreet():
    stream = io.StringIO()
    log.configure("INFO", "json", stream)
    with log.correlation("abc"):
        logging.getLogger("tidemark.test").info(
            "calling +44 1632 960101", extra={"token": "sesame", "berth": "A1"}
        )
    line = json.loads(stream.getvalue())
    assert line["correlation"] == "abc"
    assert line["message"] == "calling +44…01"
    assert (line["token"], line["berth"]) == ("[hidden]", "A1")
