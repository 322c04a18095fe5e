"""Choosing a berth.

Every berth is first asked whether it can take the vessel at all (:meth:`Allocator.refusal`); those
that can are scored and the lowest score wins. The score is best fit: it rises with wasted length
and wasted depth, so small craft are pushed to small, shallow places and the deep ones stay free.
docs/decisions/0004-best-fit-allocation.md has the story.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from tidemark.clock import Interval
from tidemark.errors import BadRequest, NoBerth, SillClosed, TidemarkError
from tidemark.model import OCCUPYING, Berth, Priority, Reservation, StayRequest
from tidemark.tides import TideSource
from tidemark.windows import arrival_windows, stays_afloat

LENGTH_WEIGHT = 1.0
DEPTH_WEIGHT = 2.5
UNUSED_POWER_PENALTY = 4.0
SLIVER_PENALTY = 3.0

#: An idle gap shorter than this beside a stay is unlikely ever to be sold.
SLIVER = timedelta(hours=6)

#: Fenders and lines: length needed beyond the vessel's own, as a share of it.
LENGTH_MARGIN = 0.08

#: Working boats load and unload, so the berth needs longer between two of them.
COMMERCIAL_TURNAROUND = timedelta(minutes=90)

REASON_SILL = "no tide over the sill in the arrival window"


@dataclass(frozen=True)
class Policy:
    turnaround: timedelta = timedelta(minutes=45)
    max_stay: timedelta = timedelta(days=21)
    arrival_slack: timedelta = timedelta(hours=6)


@dataclass(frozen=True)
class Assignment:
    berth: Berth
    score: float
    enter_by: Interval  # the first window in which the vessel can get in


class Allocator:
    """Holds the berths and what already occupies them; knows nothing of the store."""

    def __init__(
        self,
        berths: Iterable[Berth],
        existing: Iterable[Reservation],
        source: TideSource,
        policy: Policy | None = None,
    ) -> None:
        self._berths = sorted(berths, key=lambda berth: berth.code)
        self._source = source
        self._policy = policy or Policy()
        self._taken: dict[str, list[Interval]] = {berth.code: [] for berth in self._berths}
        for reservation in existing:
            if reservation.state in OCCUPYING and reservation.berth_code in self._taken:
                self._taken[reservation.berth_code].append(reservation.stay)

    def allocate(self, request: StayRequest) -> Assignment:
        """The best berth for ``request``.

        Raises SillClosed when only the tide stands in the way, NoBerth (with a reason for every
        berth) otherwise.
        """
        self._check_stay(request)
        refusals: dict[str, str] = {}
        candidates: list[tuple[float, str, Berth]] = []
        for berth in self._berths:
            reason = self.refusal(request, berth)
            if reason is None:
                candidates.append((self.score(request, berth), berth.code, berth))
            else:
                refusals[berth.code] = reason
        if not candidates:
            if REASON_SILL in refusals.values():
                waiting = sorted(code for code, why in refusals.items() if why == REASON_SILL)
                raise SillClosed(
                    "the tide does not serve; try a later arrival", berths=waiting
                )
            raise NoBerth(f"nothing fits {request.vessel.name}", refusals=refusals)
        score, _, berth = min(candidates, key=lambda entry: entry[:2])
        window = self._entry_windows(request, berth)[0]
        return Assignment(berth, round(score, 2), window)

    def allocate_all(
        self, requests: Iterable[StayRequest]
    ) -> list[tuple[StayRequest, Assignment | TidemarkError]]:
        """Place many requests in one run: by priority, then deepest first, then longest.

        Each placement counts against the ones after it. A request that cannot be placed is
        returned with its error rather than stopping the run.
        """

        def rank(request: StayRequest) -> tuple[int, float, float]:
            return (request.priority, -request.vessel.draught_m, -request.vessel.loa_m)

        results: list[tuple[StayRequest, Assignment | TidemarkError]] = []
        for request in sorted(requests, key=rank):
            try:
                assignment = self.allocate(request)
            except TidemarkError as problem:
                results.append((request, problem))
                continue
            self._taken[assignment.berth.code].append(request.stay)
            results.append((request, assignment))
        return results

    def refusal(self, request: StayRequest, berth: Berth) -> str | None:
        """Why ``berth`` cannot take ``request``, or None when it can. Cheapest checks first."""
        vessel = request.vessel
        if vessel.loa_m * (1.0 + LENGTH_MARGIN) > berth.length_m:
            return "too short"
        if vessel.beam_m > berth.max_beam_m:
            return "too narrow"
        if request.power_amps > berth.power_amps:
            return "not enough shore power"
        if not self._is_free(request, berth):
            return "occupied"
        if not stays_afloat(self._source, vessel, berth, request.stay):
            return "would ground at low water"
        if not self._entry_windows(request, berth):
            return REASON_SILL
        return None

    def score(self, request: StayRequest, berth: Berth) -> float:
        """Lower is better. Metres of waste, weighted, plus penalties in the same currency."""
        vessel = request.vessel
        score = LENGTH_WEIGHT * (berth.length_m - vessel.loa_m)
        score += DEPTH_WEIGHT * max(0.0, berth.charted_depth_m - vessel.draught_m)
        if berth.power_amps and not request.power_amps:
            score += UNUSED_POWER_PENALTY
        score += SLIVER_PENALTY * self._slivers(request.stay, berth)
        return score

    def _check_stay(self, request: StayRequest) -> None:
        length = request.stay.length
        if length <= timedelta(0):
            raise BadRequest("a stay has to last a while")
        if length > self._policy.max_stay and request.priority > Priority.PILOT:
            raise BadRequest(
                f"stays are limited to {self._policy.max_stay.days} days",
                limit_days=self._policy.max_stay.days,
            )

    def _turnaround(self, request: StayRequest) -> timedelta:
        if request.priority in (Priority.FISHING, Priority.COMMERCIAL):
            return max(COMMERCIAL_TURNAROUND, self._policy.turnaround)
        return self._policy.turnaround

    def _is_free(self, request: StayRequest, berth: Berth) -> bool:
        wanted = request.stay.widen(self._turnaround(request))
        return not any(wanted.overlaps(taken) for taken in self._taken[berth.code])

    def _entry_windows(self, request: StayRequest, berth: Berth) -> list[Interval]:
        latest = min(request.stay.start + self._policy.arrival_slack, request.stay.end)
        span = Interval(request.stay.start, latest)
        return arrival_windows(self._source, request.vessel, berth, span)

    def _slivers(self, stay: Interval, berth: Berth) -> int:
        """How many unsellable gaps the stay would leave: 0, 1 or 2."""
        count = 0
        taken = self._taken[berth.code]
        before = [stay.start - other.end for other in taken if other.end <= stay.start]
        after = [other.start - stay.end for other in taken if other.start >= stay.end]
        for idle in (before, after):
            if idle and timedelta(0) < min(idle) < SLIVER:
                count += 1
        return count


def occupancy(
    berths: Iterable[Berth], reservations: Iterable[Reservation], span: Interval
) -> float:
    """Share of berth-hours in ``span`` that are taken, 0 to 1."""
    codes = {berth.code for berth in berths}
    if not codes or span.length <= timedelta(0):
        return 0.0
    used = timedelta(0)
    for reservation in reservations:
        if reservation.state not in OCCUPYING or reservation.berth_code not in codes:
            continue
        overlap = reservation.stay.intersect(span)
        if overlap:
            used += overlap.length
    return used / (span.length * len(codes))
