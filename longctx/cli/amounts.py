"""Numbers as people read them: counts, sizes, durations and floating point operations."""

from __future__ import annotations

_OPERATIONS = ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP", "ZFLOP")
_SIZES = ("bytes", "kB", "MB", "GB", "TB", "PB")


def count(number: float, one: str = "", many: str = "") -> str:
    """1234, "file" -> "1,234 files"; without a noun the number alone."""
    shown = f"{round(number):,}"
    if not one:
        return shown
    return f"{shown} {one if round(number) == 1 else many or one + 's'}"


def size(number: int) -> str:
    """Bytes in decimal units, as file managers and download pages show them."""
    return f"{number} bytes" if number < 1000 else _scaled(number, _SIZES)


def operations(flops: float) -> str:
    """Floating point operations with three significant digits: "12.3 TFLOP"."""
    return _scaled(flops, _OPERATIONS)


def duration(seconds: float) -> str:
    """Whole seconds, then minutes, then hours; never negative."""
    left = max(0, round(seconds))
    if left < 60:
        return f"{left} s"
    if left < 3600:
        return f"{left // 60} min {left % 60:02d} s"
    return f"{left // 3600} h {left % 3600 // 60:02d} min"


def rate(tokens: float, seconds: float) -> float | None:
    """Tokens per second; None where nothing was measured."""
    return tokens / seconds if tokens > 0 and seconds > 0 else None


def per_second(tokens_per_second: float) -> str:
    """A speed with as many digits as mean something: "3,200 tokens/s", "4.7 tokens/s"."""
    shown = f"{tokens_per_second:,.0f}" if tokens_per_second >= 100 else f"{tokens_per_second:.1f}"
    return f"{shown} tokens/s"


def _scaled(number: float, units: tuple[str, ...]) -> str:
    value, unit = float(number), 0
    # 999.5 would be rounded to "1000" of its unit
    while value >= 999.5 and unit < len(units) - 1:
        value, unit = value / 1000, unit + 1
    digits = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    shown = f"{value:,.{digits}f}" if unit else f"{value:,.0f}"
    return f"{shown} {units[unit]}"
