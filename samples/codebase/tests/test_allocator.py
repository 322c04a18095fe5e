from datetime import UTC, datetime, timedelta

import pytest
from conftest import BERTHS, HERON, OTTER, WREN

from tidemark.allocator import Allocator, Policy, occupancy
from tidemark.clock import Interval
from tidemark.errors import BadRequest, NoBerth, SillClosed
from tidemark.model import Priority, Reservation, State, StayRequest, Vessel, check_transition

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def stay(start_hours: float, hours: float) -> Interval:
    start = NOON + timedelta(hours=start_hours)
    return Interval(start, start + timedelta(hours=hours))


def booked(berth: str, interval: Interval, state: State = State.CONFIRMED) -> Reservation:
    return Reservation("R-X", "wren", berth, interval, state, Priority.VISITOR, 1, NOON)


@pytest.fixture
def source(catalogue):
    return catalogue.source("saltmere")


def test_small_craft_get_small_berths(source):
    chosen = Allocator(BERTHS, [], source).allocate(StayRequest(WREN, stay(0, 48)))
    assert chosen.berth.code in ("A2", "D1")


def test_the_deep_powered_berth_is_kept_for_those_who_need_it(source):
    allocator = Allocator(BERTHS, [], source)
    assert allocator.allocate(StayRequest(HERON, stay(0, 48))).berth.code == "A1"
    powered = StayRequest(HERON, stay(0, 48), power_amps=16)
    assert allocator.allocate(powered).berth.code == "B1"


def test_every_refusal_is_explained(source):
    whale = Vessel("whale", "Whale", 40.0, 9.0, 3.0)
    with pytest.raises(NoBerth) as caught:
        Allocator(BERTHS, [], source).allocate(StayRequest(whale, stay(0, 24)))
    assert set(caught.value.detail["refusals"]) == {berth.code for berth in BERTHS}
    assert set(caught.value.detail["refusals"].values()) == {"too short"}


def test_a_wide_vessel_is_refused_for_its_beam(source):
    allocator = Allocator(BERTHS, [], source)
    assert allocator.refusal(StayRequest(OTTER, stay(0, 24)), BERTHS[4]) == "too narrow"
    assert allocator.allocate(StayRequest(OTTER, stay(0, 24))).berth.code == "B1"


def test_turnaround_keeps_neighbours_apart(source):
    taken = [booked("A1", stay(-24, 24))]
    allocator = Allocator(BERTHS[:1], taken, source)
    with pytest.raises(NoBerth):
        allocator.allocate(StayRequest(HERON, stay(0.5, 24)))
    assert allocator.allocate(StayRequest(HERON, stay(0.75, 24))).berth.code == "A1"
    with pytest.raises(NoBerth):
        allocator.allocate(StayRequest(HERON, stay(1, 24), Priority.FISHING))


def test_cancelled_reservations_take_no_room(source):
    taken = [booked("A1", stay(0, 24), State.CANCELLED)]
    assert Allocator(BERTHS[:1], taken, source).allocate(StayRequest(HERON, stay(0, 24)))


def test_the_sill_is_named_when_it_alone_is_in_the_way(source):
    locked = [berth for berth in BERTHS if berth.code == "L1"]
    policy = Policy(arrival_slack=timedelta(minutes=30))
    lows = [e for e in source.extremes(stay(0, 48)) if e.kind == "LW"]
    at_low = Interval(lows[0].at, lows[0].at + timedelta(hours=30))
    with pytest.raises(SillClosed) as caught:
        Allocator(locked, [], source, policy).allocate(StayRequest(HERON, at_low))
    assert caught.value.detail["berths"] == ["L1"]


def test_entry_window_opens_after_low_water(source):
    locked = [berth for berth in BERTHS if berth.code == "L1"]
    lows = [e for e in source.extremes(stay(0, 48)) if e.kind == "LW"]
    at_low = Interval(lows[0].at, lows[0].at + timedelta(hours=30))
    chosen = Allocator(locked, [], source).allocate(StayRequest(HERON, at_low))
    assert chosen.enter_by.start > at_low.start


def test_stays_are_limited_except_for_lifeboats(source):
    allocator = Allocator(BERTHS, [], source)
    with pytest.raises(BadRequest) as caught:
        allocator.allocate(StayRequest(HERON, stay(0, 22 * 24)))
    assert caught.value.detail["limit_days"] == 21
    assert allocator.allocate(StayRequest(HERON, stay(0, 22 * 24), Priority.LIFEBOAT))


def test_a_planning_run_goes_by_priority_then_draught(source):
    requests = [
        StayRequest(WREN, stay(0, 24)),
        StayRequest(HERON, stay(0, 24)),
        StayRequest(Vessel("cutter", "Cutter", 10.5, 3.5, 1.5), stay(0, 24), Priority.PILOT),
    ]
    results = Allocator(BERTHS, [], source).allocate_all(requests)
    assert [request.vessel.id for request, _ in results] == ["cutter", "heron", "wren"]
    codes = [outcome.berth.code for _, outcome in results]
    assert len(set(codes)) == 3


def test_a_planning_run_survives_a_hopeless_request(source):
    whale = Vessel("whale", "Whale", 40.0, 9.0, 3.0)
    requests = [StayRequest(whale, stay(0, 24)), StayRequest(WREN, stay(0, 24))]
    outcomes = dict(
        (request.vessel.id, outcome)
        for request, outcome in Allocator(BERTHS, [], source).allocate_all(requests)
    )
    assert isinstance(outcomes["whale"], NoBerth)
    assert outcomes["wren"].berth.code


def test_slivers_cost(source):
    near = [booked("A1", stay(-30, 28))]  # ends two hours before
    a1 = BERTHS[0]
    request = StayRequest(HERON, stay(0, 24))
    with_sliver = Allocator([a1], near, source).score(request, a1)
    without = Allocator([a1], [], source).score(request, a1)
    assert with_sliver - without == pytest.approx(3.0)


def test_occupancy_counts_overlap_only():
    span = stay(0, 24)
    taken = [booked("A1", stay(-12, 24)), booked("A2", stay(0, 24), State.EXPIRED)]
    assert occupancy(BERTHS[:2], taken, span) == pytest.approx(0.25)
    assert occupancy([], taken, span) == 0.0


def test_transitions():
    check_transition(State.NO_SHOW, State.ARRIVED)
    with pytest.raises(Exception, match="TM3108"):
        check_transition(State.DEPARTED, State.ARRIVED)
