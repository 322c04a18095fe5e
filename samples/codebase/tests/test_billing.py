from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from conftest import BERTHS, HERON, OTTER, ROOT, WREN

from tidemark.billing import (
    Tariff,
    Tariffs,
    billable_length,
    cancellation_charge,
    cancellation_percent,
    chargeable_days,
    format_pence,
    quote,
    round_pence,
)
from tidemark.clock import Interval
from tidemark.errors import ConfigError, TariffMissing
from tidemark.model import Priority, Reservation, State, Vessel

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
A1 = BERTHS[0]


def days(count: float) -> Interval:
    return Interval(NOON, NOON + timedelta(days=count))


@pytest.fixture(scope="module")
def tariffs() -> Tariffs:
    return Tariffs.from_toml(ROOT / "config" / "tariffs.toml")


def test_half_a_penny_goes_up():
    assert round_pence(Decimal("0.5")) == 1
    assert round_pence(Decimal("2.5")) == 3


def test_a_day_is_24_hours_begun_with_grace_at_the_end():
    assert len(chargeable_days(days(0.1))) == 1
    assert len(chargeable_days(days(1))) == 1
    assert len(chargeable_days(Interval(NOON, NOON + timedelta(hours=25, minutes=30)))) == 1
    assert len(chargeable_days(Interval(NOON, NOON + timedelta(hours=25, minutes=31)))) == 2


def test_length_is_charged_to_the_next_tenth_and_from_a_minimum():
    assert billable_length(Vessel("v", "V", 7.91, 2.5, 1.0)) == Decimal("8.0")
    assert billable_length(Vessel("v", "V", 7.9, 2.5, 1.0)) == Decimal("7.9")
    assert billable_length(Vessel("v", "V", 4.2, 1.5, 0.4)) == Decimal("6")


def test_a_plain_quote(tariffs):
    price = quote(tariffs, WREN, A1, days(2))
    assert price.net_pence == round(340 * 7.9 * 2)
    assert price.vat_pence == 1074
    assert price.gross_pence == price.net_pence + price.vat_pence


def test_a_stay_across_the_season_pays_both_rates(tariffs):
    autumn = datetime(2026, 10, 30, 12, tzinfo=UTC)
    price = quote(tariffs, HERON, A1, Interval(autumn, autumn + timedelta(days=4)))
    assert [line.quantity for line in price.lines] == ["2 d", "2 d"]
    assert price.net_pence == 340 * 11 * 2 + 205 * 11 * 2


def test_two_hulls_and_a_long_stay(tariffs):
    price = quote(tariffs, OTTER, A1, days(7), power=True)
    berthing = round(340 * 11.4 * 7)
    with_hulls = berthing + berthing // 2
    texts = [line.text for line in price.lines]
    assert texts[1:] == ["Multihull", "Long stay, 12%", "Shore power"]
    assert price.net_pence == with_hulls - round(with_hulls * 0.12) + 460 * 7


def test_the_best_discount_wins(tariffs):
    assert [tariffs.discount_percent(n) for n in (6, 7, 13, 14, 40)] == [0, 12, 12, 19, 19]


def test_no_tariff_no_quote(tariffs):
    far = datetime(2031, 1, 1, tzinfo=UTC)
    with pytest.raises(TariffMissing):
        quote(tariffs, WREN, A1, Interval(far, far + timedelta(days=1)))


def test_overlapping_tariffs_are_refused():
    first = Tariff("quay", date(2026, 1, 1), date(2026, 6, 30), Decimal(100))
    second = Tariff("quay", date(2026, 6, 30), date(2026, 12, 31), Decimal(110))
    with pytest.raises(ConfigError, match="2026-06-30"):
        Tariffs([first, second])


@pytest.mark.parametrize(
    ("hours", "percent"), [(100, 0), (72, 0), (71.9, 30), (24, 30), (23.9, 80), (0, 80), (-1, 100)]
)
def test_cancellation_tiers(hours, percent):
    assert cancellation_percent(NOON, NOON - timedelta(hours=hours)) == percent


def test_a_hold_costs_nothing_to_drop():
    held = Reservation("R", "wren", "A1", days(2), State.HELD, Priority.VISITOR, 1, NOON,
                       price_pence=9999)
    assert cancellation_charge(held, NOON) == 0


def test_money_is_printed_with_its_sign_outside():
    assert format_pence(-123456) == "-£1,234.56"
    assert format_pence(5, "EUR") == "€0.05"
    assert format_pence(100, "NOK") == "NOK 1.00"
