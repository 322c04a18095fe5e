from datetime import UTC, datetime, timedelta

import pytest
from conftest import ROOT

from tidemark.clock import (
    FREEZE_VARIABLE,
    Interval,
    SystemClock,
    clock_from_environment,
    format_instant,
    from_epoch,
    gaps,
    merge,
    parse_instant,
    to_epoch,
)
from tidemark.errors import BadRequest, UnitError, all_codes
from tidemark.units import (
    ceil_decimetre,
    floor_decimetre,
    format_length,
    format_position,
    parse_length,
    parse_speed,
)


def hour(n: int) -> datetime:
    return datetime(2026, 5, 1, tzinfo=UTC) + timedelta(hours=n)


@pytest.mark.parametrize(
    ("text", "metres"),
    [
        ("3.2", 3.2),
        ("3,2 m", 3.2),
        ("10ft 6in", 3.2004),
        ("10ft 6", 3.2004),
        ("2 fathoms", 3.6576),
        ("-1.4 m", -1.4),
    ],
)
def test_lengths_as_people_write_them(text, metres):
    assert parse_length(text) == pytest.approx(metres)


@pytest.mark.parametrize("text", ["", "deep", "3 stone", "4m!"])
def test_what_is_not_a_length(text):
    with pytest.raises(UnitError):
        parse_length(text)


def test_speeds():
    assert parse_speed("6") == 6.0
    assert parse_speed("10 km/h") == pytest.approx(5.4, abs=0.01)
    with pytest.raises(UnitError):
        parse_speed("6 furlongs")


def test_heights_go_down_and_draughts_go_up():
    assert floor_decimetre(4.39) == 4.3
    assert floor_decimetre(4.3) == 4.3
    assert floor_decimetre(-0.05) == -0.1
    assert ceil_decimetre(1.71) == 1.8
    assert ceil_decimetre(1.7) == 1.7


def test_formats():
    assert format_length(3.2004, "ft") == "10 ft 6 in"
    assert format_length(1.83, "fm") == "1.0 fm"
    assert format_position(53.4172, -3.6015) == "53°25.03'N 003°36.09'W"
    assert format_position(9.99999, 0.0).startswith("10°00.00'N")


def test_naive_times_are_refused():
    with pytest.raises(BadRequest):
        parse_instant("2026-05-01T06:00:00")
    assert format_instant(parse_instant("2026-05-01T07:00+01:00")) == "2026-05-01T06:00:00Z"


def test_epoch_round_trip():
    assert from_epoch(to_epoch(hour(5))) == hour(5)


def test_touching_stays_do_not_overlap():
    assert not Interval(hour(0), hour(2)).overlaps(Interval(hour(2), hour(4)))
    assert Interval(hour(0), hour(3)).overlaps(Interval(hour(2), hour(4)))


def test_merge_and_gaps_are_complements():
    taken = [Interval(hour(5), hour(7)), Interval(hour(1), hour(2)), Interval(hour(2), hour(3))]
    assert merge(taken) == [Interval(hour(1), hour(3)), Interval(hour(5), hour(7))]
    assert gaps(Interval(hour(0), hour(6)), taken) == [
        Interval(hour(0), hour(1)),
        Interval(hour(3), hour(5)),
    ]


def test_the_clock_can_be_pinned_but_not_in_production():
    environ = {FREEZE_VARIABLE: "2026-05-01T00:00:00Z"}
    assert clock_from_environment(environ).now() == hour(0)
    assert isinstance(clock_from_environment({}), SystemClock)
    with pytest.raises(BadRequest):
        clock_from_environment(environ, profile="production")


def test_every_error_code_is_unique_and_well_formed():
    codes = all_codes()
    assert all(code.startswith("TM") and len(code) == 6 for code in codes)
    assert "TM2003" not in codes  # retired


def test_every_error_code_is_documented():
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    missing = [code for code in all_codes() if code not in text]
    assert missing == []
