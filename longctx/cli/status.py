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


def status_of(event: Progress) -> Status:
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
    return Status(
        sanitize_line(f"{words}: {event.note}" if event.note else words),
        min(1.0, event.tokens / event.total_tokens) if event.total_tokens else None,
        tuple(facts),
        left,
    )


class ByteMeter:
    """Statuses of a transfer reported as (what, bytes done, bytes in all); it measures the speed.

    What an earlier run fetched already is no part of the speed: each stage counts from its first
    report.
    """

    def __init__(self) -> None:
        self._stage = ""
        self._began = 0.0
        self._first_bytes = 0

    def status(self, stage: str, done_bytes: int, total_bytes: int) -> Status:
        """The status now; `total_bytes` is 0 where it is unknown."""
        now = time.monotonic()
        if stage != self._stage or done_bytes < self._first_bytes:
            self._stage, self._began, self._first_bytes = stage, now, done_bytes
        speed = amounts.rate(done_bytes - self._first_bytes, now - self._began)
        facts = []
        if done_bytes:
            total = f" of {amounts.size(total_bytes)}" if total_bytes else ""
            facts.append(f"{amounts.size(done_bytes)}{total}")
        if speed is not None:
            facts.append(f"{amounts.size(int(speed))}/s")
        share = min(1.0, done_bytes / total_bytes) if total_bytes else None
        left = (total_bytes - done_bytes) / speed if speed and total_bytes > done_bytes else None
        return Status(sanitize_line(stage), share, tuple(facts), left)


def _of(done: int, total: int | None, noun: str) -> str:
    if total is None:
        return amounts.count(done, noun)
    return f"{amounts.count(done)}/{amounts.count(total, noun)}"
