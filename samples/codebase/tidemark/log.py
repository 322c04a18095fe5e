"""Logging: one JSON object a line in service, plain text at a terminal.

Two things make a harbour's logs useful a year later, a correlation id on every line of a request
and no personal data on any of them. Both live here.
"""

from __future__ import annotations

import contextvars
import json
import logging
import re
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import IO, Any

_correlation: contextvars.ContextVar[str] = contextvars.ContextVar("correlation", default="-")

#: Keys whose values never reach a log line, whatever they hold.
SECRET_KEYS = frozenset({"authorization", "token", "contact_e164", "signing_key"})

_PHONE = re.compile(r"\+\d[\d ]{6,14}\d")
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


@contextmanager
def correlation(identifier: str | None = None) -> Iterator[str]:
    """Every log line inside the block carries ``identifier`` (a fresh one if None)."""
    value = identifier or uuid.uuid4().hex[:12]
    token = _correlation.set(value)
    try:
        yield value
    finally:
        _correlation.reset(token)


def current_correlation() -> str:
    return _correlation.get()


def redact(value: Any) -> Any:
    """Phone numbers keep their country code and last two digits; secrets vanish entirely."""
    if isinstance(value, str):
        return _PHONE.sub(lambda match: f"{match[0][:3]}…{match[0][-2:]}", value)
    if isinstance(value, dict):
        return {
            key: "[hidden]" if str(key).lower() in SECRET_KEYS else redact(item)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [redact(item) for item in value]
    return value


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "correlation": current_correlation(),
            "message": redact(record.getMessage()),
        }
        extra = {key: value for key, value in vars(record).items() if key not in _STANDARD}
        if extra:
            line.update(redact(extra))
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class PlainFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = f"{record.levelname[0]} {record.name}: {redact(record.getMessage())}"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


def configure(level: str = "INFO", style: str = "auto", stream: IO[str] | None = None) -> None:
    """Install one handler on the ``tidemark`` logger, replacing any earlier one.

    ``style`` is ``"json"``, ``"plain"`` or ``"auto"``, which looks at whether the stream is a
    terminal.
    """
    target = stream or sys.stderr
    handler = logging.StreamHandler(target)
    if style == "auto":
        style = "plain" if target.isatty() else "json"
    handler.setFormatter(PlainFormatter() if style == "plain" else JsonFormatter())
    logger = logging.getLogger("tidemark")
    for old in list(logger.handlers):
        logger.removeHandler(old)
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False
