"""Calendars of stays and tides, in the iCalendar format (RFC 5545).

Only the handful of properties a phone's calendar understands. Two rules of the format are easy to
get wrong and are kept here: lines fold at 75 *octets*, not characters, and never inside a UTF-8
sequence; and text escapes backslash, semicolon, comma and newline but not colon.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from tidemark.clock import Interval
from tidemark.model import Berth, Reservation, State, Vessel
from tidemark.tides import Extreme, Kind
from tidemark.units import floor_decimetre

FOLD_OCTETS = 75
PRODUCT = "-//Tidemark//Harbour calendar//EN"

#: How long before the first arrival window the phone should ring.
ALARM_BEFORE = timedelta(hours=3)

_STATUS = {
    State.HELD: "TENTATIVE",
    State.CONFIRMED: "CONFIRMED",
    State.ARRIVED: "CONFIRMED",
    State.DEPARTED: "CONFIRMED",
}


def escape(text: str) -> str:
    return (
        text.replace("\\", "\\\\")
        .replace(";", "\\;")
        .replace(",", "\\,")
        .replace("\r\n", "\\n")
        .replace("\n", "\\n")
    )


def fold(line: str) -> str:
    """Break a content line so that no piece exceeds 75 octets, continuation space included."""
    pieces: list[str] = []
    piece = ""
    room = FOLD_OCTETS
    for character in line:
        size = len(character.encode())
        if size > room:
            pieces.append(piece)
            piece = ""
            room = FOLD_OCTETS - 1  # the continuation line begins with a space
        piece += character
        room -= size
    pieces.append(piece)
    return "\r\n ".join(pieces)


def stamp(instant: datetime) -> str:
    return instant.strftime("%Y%m%dT%H%M%SZ")


def _render(lines: Iterable[str]) -> str:
    return "".join(fold(line) + "\r\n" for line in lines)


def _calendar(events: list[list[str]], name: str) -> str:
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", f"PRODID:{PRODUCT}", f"X-WR-CALNAME:{escape(name)}"]
    for event in events:
        lines += ["BEGIN:VEVENT", *event, "END:VEVENT"]
    lines.append("END:VCALENDAR")
    return _render(lines)


def _alarm(text: str) -> list[str]:
    hours = int(ALARM_BEFORE.total_seconds() // 3600)
    return [
        "BEGIN:VALARM",
        "ACTION:DISPLAY",
        f"DESCRIPTION:{escape(text)}",
        f"TRIGGER:-PT{hours}H",
        "END:VALARM",
    ]


def stay_calendar(
    reservation: Reservation,
    vessel: Vessel,
    berth: Berth,
    windows: Iterable[Interval],
    now: datetime,
) -> str:
    """One event for the stay, one for each window in which the vessel can get in.

    The stay's event is transparent (it does not make the owner look busy for three weeks); the
    windows are opaque, and the first of them carries the alarm.
    """
    stay = [
        f"UID:{reservation.id}-stay@tidemark",
        f"DTSTAMP:{stamp(now)}",
        f"DTSTART:{stamp(reservation.stay.start)}",
        f"DTEND:{stamp(reservation.stay.end)}",
        f"SEQUENCE:{reservation.version}",
        f"SUMMARY:{escape(f'{vessel.name}, berth {berth.code}')}",
        f"STATUS:{_STATUS.get(reservation.state, 'CANCELLED')}",
        "TRANSP:TRANSPARENT",
    ]
    if reservation.notes:
        stay.append(f"DESCRIPTION:{escape(reservation.notes)}")
    events = [stay]
    for number, window in enumerate(windows, start=1):
        event = [
            f"UID:{reservation.id}-window-{number}@tidemark",
            f"DTSTAMP:{stamp(now)}",
            f"DTSTART:{stamp(window.start)}",
            f"DTEND:{stamp(window.end)}",
            f"SUMMARY:{escape(f'Water for {vessel.name} into {berth.code}')}",
            "TRANSP:OPAQUE",
        ]
        if number == 1:
            event += _alarm(f"{vessel.name}: the way in opens in three hours")
        events.append(event)
    return _calendar(events, f"{vessel.name} at {berth.code}")


def tide_calendar(station_name: str, extremes: Iterable[Extreme], now: datetime) -> str:
    """High waters only, each a zero-length event; low waters double the clutter for little."""
    events = []
    for extreme in extremes:
        if extreme.kind is not Kind.HIGH:
            continue
        height = floor_decimetre(extreme.height_m)
        events.append(
            [
                f"UID:{stamp(extreme.at)}-{station_name.lower().replace(' ', '-')}@tidemark",
                f"DTSTAMP:{stamp(now)}",
                f"DTSTART:{stamp(extreme.at)}",
                f"SUMMARY:{escape(f'HW {station_name} {height:.1f} m')}",
                "TRANSP:TRANSPARENT",
            ]
        )
    return _calendar(events, f"High water, {station_name}")
