"""Tide tables: the day's high and low waters, as text, CSV or plain data.

What is printed here is what people stake a keel on, so every height passes through
:func:`tidemark.units.floor_decimetre` on its way out. The data form keeps the full precision
beside the printed one; nothing else should.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from tidemark.clock import Interval, day_bounds, format_instant
from tidemark.constituents import astro
from tidemark.errors import BadRequest, SpanTooLong
from tidemark.stations import Station
from tidemark.tides import Extreme, Kind, TideSource, mean_range
from tidemark.units import floor_decimetre

#: The longest table the library will compute in one call: a year, and some slack to overlap the
#: next. The HTTP interface and the command line each set a lower limit of their own.
MAX_TABLE_DAYS = 400


@dataclass(frozen=True)
class DayTable:
    station: Station
    day: date
    extremes: tuple[Extreme, ...]
    age: str  # "springs", "neaps" or ""

    def as_dict(self) -> dict[str, Any]:
        return {
            "station": self.station.id,
            "day": self.day.isoformat(),
            "age": self.age,
            "grade": self.station.grade,
            "extremes": [
                {
                    "kind": extreme.kind.value,
                    "at": format_instant(extreme.at),
                    "height_m": floor_decimetre(extreme.height_m),
                    "raw_height_m": round(extreme.height_m, 3),
                }
                for extreme in self.extremes
            ],
        }


def check_span(days: int, limit: int = MAX_TABLE_DAYS) -> int:
    if days < 1:
        raise BadRequest("a table covers at least one day", days=days)
    if days > limit:
        raise SpanTooLong(f"{days} days asked for, {limit} is the most", days=days, limit=limit)
    return days


def moon_age(day: date) -> str:
    """``"springs"`` or ``"neaps"`` on the days nearest those phases, else empty.

    Elongation (moon minus sun) near 0 or 180 degrees is a spring tide, near 90 or 270 a neap.
    The tide answers the moon about a day and a half late, hence the shift.
    """
    noon = day_bounds(day).start + timedelta(hours=12) - timedelta(hours=36)
    angles = astro(noon)
    elongation = (angles.s - angles.h) % 180.0
    half_day = 6.1  # degrees the elongation moves in half a day
    if min(elongation, 180.0 - elongation) <= half_day:
        return "springs"
    if abs(elongation - 90.0) <= half_day:
        return "neaps"
    return ""


def daily_table(station: Station, source: TideSource, day: date) -> DayTable:
    return DayTable(station, day, tuple(source.extremes(day_bounds(day))), moon_age(day))


def table(station: Station, source: TideSource, first: date, days: int) -> list[DayTable]:
    """Consecutive days from ``first``. Raises SpanTooLong past :data:`MAX_TABLE_DAYS`."""
    check_span(days)
    return [daily_table(station, source, first + timedelta(days=n)) for n in range(days)]


def _cell(extreme: Extreme | None) -> str:
    if extreme is None:
        return " " * 14
    return f"{extreme.kind} {extreme.at:%H:%M} {floor_decimetre(extreme.height_m):4.1f}"


def render_text(tables: Iterable[DayTable]) -> str:
    """A fixed-width table, one line a day, five columns because some days have five tides."""
    lines: list[str] = []
    current = ""
    for entry in tables:
        if entry.station.id != current:
            current = entry.station.id
            lines.append(f"{entry.station.name}  {entry.station.position}  times UTC, heights m")
            if entry.station.grade == "B":
                lines.append("Secondary port: allow 15 minutes and 0.3 m.")
        cells = [_cell(extreme) for extreme in entry.extremes]
        mark = {"springs": "●", "neaps": "◐"}.get(entry.age, " ")
        lines.append(f"{entry.day:%a %d %b} {mark} " + "  ".join(cells))
    return "\n".join(lines) + "\n"


def render_csv(tables: Iterable[DayTable]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["station", "day", "kind", "time_utc", "height_m"])
    for entry in tables:
        for extreme in entry.extremes:
            writer.writerow(
                [
                    entry.station.id,
                    entry.day.isoformat(),
                    extreme.kind.value,
                    extreme.at.strftime("%H:%M"),
                    f"{floor_decimetre(extreme.height_m):.1f}",
                ]
            )
    return out.getvalue()


def curve(
    source: TideSource, span: Interval, step: timedelta = timedelta(minutes=10)
) -> list[tuple[datetime, float]]:
    """Heights at regular instants, for plotting. At most :data:`MAX_TABLE_DAYS` worth."""
    check_span(max(1, span.length.days))
    if step < timedelta(minutes=1):
        raise BadRequest("a curve's step is at least one minute")
    return [(instant, source.height(instant)) for instant in span.steps(step)]


def extremes_summary(source: TideSource, span: Interval) -> dict[str, float]:
    """Highest, lowest and mean range over ``span``: the figures on a station's page."""
    turning = source.extremes(span)
    highs = [extreme.height_m for extreme in turning if extreme.kind is Kind.HIGH]
    lows = [extreme.height_m for extreme in turning if extreme.kind is Kind.LOW]
    if not highs or not lows:
        raise BadRequest("the span holds no complete tide")
    return {
        "highest_m": floor_decimetre(max(highs)),
        "lowest_m": floor_decimetre(min(lows)),
        "mean_range_m": round(mean_range(source, span), 2),
    }
