"""Lengths, depths and speeds as people write them, and the rounding a mariner can trust.

Inside the package every length is a ``float`` in metres and every speed a ``float`` in knots.
Conversion happens here, at the edges, and nowhere else.
"""

from __future__ import annotations

import math
import re

from tidemark.errors import UnitError

METRES_PER = {
    "m": 1.0,
    "cm": 0.01,
    "ft": 0.3048,
    "in": 0.0254,
    "fm": 1.8288,  # fathom
    "cable": 185.2,
    "nm": 1852.0,
}

KNOTS_PER = {
    "kn": 1.0,
    "m/s": 3600.0 / 1852.0,
    "km/h": 1000.0 / 1852.0,
}

_ALIASES = {
    "metre": "m",
    "metres": "m",
    "meter": "m",
    "meters": "m",
    "foot": "ft",
    "feet": "ft",
    "'": "ft",
    "inch": "in",
    "inches": "in",
    '"': "in",
    "fathom": "fm",
    "fathoms": "fm",
    "cables": "cable",
    "nmi": "nm",
    "knot": "kn",
    "knots": "kn",
    "kt": "kn",
    "kph": "km/h",
}

_PART = re.compile(r"\s*(?P<number>[-+]?\d+(?:[.,]\d+)?)\s*(?P<unit>[a-zA-Z/'\"]*)")


def _unit(text: str) -> str:
    lowered = text.lower()
    return _ALIASES.get(lowered, lowered)


def parse_length(text: str, default_unit: str = "m") -> float:
    """Metres in ``text``: ``"3.2"``, ``"3,2 m"``, ``"10ft 6in"``, ``"2 fathoms"``.

    A bare number takes ``default_unit``, except after feet, where it is inches, because that is
    how skippers write it on the back of a form: ``"10ft 6"``.
    """
    position = 0
    total = 0.0
    previous = ""
    parts = 0
    stripped = text.strip()
    while position < len(stripped):
        match = _PART.match(stripped, position)
        if match is None:
            raise UnitError(f"cannot read {text!r} as a length", position=position)
        unit = _unit(match["unit"])
        if not unit:
            unit = "in" if previous == "ft" else default_unit
        if unit not in METRES_PER:
            raise UnitError(f"{match['unit']!r} is not a unit of length", known=sorted(METRES_PER))
        total += float(match["number"].replace(",", ".")) * METRES_PER[unit]
        previous = unit
        position = match.end()
        parts += 1
    if parts == 0:
        raise UnitError("a length is missing")
    return total


def parse_speed(text: str) -> float:
    """Knots in ``text``; a bare number is already knots."""
    match = _PART.fullmatch(text.strip())
    if match is None:
        raise UnitError(f"cannot read {text!r} as a speed")
    unit = _unit(match["unit"]) or "kn"
    if unit not in KNOTS_PER:
        raise UnitError(f"{match['unit']!r} is not a unit of speed", known=sorted(KNOTS_PER))
    return float(match["number"].replace(",", ".")) * KNOTS_PER[unit]


def floor_decimetre(height_m: float) -> float:
    """Round a tide height down to 0.1 m.

    Down, not to nearest: see docs/decisions/0003-round-heights-down.md. The small epsilon keeps
    4.300000001 from binary noise at 4.3 and 4.2999999999 from dropping to 4.2.
    """
    return math.floor(height_m * 10.0 + 1e-6) / 10.0


def ceil_decimetre(draught_m: float) -> float:
    """Round a draught up to 0.1 m, the mirror image of :func:`floor_decimetre`."""
    return math.ceil(draught_m * 10.0 - 1e-6) / 10.0


def format_length(metres: float, unit: str = "m") -> str:
    """``"3.2 m"``, ``"10 ft 6 in"`` or ``"1.7 fm"``."""
    if unit == "m":
        return f"{metres:.1f} m"
    if unit == "ft":
        inches = round(metres / METRES_PER["in"])
        sign = "-" if inches < 0 else ""
        feet, rest = divmod(abs(inches), 12)
        return f"{sign}{feet} ft {rest} in" if rest else f"{sign}{feet} ft"
    if unit == "fm":
        return f"{metres / METRES_PER['fm']:.1f} fm"
    raise UnitError(f"cannot format a length in {unit!r}")


def format_position(latitude: float, longitude: float) -> str:
    """Degrees and decimal minutes, the way a chart's margin has them."""

    def half(value: float, positive: str, negative: str, width: int) -> str:
        hemisphere = positive if value >= 0 else negative
        degrees, fraction = divmod(abs(value), 1.0)
        minutes = round(fraction * 60.0, 2)
        if minutes >= 60.0:
            degrees, minutes = degrees + 1, 0.0
        return f"{int(degrees):0{width}d}°{minutes:05.2f}'{hemisphere}"

    return f"{half(latitude, 'N', 'S', 2)} {half(longitude, 'E', 'W', 3)}"
