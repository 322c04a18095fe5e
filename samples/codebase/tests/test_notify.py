import json
from datetime import UTC, datetime, time, timedelta

import pytest
from conftest import BERTHS, WREN

from tidemark.clock import Interval
from tidemark.errors import BadRequest, ConfigError
from tidemark.ical import FOLD_OCTETS, escape, fold, stay_calendar, tide_calendar
from tidemark.model import Priority, Reservation, State
from tidemark.notify import RULES, Dispatcher, Notifier, QuietHours, sign, verify

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
NIGHT = datetime(2026, 5, 1, 23, tzinfo=UTC)
QUIET = QuietHours(time(22, 0), time(6, 30))


def test_quiet_hours_wrap_around_midnight():
    assert NIGHT in QUIET
    assert NOON not in QUIET
    assert QUIET.release(NIGHT) == datetime(2026, 5, 2, 6, 30, tzinfo=UTC)
    early = datetime(2026, 5, 2, 3, tzinfo=UTC)
    assert QUIET.release(early) == datetime(2026, 5, 2, 6, 30, tzinfo=UTC)
    assert NIGHT not in QuietHours(time(0), time(0))
    with pytest.raises(ConfigError):
        QuietHours.parse("ten", "06:30")


def test_only_surge_warnings_are_urgent(store):
    assert [rule.event for rule in RULES.values() if rule.urgent] == ["surge_warning"]
    notifier = Notifier(store, QUIET)
    notifier.raise_event("surge_warning", "saltmere", {}, NIGHT)
    notifier.raise_event("berth_revoked", "R-1", {}, NIGHT)
    assert [message.event for message in store.due_messages(NIGHT)] == ["surge_warning"]


def test_repeats_are_dropped(store):
    notifier = Notifier(store, QUIET)
    assert notifier.raise_event("surge_warning", "saltmere", {}, NOON) == 1
    assert notifier.raise_event("surge_warning", "saltmere", {}, NOON + timedelta(hours=1)) is None
    assert notifier.raise_event("surge_warning", "dunholm", {}, NOON) is not None
    assert notifier.raise_event("surge_warning", "saltmere", {}, NOON + timedelta(hours=4))
    with pytest.raises(BadRequest):
        notifier.raise_event("sea_monster", "saltmere", {}, NOON)


def test_delivery_backs_off_and_gives_up(store):
    Notifier(store, QUIET).raise_event("berth_revoked", "R-1", {"reason": "crane"}, NOON)
    dispatcher = Dispatcher(store, lambda body, headers: 500, max_failures=2)
    assert dispatcher.run_once(NOON) == (0, 1)
    assert dispatcher.run_once(NOON) == (0, 0)  # not due for a minute
    assert dispatcher.run_once(NOON + timedelta(minutes=1)) == (0, 1)
    assert store.dead_letters() == 1


def test_a_receiver_that_is_gone_is_not_asked_twice(store):
    Notifier(store, QUIET).raise_event("berth_revoked", "R-1", {}, NOON)
    Dispatcher(store, lambda body, headers: 410).run_once(NOON)
    assert store.dead_letters() == 1


def test_what_is_sent_is_signed_and_complete(store):
    sent = []
    Notifier(store, QUIET).raise_event("berth_revoked", "R-1", {"reason": "crane"}, NOON)

    def sender(body, headers):
        sent.append((body, headers))
        return 204

    assert Dispatcher(store, sender, key="k").run_once(NOON) == (1, 0)
    body, headers = sent[0]
    document = json.loads(body)
    assert document["channels"] == ["sms", "email"]
    assert document["payload"] == {"reason": "crane"}
    assert verify(body, headers["X-Tidemark-Signature"], "k", NOON)


def test_signatures_are_bound_to_body_key_and_time():
    header = sign(b"{}", "k", NOON)
    assert verify(b"{}", header, "k", NOON + timedelta(minutes=4))
    assert not verify(b"{}", header, "k", NOON + timedelta(minutes=6))
    assert not verify(b"{} ", header, "k", NOON)
    assert not verify(b"{}", header, "other", NOON)
    assert not verify(b"{}", "nonsense", "k", NOON)


def test_folding_counts_octets_and_spares_characters():
    line = "SUMMARY:" + "Ærø–" * 40
    folded = fold(line)
    assert all(len(piece.encode()) <= FOLD_OCTETS for piece in folded.split("\r\n"))
    assert folded.replace("\r\n ", "") == line


def test_escaping():
    assert escape("a,b;c\\d\ne:f") == "a\\,b\\;c\\\\d\\ne:f"


def test_a_stay_calendar_has_one_alarm():
    stay = Interval(NOON, NOON + timedelta(days=2))
    reservation = Reservation("R-1", "wren", "A1", stay, State.CONFIRMED, Priority.VISITOR, 3, NOON)
    windows = [
        Interval(NOON, NOON + timedelta(hours=1)),
        Interval(NOON + timedelta(hours=12), NOON + timedelta(hours=14)),
    ]
    text = stay_calendar(reservation, WREN, BERTHS[0], windows, NOON)
    assert text.count("BEGIN:VEVENT") == 3
    assert text.count("BEGIN:VALARM") == 1
    assert "SEQUENCE:3\r\n" in text
    assert "SUMMARY:Wren\\, berth A1\r\n" in text


def test_a_tide_calendar_shows_high_waters_only(catalogue):
    source = catalogue.source("saltmere")
    extremes = source.extremes(Interval(NOON, NOON + timedelta(days=1)))
    text = tide_calendar("Saltmere", extremes, NOON)
    assert text.count("BEGIN:VEVENT") == 2
    assert "HW Saltmere" in text
