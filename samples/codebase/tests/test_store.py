import sqlite3
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from conftest import ROOT, WREN

from tidemark.clock import Interval
from tidemark.errors import (
    ConfigError,
    IllegalTransition,
    InvoiceLocked,
    MigrationDrift,
    NotFound,
    StaleVersion,
    StoreBusy,
)
from tidemark.migrate import discover, migrate, pending
from tidemark.model import Priority, Reservation, State
from tidemark.store import Invoice, Store

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def reservation(identifier: str = "R-1", **changes) -> Reservation:
    made = Reservation(
        id=identifier,
        vessel_id="wren",
        berth_code="A1",
        stay=Interval(NOON, NOON + timedelta(days=2)),
        state=State.HELD,
        priority=Priority.VISITOR,
        version=1,
        created_at=NOON,
        held_until=NOON + timedelta(minutes=25),
        price_pence=6800,
        notes="black hull, dog aboard",
    )
    return replace(made, **changes)


def test_a_reservation_comes_back_as_it_went_in(store):
    store.insert_reservation(reservation())
    assert store.reservation("R-1") == reservation()
    assert store.vessel("wren") == WREN


def test_missing_things_are_not_found(store):
    with pytest.raises(NotFound):
        store.reservation("R-404")
    with pytest.raises(NotFound):
        store.berth("Z9")


def test_a_transition_bumps_the_version_and_clears_the_hold(store):
    store.insert_reservation(reservation())
    confirmed = store.transition(reservation(), State.CONFIRMED)
    assert (confirmed.version, confirmed.state, confirmed.held_until) == (2, State.CONFIRMED, None)


def test_the_second_of_two_editors_loses(store):
    store.insert_reservation(reservation())
    store.transition(reservation(), State.CONFIRMED)
    with pytest.raises(StaleVersion) as caught:
        store.transition(reservation(), State.CANCELLED)
    assert caught.value.detail == {"read": 1, "now": 2}


def test_impossible_moves_are_refused_before_the_database(store):
    with pytest.raises(IllegalTransition):
        store.transition(reservation(state=State.DEPARTED), State.HELD)


def test_pages(store):
    for number in range(5):
        store.insert_reservation(reservation(f"R-{number}"))
    first = store.reservations(limit=3)
    assert [r.id for r in first] == ["R-0", "R-1", "R-2"]
    assert [r.id for r in store.reservations(after="R-2", limit=3)] == ["R-3", "R-4"]


def test_occupying_is_half_open(store):
    store.insert_reservation(reservation())
    end = NOON + timedelta(days=2)
    assert store.occupying(Interval(end, end + timedelta(hours=1))) == []
    assert len(store.occupying(Interval(end - timedelta(seconds=1), end))) == 1


def test_lapsed_holds(store):
    store.insert_reservation(reservation())
    assert store.lapsed_holds(NOON + timedelta(minutes=24)) == []
    assert len(store.lapsed_holds(NOON + timedelta(minutes=25))) == 1


def test_a_failed_transaction_leaves_nothing(store):
    with pytest.raises(RuntimeError), store.transaction():
        store.insert_reservation(reservation())
        raise RuntimeError("the lights went out")
    with pytest.raises(NotFound):
        store.reservation("R-1")


def test_an_exported_invoice_is_final(store):
    store.insert_reservation(reservation())
    draft = Invoice("TM-2026-00001", "R-1", [], 1000, 200, NOON)
    store.put_invoice(draft)
    store.put_invoice(replace(draft, net_pence=900, vat_pence=180))
    assert store.invoice("R-1").gross_pence == 1080
    assert store.next_invoice_number(2026) == "TM-2026-00002"
    store.mark_exported("R-1", NOON)
    with pytest.raises(InvoiceLocked):
        store.put_invoice(draft)


def test_a_busy_database_says_so(tmp_path):
    path = tmp_path / "shared.db"
    first, second = Store(path), Store(path, busy_timeout_ms=20)
    first.migrate(ROOT / "migrations")
    with first.transaction(), pytest.raises(StoreBusy), second.transaction():
        pass
    first.close()
    second.close()


# --- migrations -----------------------------------------------------------------------------


def columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}


def test_old_rows_survive_every_migration(tmp_path):
    first = tmp_path / "first"
    first.mkdir()
    initial = ROOT / "migrations" / "0001_initial.sql"
    (first / initial.name).write_text(initial.read_text())
    connection = sqlite3.connect(":memory:")
    migrate(connection, first)
    connection.execute("INSERT INTO berths (code, length_m, max_beam_m, charted_depth_m)"
                       " VALUES ('A1', 12, 4, 2)")
    connection.execute("INSERT INTO boats VALUES ('wren', 'Wren', 26, 2.7, 1.1, 1, '01632 960101')")
    connection.execute(
        "INSERT INTO reservations (id, boat_id, berth_code, arrives_at, departs_at, state,"
        " created_at) VALUES ('R-1', 'wren', 'A1', '2020-05-01T12:00:00Z',"
        " '2020-05-03T12:00:00Z', 'departed', '2020-04-01T09:00:00Z')"
    )
    names = migrate(connection, ROOT / "migrations")
    assert names[0] == "0002_vessels.sql"
    assert "boat_id" not in columns(connection, "reservations")
    vessel = connection.execute("SELECT loa_m, contact_e164 FROM vessels").fetchone()
    assert vessel == (7.92, "+441632960101")
    row = connection.execute("SELECT arrives_at, typeof(arrives_at) FROM reservations").fetchone()
    assert row == (1588334400, "integer")
    assert migrate(connection, ROOT / "migrations") == []


def test_editing_an_applied_migration_is_noticed(tmp_path):
    (tmp_path / "0001_a.sql").write_text("CREATE TABLE a (x);\n")
    connection = sqlite3.connect(":memory:")
    migrate(connection, tmp_path)
    (tmp_path / "0001_a.sql").write_text("-- a better comment\nCREATE TABLE a (x);\n")
    assert pending(connection, discover(tmp_path)) == []
    (tmp_path / "0001_a.sql").write_text("CREATE TABLE a (x, y);\n")
    with pytest.raises(MigrationDrift):
        pending(connection, discover(tmp_path))


def test_a_newer_database_is_refused(tmp_path):
    (tmp_path / "0001_a.sql").write_text("CREATE TABLE a (x);\n")
    (tmp_path / "0002_b.sql").write_text("CREATE TABLE b (x);\n")
    connection = sqlite3.connect(":memory:")
    migrate(connection, tmp_path)
    (tmp_path / "0002_b.sql").unlink()
    with pytest.raises(MigrationDrift):
        pending(connection, discover(tmp_path))


def test_a_failing_migration_changes_nothing(tmp_path):
    (tmp_path / "0001_a.sql").write_text("CREATE TABLE a (x);\nCREATE TABLE a (x);\n")
    connection = sqlite3.connect(":memory:")
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, tmp_path)
    assert columns(connection, "a") == set()


@pytest.mark.parametrize("name", ["1_short.sql", "0002_gap.sql"])
def test_names_and_numbers_are_checked(tmp_path: Path, name: str):
    (tmp_path / name).write_text("SELECT 1;\n")
    with pytest.raises(ConfigError):
        discover(tmp_path)
