"""Tidal constituents: their Doodson numbers, equilibrium arguments and nodal corrections.

A constituent is a cosine whose phase is a whole-number combination of six slowly turning
astronomical angles. The lunar node's 18.6 year cycle is too slow to resolve from one year of
gauge data, so it enters as a correction: a factor ``f`` on the amplitude and an angle ``u``
added to the phase. Solar constituents have no nodal correction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

J2000 = datetime(2000, 1, 1, 12, tzinfo=UTC)
HOURS_PER_CENTURY = 36525.0 * 24.0


@dataclass(frozen=True)
class Astro:
    """The six fundamental angles in degrees, at one instant.

    ``tau`` mean lunar time, ``s`` moon, ``h`` sun, ``p`` lunar perigee, ``n`` ascending node
    (not negated), ``p1`` solar perigee.
    """

    tau: float
    s: float
    h: float
    p: float
    n: float
    p1: float


# Mean longitude at J2000 (degrees) and rate (degrees per Julian century).
_ELEMENTS = {
    "s": (218.3164477, 481267.88123421),
    "h": (280.46646, 36000.76983),
    "p": (83.3532465, 4069.0137287),
    "n": (125.04452, -1934.136261),
    "p1": (282.93735, 1.71946),
}


def astro(instant: datetime) -> Astro:
    """Fundamental angles at ``instant``.

    TT - UT is ignored; at 70 s it moves the moon by a hundredth of a degree, far less than the
    harmonic constants are known to.
    """
    centuries = (instant - J2000).total_seconds() / 3600.0 / HOURS_PER_CENTURY
    angle = {name: (a + b * centuries) % 360.0 for name, (a, b) in _ELEMENTS.items()}
    midnight = instant.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    hours = (instant - midnight).total_seconds() / 3600.0
    tau = (15.0 * hours - angle["s"] + angle["h"]) % 360.0
    return Astro(tau, angle["s"], angle["h"], angle["p"], angle["n"], angle["p1"])


Nodal = Callable[[float], tuple[float, float]]


def _none(_: float) -> tuple[float, float]:
    return 1.0, 0.0


def _m2(n: float) -> tuple[float, float]:
    f = 1.0004 - 0.0373 * math.cos(n) + 0.0002 * math.cos(2 * n)
    return f, -2.14 * math.sin(n)


def _o1(n: float) -> tuple[float, float]:
    f = 1.0089 + 0.1871 * math.cos(n) - 0.0147 * math.cos(2 * n) + 0.0014 * math.cos(3 * n)
    u = 10.80 * math.sin(n) - 1.34 * math.sin(2 * n) + 0.19 * math.sin(3 * n)
    return f, u


def _k1(n: float) -> tuple[float, float]:
    f = 1.0060 + 0.1150 * math.cos(n) - 0.0088 * math.cos(2 * n) + 0.0006 * math.cos(3 * n)
    u = -8.86 * math.sin(n) + 0.68 * math.sin(2 * n) - 0.07 * math.sin(3 * n)
    return f, u


def _k2(n: float) -> tuple[float, float]:
    f = 1.0241 + 0.2863 * math.cos(n) + 0.0083 * math.cos(2 * n) - 0.0015 * math.cos(3 * n)
    u = -17.74 * math.sin(n) + 0.68 * math.sin(2 * n) - 0.04 * math.sin(3 * n)
    return f, u


def _mf(n: float) -> tuple[float, float]:
    f = 1.0429 + 0.4135 * math.cos(n) - 0.0040 * math.cos(2 * n)
    u = -23.74 * math.sin(n) + 2.68 * math.sin(2 * n) - 0.38 * math.sin(3 * n)
    return f, u


def _mm(n: float) -> tuple[float, float]:
    return 1.0 - 0.1300 * math.cos(n) + 0.0013 * math.cos(2 * n), 0.0


def _power(base: Nodal, times: int) -> Nodal:
    """Shallow-water constituents inherit their parents' correction, once for each parent."""

    def corrected(n: float) -> tuple[float, float]:
        f, u = base(n)
        return f**times, u * times

    return corrected


@dataclass(frozen=True)
class Constituent:
    name: str
    doodson: tuple[int, int, int, int, int]  # multiples of tau, s, h, p, p1
    phase: float  # degrees, the quarter turns that make odd species cosines
    nodal: Nodal = _none

    @property
    def speed(self) -> float:
        """Degrees per mean solar hour."""
        tau, s, h, p, p1 = self.doodson
        rate = {name: b / HOURS_PER_CENTURY for name, (_, b) in _ELEMENTS.items()}
        tau_rate = 15.0 - rate["s"] + rate["h"]
        return tau * tau_rate + s * rate["s"] + h * rate["h"] + p * rate["p"] + p1 * rate["p1"]

    def argument(self, angles: Astro) -> float:
        """Equilibrium argument V in degrees, in [0, 360)."""
        tau, s, h, p, p1 = self.doodson
        total = tau * angles.tau + s * angles.s + h * angles.h + p * angles.p + p1 * angles.p1
        return (total + self.phase) % 360.0

    def correction(self, node_degrees: float) -> tuple[float, float]:
        """Nodal factor ``f`` (a ratio) and angle ``u`` (degrees)."""
        return self.nodal(math.radians(node_degrees))


_TABLE = [
    # long period
    Constituent("SA", (0, 0, 1, 0, 0), 0.0),
    Constituent("SSA", (0, 0, 2, 0, 0), 0.0),
    Constituent("MM", (0, 1, 0, -1, 0), 0.0, _mm),
    Constituent("MF", (0, 2, 0, 0, 0), 0.0, _mf),
    # diurnal
    Constituent("Q1", (1, -2, 0, 1, 0), 270.0, _o1),
    Constituent("O1", (1, -1, 0, 0, 0), 270.0, _o1),
    Constituent("P1", (1, 1, -2, 0, 0), 270.0),
    Constituent("K1", (1, 1, 0, 0, 0), 90.0, _k1),
    # semidiurnal
    Constituent("2N2", (2, -2, 0, 2, 0), 0.0, _m2),
    Constituent("MU2", (2, -2, 2, 0, 0), 0.0, _m2),
    Constituent("N2", (2, -1, 0, 1, 0), 0.0, _m2),
    Constituent("NU2", (2, -1, 2, -1, 0), 0.0, _m2),
    Constituent("M2", (2, 0, 0, 0, 0), 0.0, _m2),
    Constituent("L2", (2, 1, 0, -1, 0), 180.0, _m2),
    Constituent("T2", (2, 2, -3, 0, 1), 0.0),
    Constituent("S2", (2, 2, -2, 0, 0), 0.0),
    Constituent("K2", (2, 2, 0, 0, 0), 0.0, _k2),
    # shallow water
    Constituent("MN4", (4, -1, 0, 1, 0), 0.0, _power(_m2, 2)),
    Constituent("M4", (4, 0, 0, 0, 0), 0.0, _power(_m2, 2)),
    Constituent("MS4", (4, 2, -2, 0, 0), 0.0, _m2),
    Constituent("M6", (6, 0, 0, 0, 0), 0.0, _power(_m2, 3)),
    Constituent("2MS6", (6, 2, -2, 0, 0), 0.0, _power(_m2, 2)),
]

CONSTITUENTS: dict[str, Constituent] = {entry.name: entry for entry in _TABLE}


def form_number(amplitudes: dict[str, float]) -> float:
    """(K1 + O1) / (M2 + S2): below 0.25 the tide is semidiurnal, above 3 diurnal."""
    diurnal = amplitudes.get("K1", 0.0) + amplitudes.get("O1", 0.0)
    semidiurnal = amplitudes.get("M2", 0.0) + amplitudes.get("S2", 0.0)
    return diurnal / semidiurnal if semidiurnal else math.inf
