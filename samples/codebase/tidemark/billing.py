"""What a stay costs.

Money is whole pence everywhere except inside one multiplication, where it is ``Decimal``; a
``float`` never touches it. Rules that a harbour may change each year live in
``config/tariffs.toml``; rules that are in the byelaws live here.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import ROUND_CEILING, ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

from tidemark.clock import Interval
from tidemark.errors import ConfigError, TariffMissing
from tidemark.model import Berth, Reservation, State, Vessel

#: Byelaw 14: notice given before arrival, and the share of the price then charged.
CANCELLATION_TIERS: tuple[tuple[timedelta, int], ...] = (
    (timedelta(hours=72), 0),
    (timedelta(hours=24), 30),
    (timedelta(0), 80),
)

#: Byelaw 15: someone who never arrives pays in full.
NO_SHOW_PERCENT = 100

#: Byelaw 9: a vessel with more than one hull takes two places' width.
MULTIHULL_FACTOR = Decimal("1.5")

GRACE = timedelta(minutes=90)
MINIMUM_LOA_M = 6.0


def round_pence(amount: Decimal) -> int:
    """Half a penny goes up, as the byelaws say; not to even, as Python would."""
    return int(amount.quantize(Decimal(1), rounding=ROUND_HALF_UP))


@dataclass(frozen=True)
class Tariff:
    """Price of one class of berth over an inclusive range of days."""

    berth_class: str
    first: date
    last: date
    pence_per_metre_day: Decimal

    def covers(self, berth_class: str, day: date) -> bool:
        return self.berth_class == berth_class and self.first <= day <= self.last


@dataclass(frozen=True)
class Line:
    text: str
    quantity: str
    pence: int

    def as_dict(self) -> dict[str, Any]:
        return {"text": self.text, "quantity": self.quantity, "pence": self.pence}


@dataclass(frozen=True)
class Quote:
    lines: tuple[Line, ...]
    vat_percent: Decimal

    @property
    def net_pence(self) -> int:
        return sum(line.pence for line in self.lines)

    @property
    def vat_pence(self) -> int:
        return round_pence(self.net_pence * self.vat_percent / 100)

    @property
    def gross_pence(self) -> int:
        return self.net_pence + self.vat_pence


class Tariffs:
    def __init__(
        self,
        tariffs: list[Tariff],
        long_stay: dict[int, int] | None = None,
        power_pence_per_day: int = 0,
    ) -> None:
        self._tariffs = tariffs
        self._long_stay = sorted((long_stay or {}).items(), reverse=True)
        self.power_pence_per_day = power_pence_per_day
        self._refuse_overlaps()

    @classmethod
    def from_toml(cls, path: Path) -> Tariffs:
        try:
            raw = tomllib.loads(path.read_text(encoding="utf-8"))
            tariffs = [
                Tariff(
                    entry["class"],
                    entry["first"],
                    entry["last"],
                    Decimal(str(entry["pence_per_metre_day"])),
                )
                for entry in raw["tariff"]
            ]
            long_stay = {entry["days"]: entry["percent"] for entry in raw.get("long_stay", [])}
        except (OSError, tomllib.TOMLDecodeError, KeyError) as problem:
            raise ConfigError(f"cannot use the tariff file {path}: {problem!r}") from problem
        return cls(tariffs, long_stay, raw.get("power", {}).get("pence_per_day", 0))

    def _refuse_overlaps(self) -> None:
        ordered = sorted(self._tariffs, key=lambda t: (t.berth_class, t.first))
        for before, after in zip(ordered, ordered[1:], strict=False):
            if before.berth_class == after.berth_class and after.first <= before.last:
                raise ConfigError(
                    f"two tariffs for {before.berth_class} both cover {after.first.isoformat()}"
                )

    def find(self, berth_class: str, day: date) -> Tariff:
        for tariff in self._tariffs:
            if tariff.covers(berth_class, day):
                return tariff
        raise TariffMissing(
            f"no tariff for {berth_class} on {day.isoformat()}", berth_class=berth_class
        )

    def discount_percent(self, days: int) -> int:
        """The best long-stay discount earned by ``days``."""
        for threshold, percent in self._long_stay:
            if days >= threshold:
                return percent
        return 0


def chargeable_days(stay: Interval, grace: timedelta = GRACE) -> list[date]:
    """A day for every 24 hours begun since arrival, the last one forgiven if it is only grace.

    At least one day is charged however short the stay.
    """
    length = max(stay.length - grace, timedelta(seconds=1))
    count = -(-length // timedelta(days=1))
    return [(stay.start + timedelta(days=n)).date() for n in range(count)]


def billable_length(vessel: Vessel, minimum_m: float = MINIMUM_LOA_M) -> Decimal:
    """Length overall in metres, to the next tenth up, and not under the minimum."""
    exact = Decimal(str(max(vessel.loa_m, minimum_m)))
    # Not -(-exact // 1): unlike int, Decimal's // rounds towards zero.
    return exact.quantize(Decimal("0.1"), rounding=ROUND_CEILING)


def quote(
    tariffs: Tariffs,
    vessel: Vessel,
    berth: Berth,
    stay: Interval,
    *,
    power: bool = False,
    vat_percent: float = 20.0,
    grace: timedelta = GRACE,
    minimum_loa_m: float = MINIMUM_LOA_M,
) -> Quote:
    """Price a stay. Each day is charged at the tariff in force on that day.

    Raises TariffMissing if any day of the stay has none.
    """
    days = chargeable_days(stay, grace)
    length = billable_length(vessel, minimum_loa_m)
    by_rate: dict[Decimal, int] = {}
    for day in days:
        rate = tariffs.find(berth.tariff_class, day).pence_per_metre_day
        by_rate[rate] = by_rate.get(rate, 0) + 1
    lines: list[Line] = []
    berthing = 0
    for rate, count in by_rate.items():
        pence = round_pence(rate * length * count)
        berthing += pence
        text = f"Berth {berth.code}, {length} m at {rate}p a metre a day"
        lines.append(Line(text, f"{count} d", pence))
    if vessel.is_multihull:
        extra = round_pence(berthing * (MULTIHULL_FACTOR - 1))
        lines.append(Line("Multihull", "", extra))
        berthing += extra
    percent = tariffs.discount_percent(len(days))
    if percent:
        lines.append(
            Line(f"Long stay, {percent}%", "", -round_pence(Decimal(berthing * percent) / 100))
        )
    if power:
        # Not discounted: the harbour buys the electricity at the same price on every day.
        lines.append(
            Line("Shore power", f"{len(days)} d", tariffs.power_pence_per_day * len(days))
        )
    return Quote(tuple(lines), Decimal(str(vat_percent)))


def cancellation_percent(arrives: datetime, now: datetime) -> int:
    """Share of the price due when cancelling at ``now``; after arrival time it is a no-show."""
    notice = arrives - now
    for least, percent in CANCELLATION_TIERS:
        if notice >= least:
            return percent
    return NO_SHOW_PERCENT


def cancellation_charge(reservation: Reservation, now: datetime) -> int:
    """Pence owed for giving up ``reservation`` at ``now``. A mere hold costs nothing."""
    if reservation.state is State.HELD:
        return 0
    percent = cancellation_percent(reservation.stay.start, now)
    return round_pence(Decimal(reservation.price_pence * percent) / 100)


def format_pence(pence: int, currency: str = "GBP") -> str:
    symbol = {"GBP": "£", "EUR": "€"}.get(currency, currency + " ")
    sign = "-" if pence < 0 else ""
    return f"{sign}{symbol}{abs(pence) // 100:,}.{abs(pence) % 100:02d}"
