"""Weather's share of the water level, estimated from what the gauge says right now.

The residual (observed minus predicted) is carried forward and faded out: wind and pressure an
hour from now resemble those of this moment, tomorrow's do not. This is persistence, not
forecasting, and it is only ever applied to berthing windows, never to published tables.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidemark.clock import Interval
from tidemark.tides import Extreme, TideSource

#: Time for a residual to fade to half.
HALF_LIFE = timedelta(hours=5)

#: Observations older than this say nothing useful.
STALE_AFTER = timedelta(hours=2)

#: Fewer recent observations than this and there is no estimate at all.
MIN_OBSERVATIONS = 4

#: A single reading this far from the prediction is a fouled sensor or a passing ferry.
SPIKE_M = 2.5

#: Largest correction ever applied, either way.
MAX_RESIDUAL_M = 1.1


@dataclass(frozen=True)
class Observation:
    at: datetime
    height_m: float


@dataclass(frozen=True)
class Residual:
    """An offset in metres, valid at ``at`` and fading after it."""

    at: datetime
    offset_m: float
    samples: int

    def when(self, instant: datetime) -> float:
        """Offset expected at ``instant``; the past gets the undiminished figure."""
        if instant <= self.at:
            return self.offset_m
        halvings = (instant - self.at) / HALF_LIFE
        return self.offset_m * 0.5**halvings


def estimate_residual(
    source: TideSource, observations: Iterable[Observation], now: datetime
) -> Residual | None:
    """Median departure of recent observations from the prediction, or None.

    The median shrugs off one bad reading; spikes are dropped first so that two cannot outvote
    two. The result is limited to +/- MAX_RESIDUAL_M without complaint: a gauge that claims more
    is believed in sign only.
    """
    departures = []
    for observation in observations:
        if not now - STALE_AFTER <= observation.at <= now:
            continue
        departure = observation.height_m - source.height(observation.at)
        if abs(departure) < SPIKE_M:
            departures.append(departure)
    if len(departures) < MIN_OBSERVATIONS:
        return None
    offset = statistics.median(departures)
    offset = max(-MAX_RESIDUAL_M, min(MAX_RESIDUAL_M, offset))
    return Residual(now, offset, len(departures))


class CorrectedSource:
    """A tide source with a residual added; satisfies :class:`tidemark.tides.TideSource`.

    Positive residuals are halved. Water the weather has piled up may drain sooner than expected,
    and the cost of promising depth that is not there is a grounding; the cost of withholding
    depth that is there is a wait.
    """

    def __init__(self, source: TideSource, residual: Residual) -> None:
        self._source = source
        self._residual = residual

    def _offset(self, instant: datetime) -> float:
        offset = self._residual.when(instant)
        return offset / 2.0 if offset > 0.0 else offset

    def height(self, instant: datetime) -> float:
        return self._source.height(instant) + self._offset(instant)

    def extremes(self, span: Interval) -> list[Extreme]:
        """Predicted times with corrected heights; a slow residual hardly moves the times."""
        return [
            Extreme(e.at, e.height_m + self._offset(e.at), e.kind)
            for e in self._source.extremes(span)
        ]
