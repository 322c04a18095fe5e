"""The reservation store: one SQLite file, one writer at a time.

SQL stays in this module. Rows become the dataclasses of :mod:`tidemark.model` on the way out and
nothing else leaves. Writes check the row's ``version``, so two people editing one reservation
cannot silently overwrite each other.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tidemark import migrate as migrations
from tidemark.clock import Interval, from_epoch, to_epoch
from tidemark.errors import InvoiceLocked, NotFound, StaleVersion, StoreBusy
from tidemark.model import (
    OCCUPYING,
    Berth,
    BerthKind,
    Priority,
    Reservation,
    State,
    Vessel,
    check_transition,
)

#: How long SQLite itself waits for another writer before giving up.
BUSY_TIMEOUT_MS = 4500

#: Rows a listing returns when the caller does not say.
DEFAULT_PAGE = 50


@dataclass(frozen=True)
class Message:
    """A row of the outbox."""

    seq: int
    event: str
    subject: str
    payload: dict[str, Any]
    created_at: datetime
    failures: int


@dataclass(frozen=True)
class Invoice:
    number: str
    reservation_id: str
    lines: list[dict[str, Any]]
    net_pence: int
    vat_pence: int
    issued_at: datetime
    exported_at: datetime | None = None

    @property
    def gross_pence(self) -> int:
        return self.net_pence + self.vat_pence


class Store:
    """Safe to share between threads: a lock serialises them around the one connection."""

    def __init__(self, path: str | Path, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> None:
        if str(path) != ":memory:":
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.RLock()
        self._connection = sqlite3.connect(
            str(path), isolation_level=None, check_same_thread=False
        )
        self._connection.row_factory = sqlite3.Row
        self._connection.execute(f"PRAGMA busy_timeout = {int(busy_timeout_ms)}")
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute("PRAGMA foreign_keys = ON")

    def migrate(self, directory: Path) -> list[str]:
        with self._lock:
            return migrations.migrate(self._connection, directory)

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A write transaction. Nested use joins the outer one."""
        with self._lock:
            if self._connection.in_transaction:
                yield self._connection
                return
            try:
                self._connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as problem:
                if "locked" in str(problem) or "busy" in str(problem):
                    raise StoreBusy("the database is busy; try again shortly") from problem
                raise
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def _all(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        with self._lock:
            return self._connection.execute(sql, values).fetchall()

    def _one(self, what: str, sql: str, *values: Any) -> sqlite3.Row:
        rows = self._all(sql, *values)
        if not rows:
            raise NotFound(f"no {what} {values[0]!r}")
        return rows[0]

    # --- berths and vessels -------------------------------------------------------------------

    def put_berth(self, berth: Berth) -> None:
        with self.transaction() as connection:
            connection.execute(
                "INSERT INTO berths VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
                " ON CONFLICT (code) DO UPDATE SET length_m = excluded.length_m,"
                " max_beam_m = excluded.max_beam_m, charted_depth_m = excluded.charted_depth_m,"
                " kind = excluded.kind, sill_m = excluded.sill_m, exposed = excluded.exposed,"
                " power_amps = excluded.power_amps, tariff_class = excluded.tariff_class",
                (
                    berth.code,
                    berth.length_m,
                    berth.max_beam_m,
                    berth.charted_depth_m,
                    berth.kind.value,
                    berth.sill_m,
                    int(berth.exposed),
                    berth.power_amps,
                    berth.tariff_class,
                ),
            )

    def berths(self) -> list[Berth]:
        return [_berth(row) for row in self._all("SELECT * FROM berths ORDER BY code")]

    def berth(self, code: str) -> Berth:
        return _berth(self._one("berth", "SELECT * FROM berths WHERE code = ?", code))

    def put_vessel(self, vessel: Vessel) -> None:
        with self.transaction() as connection:
            connection.execute(
                "INSERT INTO vessels (id, name, loa_m, beam_m, draught_m, hulls, contact_e164)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)"
                " ON CONFLICT (id) DO UPDATE SET name = excluded.name, loa_m = excluded.loa_m,"
                " beam_m = excluded.beam_m, draught_m = excluded.draught_m,"
                " hulls = excluded.hulls, contact_e164 = excluded.contact_e164",
                (
                    vessel.id,
                    vessel.name,
                    vessel.loa_m,
                    vessel.beam_m,
                    vessel.draught_m,
                    vessel.hulls,
                    vessel.contact_e164,
                ),
            )

    def vessel(self, vessel_id: str) -> Vessel:
        row = self._one("vessel", "SELECT * FROM vessels WHERE id = ?", vessel_id)
        return Vessel(**{key: row[key] for key in row.keys()})

    # --- reservations -------------------------------------------------------------------------

    def insert_reservation(self, reservation: Reservation) -> None:
        with self.transaction() as connection:
            connection.execute(
                "INSERT INTO reservations (id, vessel_id, berth_code, arrives_at, departs_at,"
                " state, priority, version, held_until, price_pence, notes, created_at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    reservation.id,
                    reservation.vessel_id,
                    reservation.berth_code,
                    to_epoch(reservation.stay.start),
                    to_epoch(reservation.stay.end),
                    reservation.state.value,
                    int(reservation.priority),
                    reservation.version,
                    to_epoch(reservation.held_until) if reservation.held_until else None,
                    reservation.price_pence,
                    reservation.notes,
                    to_epoch(reservation.created_at),
                ),
            )

    def reservation(self, reservation_id: str) -> Reservation:
        sql = "SELECT * FROM reservations WHERE id = ?"
        return _reservation(self._one("reservation", sql, reservation_id))

    def reservations(self, after: str = "", limit: int = DEFAULT_PAGE) -> list[Reservation]:
        """A page in order of id, starting after ``after``."""
        rows = self._all(
            "SELECT * FROM reservations WHERE id > ? ORDER BY id LIMIT ?", after, limit
        )
        return [_reservation(row) for row in rows]

    def occupying(self, span: Interval) -> list[Reservation]:
        """Reservations that hold a berth at any moment of ``span``."""
        marks = ", ".join("?" for _ in OCCUPYING)
        rows = self._all(
            f"SELECT * FROM reservations WHERE state IN ({marks})"
            " AND arrives_at < ? AND departs_at > ? ORDER BY arrives_at, id",
            *sorted(OCCUPYING),
            to_epoch(span.end),
            to_epoch(span.start),
        )
        return [_reservation(row) for row in rows]

    def lapsed_holds(self, now: datetime) -> list[Reservation]:
        rows = self._all(
            "SELECT * FROM reservations WHERE state = 'held' AND held_until <= ? ORDER BY id",
            to_epoch(now),
        )
        return [_reservation(row) for row in rows]

    def transition(self, reservation: Reservation, after: State) -> Reservation:
        """Move ``reservation`` to ``after`` if nobody has touched it since it was read.

        Raises IllegalTransition for a move that makes no sense, StaleVersion for a lost race.
        """
        check_transition(reservation.state, after)
        with self.transaction() as connection:
            changed = connection.execute(
                "UPDATE reservations SET state = ?, version = version + 1, held_until = NULL"
                " WHERE id = ? AND version = ?",
                (after.value, reservation.id, reservation.version),
            ).rowcount
            if changed == 0:
                current = self.reservation(reservation.id)
                raise StaleVersion(
                    f"reservation {reservation.id} has changed",
                    read=reservation.version,
                    now=current.version,
                )
            return self.reservation(reservation.id)

    # --- outbox -------------------------------------------------------------------------------

    def enqueue(
        self, event: str, subject: str, payload: dict[str, Any], now: datetime, not_before: datetime
    ) -> int:
        with self.transaction() as connection:
            cursor = connection.execute(
                "INSERT INTO outbox (event, subject, payload, created_at, not_before)"
                " VALUES (?, ?, ?, ?, ?)",
                (event, subject, json.dumps(payload), to_epoch(now), to_epoch(not_before)),
            )
            return int(cursor.lastrowid or 0)

    def recently_enqueued(self, event: str, subject: str, since: datetime) -> bool:
        return bool(
            self._all(
                "SELECT 1 FROM outbox WHERE event = ? AND subject = ? AND created_at >= ? LIMIT 1",
                event,
                subject,
                to_epoch(since),
            )
        )

    def due_messages(self, now: datetime, limit: int = 20) -> list[Message]:
        rows = self._all(
            "SELECT * FROM outbox WHERE delivered_at IS NULL AND dead = 0 AND not_before <= ?"
            " ORDER BY seq LIMIT ?",
            to_epoch(now),
            limit,
        )
        return [
            Message(
                row["seq"],
                row["event"],
                row["subject"],
                json.loads(row["payload"]),
                from_epoch(row["created_at"]),
                row["failures"],
            )
            for row in rows
        ]

    def mark_delivered(self, seq: int, now: datetime) -> None:
        with self.transaction() as connection:
            connection.execute(
                "UPDATE outbox SET delivered_at = ? WHERE seq = ?", (to_epoch(now), seq)
            )

    def mark_failed(self, seq: int, not_before: datetime, dead: bool) -> None:
        with self.transaction() as connection:
            connection.execute(
                "UPDATE outbox SET failures = failures + 1, not_before = ?, dead = ? WHERE seq = ?",
                (to_epoch(not_before), int(dead), seq),
            )

    def dead_letters(self) -> int:
        return int(self._all("SELECT count(*) AS n FROM outbox WHERE dead = 1")[0]["n"])

    # --- invoices -----------------------------------------------------------------------------

    def next_invoice_number(self, year: int) -> str:
        rows = self._all(
            "SELECT count(*) AS n FROM invoices WHERE number LIKE ?", f"TM-{year}-%"
        )
        return f"TM-{year}-{rows[0]['n'] + 1:05d}"

    def put_invoice(self, invoice: Invoice) -> None:
        """Insert, or replace a draft. An exported invoice raises InvoiceLocked."""
        with self.transaction() as connection:
            rows = self._all(
                "SELECT exported_at FROM invoices WHERE reservation_id = ?", invoice.reservation_id
            )
            if rows and rows[0]["exported_at"] is not None:
                raise InvoiceLocked(f"the invoice for {invoice.reservation_id} is in the ledger")
            connection.execute(
                "INSERT INTO invoices (number, reservation_id, lines, net_pence, vat_pence,"
                " issued_at) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (reservation_id) DO UPDATE SET"
                " lines = excluded.lines, net_pence = excluded.net_pence,"
                " vat_pence = excluded.vat_pence, issued_at = excluded.issued_at",
                (
                    invoice.number,
                    invoice.reservation_id,
                    json.dumps(invoice.lines),
                    invoice.net_pence,
                    invoice.vat_pence,
                    to_epoch(invoice.issued_at),
                ),
            )

    def invoice(self, reservation_id: str) -> Invoice:
        row = self._one(
            "invoice for", "SELECT * FROM invoices WHERE reservation_id = ?", reservation_id
        )
        return Invoice(
            row["number"],
            row["reservation_id"],
            json.loads(row["lines"]),
            row["net_pence"],
            row["vat_pence"],
            from_epoch(row["issued_at"]),
            from_epoch(row["exported_at"]) if row["exported_at"] is not None else None,
        )

    def mark_exported(self, reservation_id: str, now: datetime) -> None:
        with self.transaction() as connection:
            connection.execute(
                "UPDATE invoices SET exported_at = ? WHERE reservation_id = ?",
                (to_epoch(now), reservation_id),
            )


def _berth(row: sqlite3.Row) -> Berth:
    return Berth(
        code=row["code"],
        length_m=row["length_m"],
        max_beam_m=row["max_beam_m"],
        charted_depth_m=row["charted_depth_m"],
        kind=BerthKind(row["kind"]),
        sill_m=row["sill_m"],
        exposed=bool(row["exposed"]),
        power_amps=row["power_amps"],
        tariff_class=row["tariff_class"],
    )


def _reservation(row: sqlite3.Row) -> Reservation:
    held_until = row["held_until"]
    return Reservation(
        id=row["id"],
        vessel_id=row["vessel_id"],
        berth_code=row["berth_code"],
        stay=Interval(from_epoch(row["arrives_at"]), from_epoch(row["departs_at"])),
        state=State(row["state"]),
        priority=Priority(row["priority"]),
        version=row["version"],
        created_at=from_epoch(row["created_at"]),
        held_until=from_epoch(held_until) if held_until is not None else None,
        price_pence=row["price_pence"],
        notes=row["notes"],
    )
