"""Every failure tidemark reports on purpose, each with a stable code.

The code is what clients and runbooks refer to; the message is for people and may change in any
release. The first digit gives the area:

    TM1xxx  the request or the configuration
    TM2xxx  tides and stations
    TM3xxx  berths, holds and reservations
    TM4xxx  money
    TM5xxx  the machinery: gauges, store, migrations

A code is never reused. When an error goes away its number stays retired (TM2003 and TM3004 are
gone for that reason), so an old log line always means what it meant when it was written.
"""

from __future__ import annotations

from typing import Any


class TidemarkError(Exception):
    """Base of the family. ``detail`` is JSON-serialisable and goes to API clients verbatim."""

    code = "TM0000"

    def __init__(self, message: str, **detail: Any) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail

    def as_dict(self) -> dict[str, Any]:
        body: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.detail:
            body["detail"] = self.detail
        return body

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


# --- the request or the configuration -------------------------------------------------------


class BadRequest(TidemarkError):
    """A parameter is missing, malformed or out of range."""

    code = "TM1001"


class UnitError(TidemarkError):
    """A quantity could not be read, or is in a unit that does not measure that thing."""

    code = "TM1002"


class ConfigError(TidemarkError):
    """The configuration has an unknown key, a wrong type or an impossible combination."""

    code = "TM1003"


class Unauthorised(TidemarkError):
    """No bearer token, or one this service does not know."""

    code = "TM1101"


class RateLimited(TidemarkError):
    """The caller's bucket is empty; ``retry_after_s`` in the detail says how long to wait."""

    code = "TM1102"


# --- tides and stations ---------------------------------------------------------------------


class UnknownStation(TidemarkError):
    """No station of that id in the catalogue."""

    code = "TM2001"


class SpanTooLong(TidemarkError):
    """A table or curve was asked for over more days than we are willing to compute at once."""

    code = "TM2002"


class SillClosed(TidemarkError):
    """The vessel cannot cross the harbour sill on any tide inside its arrival window."""

    code = "TM2104"


# --- berths, holds and reservations ---------------------------------------------------------


class NoBerth(TidemarkError):
    """Every berth was considered and refused; the detail maps berth code to the reason."""

    code = "TM3001"


class NotFound(TidemarkError):
    """No reservation, vessel or invoice with that id."""

    code = "TM3002"


class StaleVersion(TidemarkError):
    """Somebody else changed the reservation between our read and our write."""

    code = "TM3003"


class HoldExpired(TidemarkError):
    """The hold lapsed before it was confirmed and its berth has been released."""

    code = "TM3107"


class IllegalTransition(TidemarkError):
    """A reservation was asked to move between two states that are not joined."""

    code = "TM3108"


# --- money ----------------------------------------------------------------------------------


class TariffMissing(TidemarkError):
    """No tariff is in force for that berth class on that day."""

    code = "TM4001"


class InvoiceLocked(TidemarkError):
    """The invoice was already exported to the ledger and can only be credited, not edited."""

    code = "TM4002"


# --- machinery ------------------------------------------------------------------------------


class GaugeUnavailable(TidemarkError):
    """The gauge feed failed after every retry."""

    code = "TM5001"


class CircuitOpen(TidemarkError):
    """The gauge feed failed repeatedly a moment ago, so this call was not even attempted."""

    code = "TM5002"


class MigrationDrift(TidemarkError):
    """A migration already applied no longer has the checksum it was applied with."""

    code = "TM5003"


class StoreBusy(TidemarkError):
    """Another writer held the database for longer than the busy timeout."""

    code = "TM5004"


def all_codes() -> dict[str, type[TidemarkError]]:
    """Code to class, for the documentation check in the tests."""
    found: dict[str, type[TidemarkError]] = {}
    pending: list[type[TidemarkError]] = list(TidemarkError.__subclasses__())
    while pending:
        kind = pending.pop()
        if kind.code in found:
            raise RuntimeError(f"{kind.__name__} reuses {kind.code}")
        found[kind.code] = kind
        pending.extend(kind.__subclasses__())
    return found
