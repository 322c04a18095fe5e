"""The station catalogue: which ports we predict for, and from what.

The catalogue is one TOML file (``config/stations.toml``). A ``[[standard]]`` entry carries its
own harmonic constants; a ``[[secondary]]`` entry names a standard port and its differences. A
secondary port may not lean on another secondary port: errors would compound and nobody would
notice.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from tidemark.errors import ConfigError, UnknownStation
from tidemark.tides import Differences, HarmonicModel, SecondaryModel, TideSource
from tidemark.units import format_position

EARTH_RADIUS_NM = 3440.065

#: A station farther away than this is not offered as "nearest".
NEAREST_LIMIT_NM = 25.0


@dataclass(frozen=True)
class Station:
    """One port. ``datum_below_ordnance_m`` converts chart heights to the land survey's zero."""

    id: str
    name: str
    latitude: float
    longitude: float
    datum_below_ordnance_m: float
    gauge: str | None = None
    reference: str | None = None
    z0_m: float = 0.0
    constants: dict[str, tuple[float, float]] = field(default_factory=dict, hash=False)
    differences: Differences | None = None
    remarks: str = ""

    @property
    def grade(self) -> str:
        """``"A"`` for harmonic predictions, ``"B"`` for secondary differences."""
        return "A" if self.reference is None else "B"

    @property
    def position(self) -> str:
        return format_position(self.latitude, self.longitude)

    def to_ordnance(self, height_m: float) -> float:
        """A height above chart datum as a height above ordnance datum."""
        return height_m - self.datum_below_ordnance_m

    def distance_nm(self, latitude: float, longitude: float) -> float:
        """Great-circle distance, by the haversine formula."""
        phi1, phi2 = math.radians(self.latitude), math.radians(latitude)
        half_phi = (phi2 - phi1) / 2.0
        half_lambda = math.radians(longitude - self.longitude) / 2.0
        chord = (
            math.sin(half_phi) ** 2
            + math.cos(phi1) * math.cos(phi2) * math.sin(half_lambda) ** 2
        )
        return 2.0 * EARTH_RADIUS_NM * math.asin(min(1.0, math.sqrt(chord)))

    def summary(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "position": self.position,
            "grade": self.grade,
            "gauge": self.gauge,
            "reference": self.reference,
            "datum_below_ordnance_m": self.datum_below_ordnance_m,
        }


class Catalogue:
    """All stations by id, and a tide source for each, built on first use."""

    def __init__(self, stations: list[Station]) -> None:
        self._stations: dict[str, Station] = {}
        for station in stations:
            if station.id in self._stations:
                raise ConfigError(f"station {station.id!r} appears twice")
            self._stations[station.id] = station
        for station in stations:
            self._check(station)
        self.source = lru_cache(maxsize=None)(self._build)

    @classmethod
    def from_toml(cls, path: Path) -> Catalogue:
        try:
            raw = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, tomllib.TOMLDecodeError) as problem:
            raise ConfigError(f"cannot read the station catalogue {path}: {problem}") from problem
        stations = [_standard(entry) for entry in raw.get("standard", [])]
        stations += [_secondary(entry) for entry in raw.get("secondary", [])]
        if not stations:
            raise ConfigError(f"{path} defines no stations")
        return cls(stations)

    def _check(self, station: Station) -> None:
        if not -90.0 <= station.latitude <= 90.0 or not -180.0 <= station.longitude <= 180.0:
            raise ConfigError(f"station {station.id!r} is not on this planet")
        if station.reference is None:
            return
        reference = self._stations.get(station.reference)
        if reference is None:
            raise ConfigError(f"{station.id!r} refers to unknown port {station.reference!r}")
        if reference.reference is not None:
            raise ConfigError(f"{station.id!r} refers to {reference.id!r}, itself a secondary port")

    def __iter__(self) -> Iterator[Station]:
        return iter(sorted(self._stations.values(), key=lambda station: station.id))

    def __len__(self) -> int:
        return len(self._stations)

    def get(self, station_id: str) -> Station:
        station = self._stations.get(station_id)
        if station is None:
            close = [s.id for s in self if s.id.startswith(station_id[:3])]
            raise UnknownStation(f"no station {station_id!r}", did_you_mean=close)
        return station

    def _build(self, station_id: str) -> TideSource:
        station = self.get(station_id)
        if station.reference is None:
            return HarmonicModel(station.z0_m, station.constants)
        if station.differences is None:
            raise ConfigError(f"{station.id!r} has a reference port but no differences")
        return SecondaryModel(self.source(station.reference), station.differences)

    def nearest(self, latitude: float, longitude: float) -> tuple[Station, float]:
        """The closest station and its distance in nautical miles."""
        ranked = sorted((s.distance_nm(latitude, longitude), s.id) for s in self)
        distance, station_id = ranked[0]
        if distance > NEAREST_LIMIT_NM:
            raise UnknownStation(
                f"the nearest station is {distance:.0f} nm away", nearest=station_id
            )
        return self.get(station_id), distance

    def with_gauges(self) -> list[Station]:
        return [station for station in self if station.gauge]


def _common(entry: dict[str, Any]) -> dict[str, Any]:
    try:
        return {
            "id": entry["id"],
            "name": entry["name"],
            "latitude": float(entry["latitude"]),
            "longitude": float(entry["longitude"]),
            "datum_below_ordnance_m": float(entry["datum_below_ordnance_m"]),
            "gauge": entry.get("gauge"),
            "remarks": entry.get("remarks", ""),
        }
    except KeyError as missing:
        label = entry.get("id", "an unnamed station")
        raise ConfigError(f"{label}: {missing.args[0]} is missing") from None


def _standard(entry: dict[str, Any]) -> Station:
    constants = {
        name: (float(pair[0]), float(pair[1]))
        for name, pair in entry.get("constants", {}).items()
    }
    return Station(**_common(entry), z0_m=float(entry.get("z0_m", 0.0)), constants=constants)


def _secondary(entry: dict[str, Any]) -> Station:
    differences = Differences(
        high_minutes=float(entry.get("high_minutes", 0.0)),
        low_minutes=float(entry.get("low_minutes", 0.0)),
        high_ratio=float(entry.get("high_ratio", 1.0)),
        low_ratio=float(entry.get("low_ratio", 1.0)),
    )
    return Station(**_common(entry), reference=entry.get("reference"), differences=differences)
