"""Instants, half-open intervals, and where "now" comes from.

Nothing else in the package calls ``datetime.now``. That rule makes expiry, quiet hours and
cancellation fees testable, and lets an operator replay a bad day on a laptop.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Protocol

from tidemark.errors import BadRequest

#: Set this to an ISO instant and the service believes it is that time for ever. Refused when the
#: deployment profile is "production".
FREEZE_VARIABLE = "TIDEMARK_FREEZE_CLOCK"


class Clock(Protocol):
    def now(self) -> datetime: ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)


class FrozenClock:
    """A clock that moves only when told to."""

    def __init__(self, instant: datetime) -> None:
        self._instant = _require_aware(instant)

    def now(self) -> datetime:
        return self._instant

    def advance(self, **delta: float) -> datetime:
        self._instant += timedelta(**delta)
        return self._instant


def clock_from_environment(environ: dict[str, str] | None = None, profile: str = "") -> Clock:
    """The system clock, unless :data:`FREEZE_VARIABLE` pins it."""
    variables = os.environ if environ is None else environ
    pinned = variables.get(FREEZE_VARIABLE, "").strip()
    if not pinned:
        return SystemClock()
    if profile == "production":
        raise BadRequest(f"{FREEZE_VARIABLE} is set, and this is the production profile")
    return FrozenClock(parse_instant(pinned))


def _require_aware(instant: datetime) -> datetime:
    if instant.tzinfo is None:
        raise BadRequest("a time without an offset is ambiguous; add Z or +01:00")
    return instant.astimezone(UTC)


def parse_instant(text: str) -> datetime:
    """UTC datetime from ISO 8601 text. Naive times are refused, not guessed at."""
    try:
        parsed = datetime.fromisoformat(text.strip())
    except ValueError as problem:
        raise BadRequest(f"{text!r} is not an ISO 8601 time") from problem
    return _require_aware(parsed)


def parse_day(text: str) -> date:
    try:
        return date.fromisoformat(text.strip())
    except ValueError as problem:
        raise BadRequest(f"{text!r} is not a day such as 2026-05-01") from problem


def format_instant(instant: datetime) -> str:
    """``2026-05-01T06:10:00Z``: always UTC, always whole seconds."""
    return _require_aware(instant).strftime("%Y-%m-%dT%H:%M:%SZ")


def to_epoch(instant: datetime) -> int:
    """Whole seconds since 1970, the only form of time the store holds."""
    return int(_require_aware(instant).timestamp())


def from_epoch(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def day_bounds(day: date) -> Interval:
    start = datetime.combine(day, time.min, UTC)
    return Interval(start, start + timedelta(days=1))


@dataclass(frozen=True, order=True)
class Interval:
    """``[start, end)``: two stays that merely touch do not overlap."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if self.end < self.start:
            raise BadRequest(
                "an interval ends before it starts",
                start=format_instant(self.start),
                end=format_instant(self.end),
            )

    @property
    def length(self) -> timedelta:
        return self.end - self.start

    def __contains__(self, instant: datetime) -> bool:
        return self.start <= instant < self.end

    def overlaps(self, other: Interval) -> bool:
        return self.start < other.end and other.start < self.end

    def intersect(self, other: Interval) -> Interval | None:
        start, end = max(self.start, other.start), min(self.end, other.end)
        return Interval(start, end) if start < end else None

    def widen(self, before: timedelta, after: timedelta | None = None) -> Interval:
        return Interval(self.start - before, self.end + (before if after is None else after))

    def steps(self, step: timedelta) -> Iterator[datetime]:
        """Instants from start, ``step`` apart, always finishing exactly on ``end``."""
        instant = self.start
        while instant < self.end:
            yield instant
            instant += step
        yield self.end


def merge(intervals: Iterable[Interval]) -> list[Interval]:
    """The same instants as ``intervals``, in order, with overlapping and touching ones joined."""
    merged: list[Interval] = []
    for interval in sorted(intervals):
        if merged and interval.start <= merged[-1].end:
            last = merged[-1]
            merged[-1] = Interval(last.start, max(last.end, interval.end))
        else:
            merged.append(interval)
    return merged


def gaps(outer: Interval, taken: Iterable[Interval]) -> list[Interval]:
    """What is left of ``outer`` once ``taken`` is removed."""
    free: list[Interval] = []
    cursor = outer.start
    for interval in merge(taken):
        if interval.end <= outer.start or interval.start >= outer.end:
            continue
        if interval.start > cursor:
            free.append(Interval(cursor, interval.start))
        cursor = max(cursor, interval.end)
    if cursor < outer.end:
        free.append(Interval(cursor, outer.end))
    return free
