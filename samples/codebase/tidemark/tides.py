"""Predicting the height of the tide.

Two kinds of source answer the same two questions, "how high at this instant" and "which high
and low waters in this interval": a :class:`HarmonicModel` for a standard port, and a
:class:`SecondaryModel`, which shifts and scales a standard port's extremes. Heights are metres
above chart datum and take no account of weather; :mod:`tidemark.surge` adds that.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Protocol

from tidemark.clock import Interval, day_bounds
from tidemark.constituents import CONSTITUENTS, Constituent, astro
from tidemark.errors import ConfigError

#: Spacing of the scan for turning points. The shortest constituent we carry (M6, about four
#: hours) cannot hide a pair of extremes inside this.
SCAN_STEP = timedelta(minutes=15)

#: Turning points are refined until the bracket is shorter than this.
REFINE_TO = timedelta(seconds=20)

#: Adjacent extremes closer than this in height are a shallow-water wiggle, not a tide.
MIN_RANGE_M = 0.05


class Kind(StrEnum):
    HIGH = "HW"
    LOW = "LW"


@dataclass(frozen=True)
class Extreme:
    at: datetime
    height_m: float
    kind: Kind


class TideSource(Protocol):
    def height(self, instant: datetime) -> float: ...

    def extremes(self, span: Interval) -> list[Extreme]: ...


@dataclass(frozen=True)
class _Term:
    """One constituent prepared for a given day: everything but the hour."""

    amplitude_m: float
    speed: float  # radians per hour
    phase: float  # radians at midnight


class HarmonicModel:
    """Sum of cosines about mean level ``z0_m`` (metres above chart datum).

    ``constants`` maps a constituent's name to amplitude in metres and Greenwich phase lag in
    degrees. Nodal corrections are held constant over a UTC day and evaluated at its noon, which
    is worth less than a millimetre and lets a day's terms be prepared once.
    """

    def __init__(self, z0_m: float, constants: Mapping[str, tuple[float, float]]) -> None:
        unknown = sorted(set(constants) - set(CONSTITUENTS))
        if unknown:
            raise ConfigError(f"unknown constituents: {', '.join(unknown)}")
        if not constants:
            raise ConfigError("a standard port needs at least one constituent")
        self.z0_m = z0_m
        self._constants: list[tuple[Constituent, float, float]] = [
            (CONSTITUENTS[name], amplitude, lag) for name, (amplitude, lag) in constants.items()
        ]
        self._terms = lru_cache(maxsize=512)(self._prepare)

    def _prepare(self, ordinal: int) -> tuple[_Term, ...]:
        bounds = day_bounds(datetime.fromordinal(ordinal).date())
        midnight = astro(bounds.start)
        noon = astro(bounds.start + timedelta(hours=12))
        terms = []
        for constituent, amplitude, lag in self._constants:
            f, u = constituent.correction(noon.n)
            phase = constituent.argument(midnight) + u - lag
            terms.append(
                _Term(f * amplitude, math.radians(constituent.speed), math.radians(phase))
            )
        return tuple(terms)

    @staticmethod
    def _hours(instant: datetime) -> float:
        return instant.hour + instant.minute / 60.0 + instant.second / 3600.0

    def height(self, instant: datetime) -> float:
        hours = self._hours(instant)
        return self.z0_m + sum(
            term.amplitude_m * math.cos(term.speed * hours + term.phase)
            for term in self._terms(instant.toordinal())
        )

    def rate(self, instant: datetime) -> float:
        """Metres per hour, positive on the flood. Analytic, so its zeros are the extremes."""
        hours = self._hours(instant)
        return -sum(
            term.amplitude_m * term.speed * math.sin(term.speed * hours + term.phase)
            for term in self._terms(instant.toordinal())
        )

    def extremes(self, span: Interval) -> list[Extreme]:
        """High and low waters in ``span``, in order, wiggles removed."""
        padded = span.widen(timedelta(hours=4))
        found: list[Extreme] = []
        before = padded.start
        rate_before = self.rate(before)
        for instant in padded.steps(SCAN_STEP):
            rate_now = self.rate(instant)
            if rate_before > 0.0 >= rate_now or rate_before < 0.0 <= rate_now:
                at = self._refine(before, instant)
                kind = Kind.HIGH if rate_before > 0.0 else Kind.LOW
                found.append(Extreme(at, self.height(at), kind))
            before, rate_before = instant, rate_now
        return [extreme for extreme in drop_wiggles(found) if extreme.at in span]

    def _refine(self, low: datetime, high: datetime) -> datetime:
        rising = self.rate(low) > 0.0
        while high - low > REFINE_TO:
            middle = low + (high - low) / 2
            if (self.rate(middle) > 0.0) == rising:
                low = middle
            else:
                high = middle
        return (low + (high - low) / 2).replace(microsecond=0)


def drop_wiggles(extremes: list[Extreme]) -> list[Extreme]:
    """Remove pairs of neighbours that differ by less than :data:`MIN_RANGE_M`.

    Double low waters (a stand with a dent in it) would otherwise print as two tides. Removing
    both members of the pair keeps highs and lows alternating.
    """
    kept: list[Extreme] = []
    for extreme in extremes:
        if kept and abs(kept[-1].height_m - extreme.height_m) < MIN_RANGE_M:
            kept.pop()
            continue
        kept.append(extreme)
    return kept


@dataclass(frozen=True)
class Differences:
    """How a secondary port departs from its reference port."""

    high_minutes: float
    low_minutes: float
    high_ratio: float
    low_ratio: float


class SecondaryModel:
    """A port known only by its differences from another.

    Between a pair of extremes the height follows half a cosine. That is crude in estuaries with
    a long ebb, and it is why :attr:`tidemark.stations.Station.grade` is ``"B"`` for these.
    """

    def __init__(self, reference: TideSource, differences: Differences) -> None:
        self._reference = reference
        self._differences = differences
        self._bracket = lru_cache(maxsize=256)(self._around)

    def _shift(self, extreme: Extreme) -> Extreme:
        d = self._differences
        if extreme.kind is Kind.HIGH:
            minutes, ratio = d.high_minutes, d.high_ratio
        else:
            minutes, ratio = d.low_minutes, d.low_ratio
        at = extreme.at + timedelta(minutes=minutes)
        return Extreme(at, extreme.height_m * ratio, extreme.kind)

    def extremes(self, span: Interval) -> list[Extreme]:
        margin = timedelta(
            minutes=max(abs(self._differences.high_minutes), abs(self._differences.low_minutes))
        )
        shifted = [self._shift(extreme) for extreme in self._reference.extremes(span.widen(margin))]
        return sorted((e for e in shifted if e.at in span), key=lambda e: e.at)

    def _around(self, ordinal: int) -> tuple[Extreme, ...]:
        day = day_bounds(datetime.fromordinal(ordinal).date())
        return tuple(self.extremes(day.widen(timedelta(hours=14))))

    def height(self, instant: datetime) -> float:
        turning = self._bracket(instant.toordinal())
        index = bisect_right([extreme.at for extreme in turning], instant)
        if index == 0 or index == len(turning):
            raise ConfigError("secondary port differences push extremes out of reach")
        before, after = turning[index - 1], turning[index]
        fraction = (instant - before.at) / (after.at - before.at)
        weight = 0.5 - 0.5 * math.cos(math.pi * fraction)
        return before.height_m + (after.height_m - before.height_m) * weight


def mean_range(source: TideSource, span: Interval) -> float:
    """Average rise between neighbouring extremes, in metres; 0 if there are fewer than two."""
    turning = source.extremes(span)
    rises = [abs(a.height_m - b.height_m) for a, b in zip(turning, turning[1:], strict=False)]
    return sum(rises) / len(rises) if rises else 0.0
