"""A small harbour to test against: five berths, three vessels, a clock that stands still."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tidemark.billing import Tariffs
from tidemark.clock import FrozenClock
from tidemark.config import Gauge, Service, Settings
from tidemark.model import Berth, BerthKind, Vessel
from tidemark.service import Harbour
from tidemark.stations import Catalogue
from tidemark.store import Store

ROOT = Path(__file__).resolve().parent.parent

BERTHS = [
    Berth("A1", 12.0, 4.2, 2.4),
    Berth("A2", 9.0, 3.4, 1.6),
    Berth("B1", 16.0, 5.5, 3.5, power_amps=32),
    Berth("D1", 10.0, 3.8, -1.4, kind=BerthKind.DRYING, tariff_class="drying"),
    Berth("L1", 14.0, 4.5, 3.0, sill_m=2.2, tariff_class="quay"),
]

WREN = Vessel("wren", "Wren", 7.9, 2.7, 1.1, contact_e164="+441632960101")
HERON = Vessel("heron", "Heron", 11.0, 3.6, 1.7)
OTTER = Vessel("otter", "Otter", 11.4, 5.2, 0.9, hulls=2)


@pytest.fixture(scope="session")
def catalogue() -> Catalogue:
    return Catalogue.from_toml(ROOT / "config" / "stations.toml")


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock(datetime(2026, 5, 1, 12, 0, tzinfo=UTC))


@pytest.fixture
def store():
    opened = Store(":memory:")
    opened.migrate(ROOT / "migrations")
    for berth in BERTHS:
        opened.put_berth(berth)
    for vessel in (WREN, HERON, OTTER):
        opened.put_vessel(vessel)
    yield opened
    opened.close()


@pytest.fixture
def harbour(store: Store, catalogue: Catalogue, clock: FrozenClock) -> Harbour:
    settings = Settings(service=Service(home_station="saltmere"), gauge=Gauge(enabled=False))
    tariffs = Tariffs.from_toml(ROOT / "config" / "tariffs.toml")
    return Harbour(settings, catalogue, tariffs, store, clock)
