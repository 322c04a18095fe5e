from datetime import UTC, date, datetime, timedelta

import pytest

from tidemark.clock import Interval, day_bounds
from tidemark.constituents import CONSTITUENTS, astro, form_number
from tidemark.errors import BadRequest, ConfigError, SpanTooLong, UnknownStation
from tidemark.model import Berth, BerthKind, Vessel
from tidemark.stations import Catalogue, Station
from tidemark.tables import extremes_summary, moon_age, render_csv, render_text, table
from tidemark.tides import Extreme, HarmonicModel, Kind, drop_wiggles
from tidemark.windows import (
    arrival_windows,
    depth_windows,
    required_at_sill,
    squat_allowance,
    stays_afloat,
    under_keel_clearance,
)

MAY_DAY = datetime(2026, 5, 1, tzinfo=UTC)
WEEK = Interval(MAY_DAY, MAY_DAY + timedelta(days=7))


@pytest.mark.parametrize(
    ("name", "speed"),
    [("M2", 28.9841042), ("S2", 30.0), ("K1", 15.0410686), ("O1", 13.9430356), ("MF", 1.0980331)],
)
def test_speeds_follow_from_the_astronomy(name, speed):
    assert CONSTITUENTS[name].speed == pytest.approx(speed, abs=1e-5)


def test_solar_constituents_have_no_nodal_correction():
    for name in ("S2", "P1", "T2", "SA", "SSA"):
        assert CONSTITUENTS[name].correction(77.0) == (1.0, 0.0)
    f, u = CONSTITUENTS["M4"].correction(0.0)
    assert f == pytest.approx(CONSTITUENTS["M2"].correction(0.0)[0] ** 2)
    assert u == 0.0


def test_angles_are_continuous_over_midnight():
    before = CONSTITUENTS["M2"].argument(astro(MAY_DAY - timedelta(seconds=1)))
    after = CONSTITUENTS["M2"].argument(astro(MAY_DAY + timedelta(seconds=1)))
    assert (after - before) % 360.0 == pytest.approx(28.984 / 1800.0, abs=1e-3)


def test_extremes_alternate_and_are_turning_points(catalogue):
    for station in catalogue:
        source = catalogue.source(station.id)
        turning = source.extremes(WEEK)
        assert 24 <= len(turning) <= 30
        for a, b in zip(turning, turning[1:], strict=False):
            assert a.kind is not b.kind
            assert (a.height_m > b.height_m) == (a.kind is Kind.HIGH)


def test_the_rate_is_the_slope_of_the_height(catalogue):
    source = catalogue.source("kelwick-bar")
    at = MAY_DAY + timedelta(hours=3, minutes=17)
    second = timedelta(seconds=30)
    slope = (source.height(at + second) - source.height(at - second)) * 60.0
    assert source.rate(at) == pytest.approx(slope, abs=1e-3)


def test_a_secondary_port_passes_through_its_extremes(catalogue):
    source = catalogue.source("orrin-quay")
    for extreme in source.extremes(WEEK):
        assert source.height(extreme.at) == pytest.approx(extreme.height_m, abs=1e-6)


def test_wiggles_go_in_pairs():
    heights = [(Kind.HIGH, 4.0), (Kind.LOW, 1.00), (Kind.HIGH, 1.03), (Kind.LOW, 0.98)]
    raw = [
        Extreme(MAY_DAY + timedelta(hours=n), height, kind)
        for n, (kind, height) in enumerate(heights)
    ]
    assert [extreme.height_m for extreme in drop_wiggles(raw)] == [4.0, 0.98]


def test_unknown_constituents_are_refused():
    with pytest.raises(ConfigError, match="X9"):
        HarmonicModel(1.0, {"X9": (1.0, 0.0)})


def test_form_number_says_semidiurnal():
    assert form_number({"K1": 0.1, "O1": 0.1, "M2": 2.0, "S2": 0.7}) < 0.25


def test_tables(catalogue):
    station, source = catalogue.get("kelwick-bar"), catalogue.source("kelwick-bar")
    week = table(station, source, date(2026, 5, 1), 7)
    text, rows = render_text(week), render_csv(week).splitlines()
    assert text.startswith("Kelwick Bar  53°25.03'N")
    assert len(rows) == 1 + sum(len(entry.extremes) for entry in week)
    printed = week[0].as_dict()["extremes"][0]
    assert printed["height_m"] <= printed["raw_height_m"]
    with pytest.raises(SpanTooLong):
        table(station, source, date(2026, 5, 1), 401)


def test_springs_come_after_a_full_moon():
    ages = {moon_age(date(2026, 5, day)) for day in (2, 3, 4)}
    assert "springs" in ages
    assert "neaps" not in ages


def test_a_month_has_a_range(catalogue):
    figures = extremes_summary(catalogue.source("saltmere"), WEEK)
    assert figures["highest_m"] > figures["lowest_m"]
    assert figures["mean_range_m"] > 2.0


def test_the_catalogue(catalogue):
    assert catalogue.get("orrin-quay").grade == "B"
    station, distance = catalogue.nearest(53.40, -3.60)
    assert station.id == "kelwick-bar"
    assert distance < 2.0
    with pytest.raises(UnknownStation) as caught:
        catalogue.get("kelwich")
    assert caught.value.detail["did_you_mean"] == ["kelwick-bar"]
    with pytest.raises(UnknownStation):
        catalogue.nearest(0.0, 0.0)


def test_a_secondary_of_a_secondary_is_refused():
    base = {"latitude": 50.0, "longitude": 0.0, "datum_below_ordnance_m": 0.0}
    first = Station(id="a", name="A", **base, constants={"M2": (1.0, 0.0)})
    second = Station(id="b", name="B", **base, reference="a")
    third = Station(id="c", name="C", **base, reference="b")
    with pytest.raises(ConfigError, match="secondary"):
        Catalogue([first, second, third])


def test_windows_hold_enough_water(catalogue):
    source = catalogue.source("kelwick-bar")
    found = depth_windows(source, day_bounds(date(2026, 5, 1)), 6.0)
    assert len(found) == 3  # the first is already open at midnight, the last still is
    for window in found:
        assert source.height(window.start) >= 6.0 - 1e-6
        assert source.height(window.end) >= 6.0 - 1e-6
    assert source.height(found[1].start - timedelta(minutes=2)) < 6.0
    assert depth_windows(source, day_bounds(date(2026, 5, 1)), 99.0) == []
    with pytest.raises(SpanTooLong):
        depth_windows(source, Interval(MAY_DAY, MAY_DAY + timedelta(days=36)), 1.0)
    with pytest.raises(BadRequest):
        depth_windows(source, Interval(MAY_DAY, MAY_DAY), 1.0)


def test_clearance_and_squat():
    light = Vessel("v", "V", 8.0, 2.5, 1.2)
    deep = Vessel("w", "W", 30.0, 7.0, 4.5)
    assert under_keel_clearance(light, exposed=False) == 0.3
    assert under_keel_clearance(light, exposed=True) == 0.6
    assert under_keel_clearance(deep, exposed=False) == pytest.approx(0.45)
    assert squat_allowance(25.0) == squat_allowance(6.0)
    assert squat_allowance(-3.0) == 0.0


def test_sills_and_drying_berths(catalogue):
    source = catalogue.source("saltmere")
    vessel = Vessel("v", "V", 8.0, 2.5, 1.2)
    locked = Berth("L1", 14.0, 4.5, 3.0, sill_m=2.2)
    open_berth = Berth("A1", 12.0, 4.2, 2.4)
    drying = Berth("D1", 10.0, 3.8, -1.4, kind=BerthKind.DRYING)
    shallow = Berth("S1", 10.0, 3.8, 0.2)
    day = day_bounds(date(2026, 5, 1))
    assert required_at_sill(vessel, open_berth) is None
    assert required_at_sill(vessel, locked) == pytest.approx(2.2 + 1.2 + 0.3 + 0.088)
    assert arrival_windows(source, vessel, open_berth, day) == [day]
    assert arrival_windows(source, vessel, locked, day) != [day]
    assert stays_afloat(source, vessel, drying, day)
    assert not stays_afloat(source, vessel, shallow, day)
