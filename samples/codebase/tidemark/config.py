"""Configuration: defaults in code, then TOML files, then the environment; the last word wins.

Settings are frozen dataclasses, one a section. An unknown key is an error, not a shrug, because
``max_atempts = 9`` silently doing nothing is how a bad night starts.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from tidemark import gauge_client, retry, store, surge
from tidemark.errors import ConfigError

#: Names a file that is read after config/default.toml.
CONFIG_VARIABLE = "TIDEMARK_CONFIG"

#: ``TIDEMARK__BERTHS__HOLD_MINUTES=40`` sets ``berths.hold_minutes``.
NESTED_PREFIX = "TIDEMARK__"

#: Shorthands for what people set most, kept from before the nested form existed.
SHORTHANDS = {
    "TIDEMARK_DB": ("store", "path"),
    "TIDEMARK_LOG_LEVEL": ("service", "log_level"),
    "TIDEMARK_HTTP_PORT": ("http", "port"),
    "TIDEMARK_SIGNING_KEY": ("notify", "signing_key"),
}


@dataclass(frozen=True)
class Service:
    profile: str = "development"
    home_station: str = "saltmere"
    stations_file: str = "config/stations.toml"
    tariffs_file: str = "config/tariffs.toml"
    log_level: str = "INFO"
    log_style: str = "auto"


@dataclass(frozen=True)
class Gauge:
    base_url: str = "http://localhost:9400"
    timeout_s: float = gauge_client.DEFAULT_TIMEOUT_S
    enabled: bool = True


@dataclass(frozen=True)
class Retry:
    max_attempts: int = retry.MAX_ATTEMPTS
    base_s: float = retry.BASE_S
    ceiling_s: float = retry.CEILING_S

    def policy(self) -> retry.Policy:
        return retry.Policy(self.max_attempts, self.base_s, self.ceiling_s)


@dataclass(frozen=True)
class Berths:
    hold_minutes: int = 25
    turnaround_minutes: int = 45
    max_stay_days: int = 21
    arrival_slack_hours: float = 6.0


@dataclass(frozen=True)
class Store:
    path: str = "var/tidemark.db"
    migrations: str = "migrations"
    busy_timeout_ms: int = store.BUSY_TIMEOUT_MS


@dataclass(frozen=True)
class Billing:
    vat_percent: float = 20.0
    grace_minutes: int = 90
    minimum_loa_m: float = 6.0
    currency: str = "GBP"


@dataclass(frozen=True)
class Notify:
    webhook_url: str = ""
    signing_key: str = ""
    quiet_from: str = "22:00"
    quiet_until: str = "06:30"
    max_failures: int = 8


@dataclass(frozen=True)
class Http:
    host: str = "127.0.0.1"
    port: int = 8460
    tokens: tuple[str, ...] = ()
    requests_per_minute: int = 90
    max_page: int = 200


@dataclass(frozen=True)
class Settings:
    service: Service = field(default_factory=Service)
    gauge: Gauge = field(default_factory=Gauge)
    retry: Retry = field(default_factory=Retry)
    berths: Berths = field(default_factory=Berths)
    store: Store = field(default_factory=Store)
    billing: Billing = field(default_factory=Billing)
    notify: Notify = field(default_factory=Notify)
    http: Http = field(default_factory=Http)
    sources: tuple[str, ...] = ()


SECTIONS = tuple(f.name for f in fields(Settings) if f.name != "sources")


def load(
    root: Path | None = None,
    environ: Mapping[str, str] | None = None,
    extra: Mapping[str, Mapping[str, Any]] | None = None,
) -> Settings:
    """Settings for this process. ``extra`` is the command line's say, applied last of all."""
    base = root or Path.cwd()
    variables = os.environ if environ is None else environ
    settings = Settings()
    default = base / "config" / "default.toml"
    if default.exists():
        settings = _apply_file(settings, default)
    named = variables.get(CONFIG_VARIABLE, "").strip()
    if named:
        settings = _apply_file(settings, base / named)
    settings = _apply(settings, _from_environment(variables), "the environment")
    if extra:
        settings = _apply(settings, extra, "the command line")
    return check(settings)


def _apply_file(settings: Settings, path: Path) -> Settings:
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise ConfigError(f"cannot read {path}: {problem.strerror}") from problem
    except tomllib.TOMLDecodeError as problem:
        raise ConfigError(f"{path} is not valid TOML: {problem}") from problem
    return _apply(settings, raw, str(path))


def _apply(
    settings: Settings, values: Mapping[str, Mapping[str, Any]], origin: str
) -> Settings:
    for section, entries in values.items():
        if section not in SECTIONS:
            raise ConfigError(f"{origin}: no section [{section}]{_hint(section, SECTIONS)}")
        if not isinstance(entries, Mapping):
            raise ConfigError(f"{origin}: {section} should be a section, not a value")
        current = getattr(settings, section)
        known = {f.name: getattr(current, f.name) for f in fields(current)}
        changes = {}
        for key, value in entries.items():
            if key not in known:
                raise ConfigError(f"{origin}: no key {section}.{key}{_hint(key, tuple(known))}")
            changes[key] = _coerce(value, known[key], f"{origin}: {section}.{key}")
        settings = replace(settings, **{section: replace(current, **changes)})
    return replace(settings, sources=(*settings.sources, origin)) if values else settings


def _hint(wrong: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(wrong, known, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _coerce(value: Any, like: Any, where: str) -> Any:
    """``value`` in the type of ``like``; environment strings are converted, TOML types checked."""
    if isinstance(like, bool):
        if isinstance(value, bool):
            return value
        words = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
        if isinstance(value, str) and value.lower() in words:
            return words[value.lower()]
        raise ConfigError(f"{where} should be true or false")
    if isinstance(like, tuple):
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        raise ConfigError(f"{where} should be a list of strings")
    if isinstance(like, str):
        if isinstance(value, str):
            return value
        raise ConfigError(f"{where} should be a string")
    if isinstance(value, bool):
        raise ConfigError(f"{where} should be a number")
    try:
        number = type(like)(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{where} should be a number, not {value!r}") from None
    if isinstance(value, float) and number != value:
        raise ConfigError(f"{where} should be a whole number")
    return number


def _from_environment(variables: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, (section, key) in SHORTHANDS.items():
        if variables.get(name):
            found.setdefault(section, {})[key] = variables[name]
    for name, value in variables.items():
        if not name.startswith(NESTED_PREFIX):
            continue
        section, _, key = name[len(NESTED_PREFIX) :].lower().partition("__")
        found.setdefault(section, {})[key] = value
    return found


def check(settings: Settings) -> Settings:
    """Combinations that parse and make no sense."""
    if settings.http.max_page < 1:
        raise ConfigError("http.max_page is at least 1")
    if settings.berths.hold_minutes < 5:
        raise ConfigError("berths.hold_minutes below 5 gives nobody time to find their card")
    if settings.service.profile == "production":
        if not settings.http.tokens:
            raise ConfigError("production needs at least one http.tokens entry")
        if settings.notify.webhook_url and not settings.notify.signing_key:
            raise ConfigError("production webhooks must be signed: set TIDEMARK_SIGNING_KEY")
    if settings.gauge.timeout_s <= 0 or settings.gauge.timeout_s > surge.STALE_AFTER.seconds:
        raise ConfigError("gauge.timeout_s is not sensible")
    settings.retry.policy()
    return settings
