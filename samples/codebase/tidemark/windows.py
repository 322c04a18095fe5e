"""When there is water enough: clearance under the keel, and the times it is to be had."""

from __future__ import annotations

from datetime import datetime, timedelta

from tidemark.clock import Interval, merge
from tidemark.errors import BadRequest, SpanTooLong
from tidemark.model import Berth, BerthKind, Vessel
from tidemark.tides import TideSource
from tidemark.units import ceil_decimetre

#: Spacing of the search; a window shorter than this may be missed, and is useless anyway.
SEARCH_STEP = timedelta(minutes=10)

#: Window edges are found to within this.
EDGE_TO = timedelta(seconds=30)

#: Shorter windows are not offered: nobody can plan on them.
MIN_WINDOW = timedelta(minutes=20)

#: Longest search in one call.
MAX_WINDOW_DAYS = 35

#: Harbour speed limit in the fairway. Squat is computed for this at most.
FAIRWAY_LIMIT_KN = 6.0

SHELTERED_CLEARANCE_M = 0.3
EXPOSED_CLEARANCE_M = 0.6


def under_keel_clearance(vessel: Vessel, exposed: bool) -> float:
    """Water to keep beneath the keel: a tenth of the draught, and never less than the floor.

    The floor is 0.3 m in shelter. At exposed berths it doubles, because swell heaves a hull by
    about the height of the wave that passes under it.
    """
    floor = EXPOSED_CLEARANCE_M if exposed else SHELTERED_CLEARANCE_M
    return max(floor, 0.1 * vessel.draught_m)


def squat_allowance(speed_kn: float, block_coefficient: float = 0.55) -> float:
    """How far a hull sinks by moving, in metres: Barrass's rule for open water, Cb V²/100.

    Speeds are clamped to 0..FAIRWAY_LIMIT_KN without an error. A form that says 25 knots means
    the vessel's top speed, not what it will do between the pontoons.
    """
    speed = max(0.0, min(speed_kn, FAIRWAY_LIMIT_KN))
    return block_coefficient * speed * speed / 100.0


def required_at_sill(vessel: Vessel, berth: Berth, approach_kn: float = 4.0) -> float | None:
    """Height of tide needed to cross the berth's sill; None when there is no sill."""
    if berth.sill_m is None:
        return None
    clearance = under_keel_clearance(vessel, berth.exposed)
    return (
        berth.sill_m + ceil_decimetre(vessel.draught_m) + clearance + squat_allowance(approach_kn)
    )


def required_alongside(vessel: Vessel, berth: Berth) -> float | None:
    """Height of tide needed to stay afloat in the berth; None where taking the ground is fine."""
    if berth.kind is BerthKind.DRYING:
        return None
    clearance = under_keel_clearance(vessel, berth.exposed)
    return ceil_decimetre(vessel.draught_m) + clearance - berth.charted_depth_m


def _edge(
    source: TideSource, low: datetime, high: datetime, threshold: float, rising: bool
) -> datetime:
    """The crossing of ``threshold`` between two instants on opposite sides of it."""
    while high - low > EDGE_TO:
        middle = low + (high - low) / 2
        if (source.height(middle) < threshold) == rising:
            low = middle
        else:
            high = middle
    # Err to the side where the water is: the later instant on a flood, the earlier on an ebb.
    return (high if rising else low).replace(microsecond=0)


def depth_windows(source: TideSource, span: Interval, required_m: float) -> list[Interval]:
    """Intervals of ``span`` in which the tide stands at ``required_m`` or more.

    Windows shorter than MIN_WINDOW are left out. Raises SpanTooLong beyond MAX_WINDOW_DAYS.
    """
    if span.length > timedelta(days=MAX_WINDOW_DAYS):
        raise SpanTooLong(
            f"windows are computed for at most {MAX_WINDOW_DAYS} days", limit=MAX_WINDOW_DAYS
        )
    if span.length <= timedelta(0):
        raise BadRequest("the search interval is empty")
    found: list[Interval] = []
    before = span.start
    wet = source.height(before) >= required_m
    opened = before if wet else None
    for instant in span.steps(SEARCH_STEP):
        now_wet = source.height(instant) >= required_m
        if now_wet and not wet:
            opened = _edge(source, before, instant, required_m, rising=True)
        elif wet and not now_wet and opened is not None:
            closed = _edge(source, before, instant, required_m, rising=False)
            if closed > opened:
                found.append(Interval(opened, closed))
            opened = None
        before, wet = instant, now_wet
    if opened is not None and opened < span.end:
        found.append(Interval(opened, span.end))
    return [window for window in merge(found) if window.length >= MIN_WINDOW]


def arrival_windows(
    source: TideSource, vessel: Vessel, berth: Berth, span: Interval
) -> list[Interval]:
    """When ``vessel`` can get into ``berth`` during ``span``: all of it, where there is no sill."""
    required = required_at_sill(vessel, berth)
    if required is None:
        return [span]
    return depth_windows(source, span, required)


def stays_afloat(source: TideSource, vessel: Vessel, berth: Berth, stay: Interval) -> bool:
    """Whether the lowest water of the stay still floats the vessel."""
    required = required_alongside(vessel, berth)
    if required is None:
        return True
    ends = min(source.height(stay.start), source.height(stay.end))
    lowest = min([ends, *(extreme.height_m for extreme in source.extremes(stay))])
    return lowest >= required
