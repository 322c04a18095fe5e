"""How long each phase of a question took."""

from __future__ import annotations

import time


class Clock:
    """Seconds of each phase, and of all of them together."""

    def __init__(self, before: dict[str, float]):
        self._seconds = {"load": 0.0, "index": 0.0, "select": 0.0, "first_token": 0.0, **before}
        self._start = self._last = time.perf_counter()

    def mark(self, phase: str) -> None:
        now = time.perf_counter()
        self._seconds[phase] = now - self._last
        self._last = now

    def report(self) -> dict[str, float]:
        spent = time.perf_counter() - self._start
        before = self._seconds["load"] + self._seconds["index"]
        first = before + self._seconds["select"] + self._seconds["first_token"]
        return {
            "load": round(self._seconds["load"], 3),
            "index": round(self._seconds["index"], 3),
            "select": round(self._seconds["select"], 3),
            "first_token": round(first, 3),
            "total": round(before + spent, 3),
        }
