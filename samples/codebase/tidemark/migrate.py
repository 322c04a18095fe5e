"""Applying the numbered SQL files in ``migrations/``, once each, in order.

A file's checksum is remembered when it is applied. Editing an applied file is refused
(MigrationDrift) rather than ignored: two harbours with the same number and different tables is a
bug nobody finds. Comments and blank lines do not count, so those may be improved.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from tidemark.errors import ConfigError, MigrationDrift

_NAME = re.compile(r"(?P<number>\d{4})_[a-z0-9_]+\.sql")


@dataclass(frozen=True)
class Migration:
    number: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the statements alone, first 16 hex digits."""
        lines = (line.split("--", 1)[0].strip() for line in self.sql.splitlines())
        essence = "\n".join(line for line in lines if line)
        return hashlib.sha256(essence.encode()).hexdigest()[:16]


def discover(directory: Path) -> list[Migration]:
    """Migrations in ``directory`` by number. Gaps and repeats are configuration errors."""
    found: list[Migration] = []
    for path in sorted(directory.glob("*.sql")):
        match = _NAME.fullmatch(path.name)
        if match is None:
            raise ConfigError(f"{path.name} should be named like 0007_add_things.sql")
        found.append(Migration(int(match["number"]), path.name, path.read_text(encoding="utf-8")))
    for expected, migration in enumerate(found, start=1):
        if migration.number != expected:
            raise ConfigError(f"expected migration {expected:04d}, found {migration.name}")
    if not found:
        raise ConfigError(f"no migrations in {directory}")
    return found


def _ensure_ledger(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE IF NOT EXISTS schema_ledger ("
        " number INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL,"
        " applied_at TEXT NOT NULL DEFAULT (datetime('now')))"
    )


def applied(connection: sqlite3.Connection) -> dict[int, str]:
    """Number to checksum for what this database already has."""
    _ensure_ledger(connection)
    rows = connection.execute("SELECT number, checksum FROM schema_ledger")
    return {number: checksum for number, checksum in rows}


def pending(connection: sqlite3.Connection, migrations: list[Migration]) -> list[Migration]:
    """What is still to be applied. Raises MigrationDrift if the past has been edited."""
    done = applied(connection)
    for migration in migrations:
        recorded = done.get(migration.number)
        if recorded is not None and recorded != migration.checksum:
            raise MigrationDrift(
                f"{migration.name} has changed since it was applied",
                recorded=recorded,
                found=migration.checksum,
            )
    ahead = sorted(set(done) - {migration.number for migration in migrations})
    if ahead:
        raise MigrationDrift(
            "the database is newer than this release", unknown_migrations=ahead
        )
    return [migration for migration in migrations if migration.number not in done]


def migrate(connection: sqlite3.Connection, directory: Path) -> list[str]:
    """Apply everything pending, each file in its own transaction; names of those applied.

    Foreign keys are off meanwhile, because rebuilding a table means dropping it, and are checked
    before every commit instead.
    """
    names: list[str] = []
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys = OFF")
    try:
        for migration in pending(connection, discover(directory)):
            connection.execute("BEGIN IMMEDIATE")
            try:
                for statement in _statements(migration.sql):
                    connection.execute(statement)
                broken = connection.execute("PRAGMA foreign_key_check").fetchall()
                if broken:
                    raise sqlite3.IntegrityError(f"{migration.name}: {len(broken)} dangling rows")
                connection.execute(
                    "INSERT INTO schema_ledger (number, name, checksum) VALUES (?, ?, ?)",
                    (migration.number, migration.name, migration.checksum),
                )
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
            names.append(migration.name)
    finally:
        connection.execute("PRAGMA foreign_keys = ON")
    return names


def _statements(sql: str) -> list[str]:
    """Split a script at its semicolons, using SQLite's own idea of a complete statement."""
    statements: list[str] = []
    buffer = ""
    for piece in re.split(r"(?<=;)", sql):
        buffer += piece
        if sqlite3.complete_statement(buffer):
            statements.append(buffer.strip())
            buffer = ""
    rest = "\n".join(line for line in buffer.splitlines() if not line.strip().startswith("--"))
    if rest.strip():
        raise ConfigError(f"unfinished SQL statement: {rest.strip()[:60]}")
    return statements
