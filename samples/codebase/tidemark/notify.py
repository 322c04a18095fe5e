"""Telling people: which event goes to whom, how, and not in the middle of the night.

Events are written to the store's outbox together with the change that caused them, and delivered
later by :class:`Dispatcher`. Delivery is at least once: a receiver must tolerate a repeat, and the
``seq`` in every body is there to spot one.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Any

from tidemark.clock import format_instant, to_epoch
from tidemark.errors import BadRequest, ConfigError
from tidemark.store import Message, Store

log = logging.getLogger("tidemark.notify")

WEBHOOK_TIMEOUT_S = 3.5

#: Minutes to wait after the first, second, ... failure; the last value repeats.
BACKOFF_MINUTES = (1, 2, 5, 15, 45)

SIGNATURE_HEADER = "X-Tidemark-Signature"


@dataclass(frozen=True)
class Rule:
    """What is done about one kind of event.

    ``urgent`` events ignore quiet hours. Repeats of the same event for the same subject within
    ``dedupe`` are dropped before they reach the outbox.
    """

    event: str
    audience: str
    channels: tuple[str, ...]
    urgent: bool = False
    dedupe: timedelta = timedelta(0)


RULES: dict[str, Rule] = {
    rule.event: rule
    for rule in (
        Rule("reservation_confirmed", "skipper", ("email", "sms")),
        Rule("reservation_cancelled", "skipper", ("email",)),
        Rule("hold_expired", "skipper", ("email",), dedupe=timedelta(hours=1)),
        # A crew asleep aboard another boat cannot act on this before daylight.
        Rule("berth_revoked", "skipper", ("sms", "email")),
        Rule("surge_warning", "office", ("sms",), urgent=True, dedupe=timedelta(hours=3)),
        Rule("gauge_silent", "office", ("email",), dedupe=timedelta(hours=12)),
        Rule("invoice_ready", "skipper", ("email",)),
    )
}


def rule_for(event: str) -> Rule:
    try:
        return RULES[event]
    except KeyError:
        raise BadRequest(f"no notification rule for {event!r}", known=sorted(RULES)) from None


def _clock_time(text: str) -> time:
    try:
        return time.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{text!r} is not a time of day such as 22:00") from None


@dataclass(frozen=True)
class QuietHours:
    """A span of the day, usually across midnight. Equal ends mean there are none."""

    start: time
    end: time

    @classmethod
    def parse(cls, start: str, end: str) -> QuietHours:
        return cls(_clock_time(start), _clock_time(end))

    def __contains__(self, instant: datetime) -> bool:
        moment = instant.time()
        if self.start == self.end:
            return False
        if self.start < self.end:
            return self.start <= moment < self.end
        return moment >= self.start or moment < self.end

    def release(self, instant: datetime) -> datetime:
        """The first instant at or after ``instant`` that is not quiet."""
        if instant not in self:
            return instant
        morning = instant.replace(
            hour=self.end.hour, minute=self.end.minute, second=0, microsecond=0
        )
        return morning if morning > instant else morning + timedelta(days=1)


class Notifier:
    """Decides, and writes to the outbox. Sends nothing itself."""

    def __init__(self, store: Store, quiet: QuietHours) -> None:
        self._store = store
        self._quiet = quiet

    def raise_event(
        self, event: str, subject: str, payload: dict[str, Any], now: datetime
    ) -> int | None:
        """Queue an event; its sequence number, or None if it repeats a recent one."""
        rule = rule_for(event)
        if rule.dedupe and self._store.recently_enqueued(event, subject, now - rule.dedupe):
            log.debug("dropping repeat of %s for %s", event, subject)
            return None
        not_before = now if rule.urgent else self._quiet.release(now)
        return self._store.enqueue(event, subject, payload, now, not_before)


Sender = Callable[[bytes, dict[str, str]], int]


def webhook_sender(url: str) -> Sender:
    """POST to ``url``; returns the status. Connection trouble is status 0."""

    def send(body: bytes, headers: dict[str, str]) -> int:
        request = urllib.request.Request(url, data=body, headers=headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=WEBHOOK_TIMEOUT_S) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as problem:
            return problem.code
        except OSError as problem:
            log.info("webhook unreachable: %s", problem)
            return 0

    return send


def sign(body: bytes, key: str, now: datetime) -> str:
    """``t=<epoch>,v1=<hex>``: HMAC-SHA256 over the timestamp, a dot, and the body."""
    stamp = str(to_epoch(now))
    mac = hmac.new(key.encode(), stamp.encode() + b"." + body, hashlib.sha256)
    return f"t={stamp},v1={mac.hexdigest()}"


def verify(body: bytes, header: str, key: str, now: datetime, tolerance_s: int = 300) -> bool:
    """For receivers written in Python: whether ``header`` is ours and recent."""
    try:
        parts = dict(item.split("=", 1) for item in header.split(","))
        stamp = int(parts["t"])
        offered = parts["v1"]
    except (ValueError, KeyError):
        return False
    if abs(to_epoch(now) - stamp) > tolerance_s:
        return False
    mac = hmac.new(key.encode(), str(stamp).encode() + b"." + body, hashlib.sha256)
    return hmac.compare_digest(mac.hexdigest(), offered)


class Dispatcher:
    """Drains the outbox through one sender."""

    def __init__(self, store: Store, sender: Sender, key: str = "", max_failures: int = 8) -> None:
        self._store = store
        self._sender = sender
        self._key = key
        self._max_failures = max_failures

    def run_once(self, now: datetime) -> tuple[int, int]:
        """Try everything that is due; (delivered, failed).

        Any 2xx is success. 410 Gone means the receiver wants no more of this: the message is
        buried at once. Anything else is tried again, and buried after ``max_failures`` tries.
        """
        delivered = failed = 0
        for message in self._store.due_messages(now):
            body = self._body(message)
            headers = {"Content-Type": "application/json"}
            if self._key:
                headers[SIGNATURE_HEADER] = sign(body, self._key, now)
            status = self._sender(body, headers)
            if 200 <= status < 300:
                self._store.mark_delivered(message.seq, now)
                delivered += 1
                continue
            failed += 1
            tries = message.failures + 1
            dead = status == 410 or tries >= self._max_failures
            wait = BACKOFF_MINUTES[min(tries, len(BACKOFF_MINUTES)) - 1]
            self._store.mark_failed(message.seq, now + timedelta(minutes=wait), dead)
            log.warning(
                "delivery %d of message %d failed with %s%s",
                tries,
                message.seq,
                status,
                ", giving up" if dead else "",
            )
        return delivered, failed

    @staticmethod
    def _body(message: Message) -> bytes:
        rule = rule_for(message.event)
        document = {
            "seq": message.seq,
            "event": message.event,
            "audience": rule.audience,
            "channels": list(rule.channels),
            "subject": message.subject,
            "at": format_instant(message.created_at),
            "payload": message.payload,
        }
        return json.dumps(document, ensure_ascii=False, sort_keys=True).encode()
