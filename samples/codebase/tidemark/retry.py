"""Trying again, politely.

Delays grow exponentially from ``base_s`` and are drawn uniformly below that ceiling ("full
jitter"), so that a harbour full of clients cut off together does not come back together. A
server's own ``Retry-After`` outranks our arithmetic but not our patience: it is honoured up to
``RETRY_AFTER_CAP_S``.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tidemark.errors import CircuitOpen, ConfigError

log = logging.getLogger("tidemark.retry")

T = TypeVar("T")

#: Tries in all, the first included. Configuration may say otherwise: ``retry.max_attempts``.
MAX_ATTEMPTS = 4
BASE_S = 0.4
CEILING_S = 20.0
RETRY_AFTER_CAP_S = 75.0


class Transient(Exception):
    """Raised by an operation to ask for another try.

    ``retry_after_s`` is the server's own suggestion, when it made one.
    """

    def __init__(self, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


@dataclass(frozen=True)
class Policy:
    max_attempts: int = MAX_ATTEMPTS
    base_s: float = BASE_S
    ceiling_s: float = CEILING_S

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ConfigError("retry.max_attempts counts the first try, so it is at least 1")
        if self.base_s <= 0 or self.ceiling_s < self.base_s:
            raise ConfigError("retry needs 0 < base_s <= ceiling_s")

    def delay(self, failures: int, rng: random.Random) -> float:
        """Seconds to wait after the ``failures``-th failure (counting from 1)."""
        ceiling = min(self.ceiling_s, self.base_s * 2.0 ** (failures - 1))
        return rng.uniform(0.0, ceiling)


def call(
    operation: Callable[[], T],
    policy: Policy,
    *,
    sleep: Callable[[float], None] = time.sleep,
    rng: random.Random | None = None,
) -> T:
    """Run ``operation`` until it returns, raises something other than Transient, or we give up.

    The last Transient is re-raised as it came, so the caller decides what it means.
    """
    generator = rng or random.Random()
    for attempt in range(1, policy.max_attempts + 1):
        try:
            return operation()
        except Transient as problem:
            if attempt == policy.max_attempts:
                raise
            delay = policy.delay(attempt, generator)
            if problem.retry_after_s is not None:
                delay = min(max(delay, problem.retry_after_s), RETRY_AFTER_CAP_S)
            log.info("try %d failed (%s), again in %.1f s", attempt, problem, delay)
            sleep(delay)
    raise AssertionError("unreachable: max_attempts is at least 1")


class Breaker:
    """Stops calling something that is plainly down.

    After ``trip_after`` consecutive failures the breaker opens for ``rest_s``. Then one caller is
    let through; its success closes the breaker, its failure opens it for another rest.
    """

    def __init__(
        self,
        trip_after: int = 6,
        rest_s: float = 120.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._trip_after = trip_after
        self._rest_s = rest_s
        self._now = now
        self._failures = 0
        self._opened_at: float | None = None

    @property
    def is_open(self) -> bool:
        return self._opened_at is not None and self._now() - self._opened_at < self._rest_s

    def run(self, operation: Callable[[], T]) -> T:
        if self.is_open:
            left = self._rest_s - (self._now() - (self._opened_at or 0.0))
            raise CircuitOpen("resting after repeated failures", retry_after_s=round(left, 1))
        try:
            value = operation()
        except Exception:
            self._failures += 1
            if self._failures >= self._trip_after:
                self._opened_at = self._now()
            raise
        self._failures = 0
        self._opened_at = None
        return value
