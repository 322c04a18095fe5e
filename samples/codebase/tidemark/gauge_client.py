"""Reading live water levels from the gauge network.

The feed is one JSON document per gauge:

    {"gauge": "KLW1", "unit": "m", "levels": [["2026-05-01T06:00:00Z", 3.41], ...]}

Levels are relative to the gauge's own zero, which the network promises is chart datum. The
transport is a plain function so tests need no sockets.
"""

from __future__ import annotations

import json
import logging
import random
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidemark.clock import parse_instant
from tidemark.errors import BadRequest, GaugeUnavailable, TidemarkError
from tidemark.retry import Breaker, Policy, Transient, call
from tidemark.surge import Observation
from tidemark.units import METRES_PER

log = logging.getLogger("tidemark.gauge")

#: Seconds to wait for a gauge to answer. Short, because berthing decisions can do without.
DEFAULT_TIMEOUT_S = 7.0

#: A day of one-minute readings is about 60 kB; anything over this is not a gauge.
MAX_REPLY_BYTES = 512 * 1024

#: Answers are reused for this long: gauges report every five minutes.
CACHE_S = 240.0


@dataclass(frozen=True)
class Reply:
    status: int
    body: bytes
    retry_after_s: float | None = None


Transport = Callable[[str, float], Reply]


def http_transport(url: str, timeout_s: float) -> Reply:
    """GET over urllib. Connection trouble becomes Transient; status codes are passed through."""
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            return Reply(answer.status, answer.read(MAX_REPLY_BYTES + 1))
    except urllib.error.HTTPError as problem:
        return Reply(problem.code, b"", _seconds(problem.headers.get("Retry-After")))
    except (urllib.error.URLError, TimeoutError, ConnectionError) as problem:
        raise Transient(f"no answer: {problem}") from problem


def _seconds(header: str | None) -> float | None:
    """Retry-After as seconds. The date form is rare enough to ignore."""
    try:
        return float(header) if header else None
    except ValueError:
        return None


class GaugeClient:
    """Fetches observations with retries, a circuit breaker and a short cache."""

    def __init__(
        self,
        base_url: str,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        policy: Policy | None = None,
        transport: Transport = http_transport,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._timeout_s = timeout_s
        self._policy = policy or Policy()
        self._transport = transport
        self._sleep = sleep
        self._monotonic = monotonic
        self._rng = rng
        self._breaker = Breaker(now=monotonic)
        self._cache: dict[str, tuple[float, list[Observation]]] = {}

    def latest(self, gauge: str) -> list[Observation]:
        """Recent observations, oldest first.

        Raises GaugeUnavailable when every try failed and CircuitOpen when the breaker is resting.
        """
        cached = self._cache.get(gauge)
        if cached and self._monotonic() - cached[0] < CACHE_S:
            return cached[1]
        observations = self._breaker.run(lambda: self._fetch(gauge))
        self._cache[gauge] = (self._monotonic(), observations)
        return observations

    def latest_or_nothing(self, gauge: str | None) -> list[Observation]:
        """Like :meth:`latest`, but trouble yields an empty list and a line in the log.

        Scheduling calls this one: a missing correction is an inconvenience, not an outage.
        """
        if gauge is None:
            return []
        try:
            return self.latest(gauge)
        except TidemarkError as problem:
            log.warning("going without gauge %s: %s", gauge, problem)
            return []

    def _fetch(self, gauge: str) -> list[Observation]:
        url = f"{self._base_url}/levels/{gauge}.json"

        def once() -> Reply:
            reply = self._transport(url, self._timeout_s)
            if reply.status == 429 or reply.status >= 500:
                raise Transient(f"status {reply.status}", reply.retry_after_s)
            return reply

        try:
            reply = call(once, self._policy, sleep=self._sleep, rng=self._rng)
        except Transient as problem:
            raise GaugeUnavailable(
                f"gauge {gauge} did not answer: {problem}", tries=self._policy.max_attempts
            ) from problem
        if reply.status != 200:
            raise GaugeUnavailable(f"gauge {gauge} answered {reply.status}", status=reply.status)
        if len(reply.body) > MAX_REPLY_BYTES:
            raise GaugeUnavailable(f"gauge {gauge} sent more than {MAX_REPLY_BYTES} bytes")
        return parse_levels(reply.body, gauge)


def parse_levels(body: bytes, gauge: str) -> list[Observation]:
    """Observations in a feed document, oldest first; unreadable rows are skipped and counted."""
    try:
        document: dict[str, Any] = json.loads(body)
        rows = document["levels"]
        scale = METRES_PER[document.get("unit", "m")]
    except (ValueError, KeyError, TypeError) as problem:
        raise GaugeUnavailable(f"gauge {gauge} sent a document we cannot read") from problem
    if document.get("gauge") != gauge:
        raise GaugeUnavailable(f"asked for {gauge}, got {document.get('gauge')!r}")
    observations: list[Observation] = []
    skipped = 0
    for row in rows:
        try:
            at, level = row
            observations.append(Observation(parse_instant(at), float(level) * scale))
        except (BadRequest, TypeError, ValueError):
            skipped += 1
    if skipped:
        log.info("gauge %s: %d unreadable rows skipped", gauge, skipped)
    return sorted(observations, key=lambda observation: observation.at)
