"""How far work got, in words: what a line of progress says, on a terminal or in a log."""

from __future__ import annotations

import time
from dataclasses import dataclass

from longctx.cli import amounts
from longctx.documents.sanitize import sanitize_line
from longctx.engines.base import Progress

_STAGES = {
    "read": "reading files",
    "load": "loading the model",
    "index": "indexing",
    "select": "searching",
    "answer": "reading the evidence",
}


@dataclass(frozen=True)
class Status:
    """One moment of some work.

    `share` is 0..1, None where the end is unknown; `facts` come least important first;
    `seconds_left` were left when this was measured.
    """

    label: str
    share: float | None = None
    facts: tuple[str, ...] = ()
    seconds_left: float | None = None

    def told(self, age_seconds: float = 0.0) -> list[str]:
        """The facts with the time left, `age_seconds` after they were measured."""
        if self.seconds_left is None:
            return list(self.facts)
        return [*self.facts, f"{amounts.duration(self.seconds_left - age_seconds)} left"]


class Meter:
    """Makes statuses of what engines and transfers report.

    It measures the speed of a transfer itself; what an earlier run fetched already is no part of
    that, so it counts from the first report of each transfer.
    """

    def __init__(self) -> None:
        self._began = 0.0
        self._first_bytes = 0
        self._last: tuple[int, int] | None = None

    def of_event(self, event: Progress) -> Status:
        """The status an event tells of; loading counts in bytes, all else in tokens."""
        if event.stage == "load":
            what = event.note or _STAGES["load"]
            return self.of_bytes(what, event.tokens, event.total_tokens or 0)
        return _of_tokens(event)

    def of_bytes(self, what: str, done: int, total: int) -> Status:
        """The status of a transfer or conversion; `total` is 0 where it is unknown."""
        now = time.monotonic()
        if self._last is None or done < self._last[0] or total != self._last[1]:
            self._began, self._first_bytes = now, done
        self._last = done, total
        speed = amounts.rate(done - self._first_bytes, now - self._began)
        facts = []
        if done:
            of_all = f" of {amounts.size(total)}" if total else ""
            facts.append(f"{amounts.size(done)}{of_all}")
        if speed is not None:
            facts.append(f"{amounts.size(int(speed))}/s")
        left = (total - done) / speed if speed and total > done else None
        return Status(sanitize_line(what), _share(done, total), tuple(facts), left)


def _of_tokens(event: Progress) -> Status:
    """Documents, tokens, speed and time left of an engine's event."""
    words = _STAGES.get(event.stage, event.stage)
    facts = []
    if event.documents or event.total_documents:
        facts.append(_of(event.documents, event.total_documents, "document"))
    if event.tokens or event.total_tokens:
        facts.append(_of(event.tokens, event.total_tokens, "token"))
    speed = amounts.rate(event.tokens, event.seconds)
    left = None
    if speed is not None:
        facts.append(amounts.per_second(speed))
        if event.total_tokens is not None and event.total_tokens > event.tokens:
            left = (event.total_tokens - event.tokens) / speed
    label = sanitize_line(f"{words}: {event.note}" if event.note else words)
    return Status(label, _share(event.tokens, event.total_tokens or 0), tuple(facts), left)


def _share(done: int, total: int) -> float | None:
    return min(1.0, done / total) if total else None


def _of(done: int, total: int | None, noun: str) -> str:
    if total is None:
        return amounts.count(done, noun)
    return f"{amounts.count(done)}/{amounts.count(total, noun)}"
