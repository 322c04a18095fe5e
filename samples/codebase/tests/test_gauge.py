import json
import random
from datetime import UTC, datetime, timedelta

import pytest

from tidemark.errors import CircuitOpen, ConfigError, GaugeUnavailable
from tidemark.gauge_client import GaugeClient, Reply, parse_levels
from tidemark.retry import RETRY_AFTER_CAP_S, Breaker, Policy, Transient, call
from tidemark.surge import (
    MAX_RESIDUAL_M,
    CorrectedSource,
    Observation,
    Residual,
    estimate_residual,
)

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


class Flaky:
    """Fails a number of times, then answers."""

    def __init__(self, failures: int, retry_after_s: float | None = None) -> None:
        self.left = failures
        self.retry_after_s = retry_after_s
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.left:
            self.left -= 1
            raise Transient("not yet", self.retry_after_s)
        return "done"


def feed(gauge: str = "SLT2", levels=(), unit: str = "m") -> bytes:
    return json.dumps({"gauge": gauge, "unit": unit, "levels": list(levels)}).encode()


def test_it_tries_again_and_then_gives_up():
    waits: list[float] = []
    flaky = Flaky(3)
    assert call(flaky, Policy(), sleep=waits.append, rng=random.Random(1)) == "done"
    assert flaky.calls == 4
    assert all(wait <= limit for wait, limit in zip(waits, (0.4, 0.8, 1.6), strict=True))
    with pytest.raises(Transient):
        call(Flaky(4), Policy(), sleep=waits.append)


def test_retry_after_is_honoured_within_reason():
    waits: list[float] = []
    call(Flaky(1, retry_after_s=9.0), Policy(), sleep=waits.append)
    call(Flaky(1, retry_after_s=9000.0), Policy(), sleep=waits.append)
    assert waits == [9.0, RETRY_AFTER_CAP_S]


def test_other_errors_are_not_retried():
    def broken():
        raise KeyError("bug")

    with pytest.raises(KeyError):
        call(broken, Policy(), sleep=lambda s: pytest.fail("slept"))


def test_senseless_policies():
    with pytest.raises(ConfigError):
        Policy(max_attempts=0)
    with pytest.raises(ConfigError):
        Policy(base_s=5.0, ceiling_s=1.0)


def test_the_breaker_rests_and_recovers():
    now = [0.0]
    breaker = Breaker(trip_after=2, rest_s=60.0, now=lambda: now[0])

    def fail():
        raise ValueError

    for _ in range(2):
        with pytest.raises(ValueError):
            breaker.run(fail)
    with pytest.raises(CircuitOpen):
        breaker.run(lambda: "unreached")
    now[0] = 61.0
    assert breaker.run(lambda: "back") == "back"
    assert not breaker.is_open


def client(replies: list[Reply], **options) -> tuple[GaugeClient, list[str]]:
    urls: list[str] = []

    def transport(url: str, timeout_s: float) -> Reply:
        urls.append(url)
        return replies[min(len(urls), len(replies)) - 1]

    made = GaugeClient(
        "http://gauges/",
        transport=transport,
        sleep=lambda s: None,
        monotonic=lambda: 0.0,
        **options,
    )
    return made, urls


def test_levels_are_read_sorted_and_cached():
    body = feed(levels=[["2026-05-01T06:05:00Z", 3.5], ["2026-05-01T06:00:00Z", 3.4], ["x", 1]])
    gauge, urls = client([Reply(200, body)])
    assert [o.height_m for o in gauge.latest("SLT2")] == [3.4, 3.5]
    gauge.latest("SLT2")
    assert urls == ["http://gauges/levels/SLT2.json"]


def test_feet_are_converted():
    body = feed(levels=[["2026-05-01T06:00:00Z", 10]], unit="ft")
    assert parse_levels(body, "SLT2")[0].height_m == pytest.approx(3.048)


def test_a_server_error_is_retried_and_a_404_is_not():
    gauge, urls = client([Reply(503, b""), Reply(200, feed())])
    assert gauge.latest("SLT2") == []
    assert len(urls) == 2
    gauge, urls = client([Reply(404, b"")])
    with pytest.raises(GaugeUnavailable):
        gauge.latest("SLT2")
    assert len(urls) == 1


def test_scheduling_goes_on_without_a_gauge():
    gauge, urls = client([Reply(500, b"")], policy=Policy(max_attempts=2))
    assert gauge.latest_or_nothing("SLT2") == []
    assert gauge.latest_or_nothing(None) == []
    assert len(urls) == 2


@pytest.mark.parametrize("body", [b"<html>", b"{}", feed("KLW1")])
def test_nonsense_is_refused(body):
    with pytest.raises(GaugeUnavailable):
        parse_levels(body, "SLT2")


def observations(source, offset: float, count: int = 6) -> list[Observation]:
    times = [NOON - timedelta(minutes=5 * n) for n in range(count)]
    return [Observation(at, source.height(at) + offset) for at in times]


def test_the_residual_is_a_median_of_recent_readings(catalogue):
    source = catalogue.source("saltmere")
    readings = observations(source, 0.4)
    readings[0] = Observation(NOON, source.height(NOON) + 2.0)  # a ferry
    residual = estimate_residual(source, readings, NOON)
    assert residual is not None
    assert residual.offset_m == pytest.approx(0.4)
    assert residual.samples == 6


def test_too_few_or_too_old_means_no_estimate(catalogue):
    source = catalogue.source("saltmere")
    assert estimate_residual(source, observations(source, 0.4, 3), NOON) is None
    later = NOON + timedelta(hours=5)
    assert estimate_residual(source, observations(source, 0.4), later) is None


def test_large_residuals_are_limited_in_silence(catalogue):
    source = catalogue.source("saltmere")
    residual = estimate_residual(source, observations(source, -1.9), NOON)
    assert residual is not None
    assert residual.offset_m == -MAX_RESIDUAL_M


def test_residuals_fade_and_good_news_is_halved(catalogue):
    source = catalogue.source("saltmere")
    up, down = Residual(NOON, 0.8, 6), Residual(NOON, -0.8, 6)
    assert up.when(NOON + timedelta(hours=5)) == pytest.approx(0.4)
    raised = CorrectedSource(source, up).height(NOON) - source.height(NOON)
    lowered = CorrectedSource(source, down).height(NOON) - source.height(NOON)
    assert raised == pytest.approx(0.4)
    assert lowered == pytest.approx(-0.8)
