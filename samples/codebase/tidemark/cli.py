"""The ``tidemark`` command.

    tidemark table kelwick-bar --from 2026-05-01 --days 7
    tidemark windows kelwick-bar --height 3.4m --days 2
    tidemark berth add A1 --length 12m --beam 4.2m --depth 2.1m
    tidemark hold --vessel wren --arrives 2026-05-01T09:00Z --departs 2026-05-03T09:00Z
    tidemark serve

Exit status: 0 done, 1 refused (the message says why), 2 wrong usage, 3 the store needs migrating.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from tidemark import __version__, log
from tidemark.billing import format_pence
from tidemark.clock import Interval, format_instant, parse_day, parse_instant
from tidemark.config import Settings, load
from tidemark.errors import TidemarkError
from tidemark.ical import tide_calendar
from tidemark.model import Berth, BerthKind, Priority, State, Vessel
from tidemark.service import Harbour
from tidemark.tables import check_span, render_csv, render_text
from tidemark.units import format_length, parse_length

#: A terminal is no place for a year of tides; use the library for that.
MAX_DAYS = 31

EXIT_REFUSED = 1
EXIT_UNMIGRATED = 3


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="tidemark", description="Tide tables and berths.")
    top.add_argument("--version", action="version", version=f"tidemark {__version__}")
    top.add_argument("--root", type=Path, default=Path.cwd(), help="where config/ is")
    top.add_argument("--json", action="store_true", help="machine-readable output")
    commands = top.add_subparsers(dest="command", required=True)

    table = commands.add_parser("table", help="high and low waters")
    table.add_argument("station")
    table.add_argument("--from", dest="first", help="first day, today if absent")
    table.add_argument("--days", type=int, default=1)
    table.add_argument("--format", choices=("text", "csv", "ical"), default="text")

    windows = commands.add_parser("windows", help="when the tide stands high enough")
    windows.add_argument("station")
    windows.add_argument("--height", required=True, help="such as 3.4m or 11ft")
    windows.add_argument("--days", type=int, default=1)

    commands.add_parser("stations", help="the catalogue")

    berth = commands.add_parser("berth", help="add or change a berth")
    berth.add_argument("action", choices=("add", "list"))
    berth.add_argument("code", nargs="?")
    berth.add_argument("--length")
    berth.add_argument("--beam")
    berth.add_argument("--depth", help="charted depth; negative where it dries")
    berth.add_argument("--sill", help="height of the sill above chart datum")
    berth.add_argument("--kind", choices=[kind.value for kind in BerthKind], default="pontoon")
    berth.add_argument("--power", type=int, default=0, help="amps")
    berth.add_argument("--exposed", action="store_true")

    vessel = commands.add_parser("vessel", help="add or change a vessel")
    vessel.add_argument("id")
    vessel.add_argument("--name", required=True)
    vessel.add_argument("--loa", required=True)
    vessel.add_argument("--beam", required=True)
    vessel.add_argument("--draught", required=True)
    vessel.add_argument("--hulls", type=int, default=1)
    vessel.add_argument("--contact", default="")

    hold = commands.add_parser("hold", help="choose a berth and hold it")
    hold.add_argument("--vessel", required=True)
    hold.add_argument("--arrives", required=True)
    hold.add_argument("--departs", required=True)
    hold.add_argument(
        "--priority", choices=[p.name.lower() for p in Priority], default="visitor"
    )
    hold.add_argument("--power", type=int, default=0)

    for name, text in (
        ("confirm", "turn a hold into a booking"),
        ("cancel", "give up a hold or booking"),
        ("arrived", "record an arrival"),
        ("departed", "record a departure and issue the invoice"),
        ("no-show", "record that nobody came"),
    ):
        commands.add_parser(name, help=text).add_argument("reservation")

    revoke = commands.add_parser("revoke", help="take a berth back")
    revoke.add_argument("reservation")
    revoke.add_argument("--reason", required=True)

    commands.add_parser("migrate", help="bring the store up to date")
    commands.add_parser("sweep", help="expire lapsed holds once")
    commands.add_parser("deliver", help="send due notifications once")
    commands.add_parser("config", help="show the settings in force and where they came from")
    commands.add_parser("serve", help="run the HTTP service")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        settings = load(options.root)
        log.configure(settings.service.log_level, settings.service.log_style)
        if options.command == "config":
            return _show_config(settings, options.json)
        harbour = Harbour.open(settings, options.root)
        return _run(harbour, options)
    except TidemarkError as problem:
        print(f"tidemark: {problem}", file=sys.stderr)
        for key, value in problem.detail.items():
            print(f"  {key}: {value}", file=sys.stderr)
        return EXIT_REFUSED
    except sqlite3.OperationalError as problem:
        if "no such table" in str(problem) or "no such column" in str(problem):
            print("tidemark: the store is out of date; run tidemark migrate", file=sys.stderr)
            return EXIT_UNMIGRATED
        raise


def _show_config(settings: Settings, as_json: bool) -> int:
    shown: dict[str, Any] = {}
    for name in vars(settings):
        value = getattr(settings, name)
        shown[name] = dict(vars(value)) if hasattr(value, "__dataclass_fields__") else list(value)
    if shown["notify"]["signing_key"]:
        shown["notify"]["signing_key"] = "[hidden]"
    shown["http"]["tokens"] = [f"[{len(settings.http.tokens)} hidden]"]
    if as_json:
        print(json.dumps(shown, indent=2, default=list))
        return 0
    for section, values in shown.items():
        if isinstance(values, dict):
            for key, value in values.items():
                print(f"{section}.{key} = {value}")
    print("from: " + (", ".join(settings.sources) or "built-in defaults"))
    return 0


def _run(harbour: Harbour, options: argparse.Namespace) -> int:
    command = options.command
    if command == "migrate":
        names = harbour.store.migrate(options.root / harbour.settings.store.migrations)
        print("\n".join(names) if names else "nothing to do")
        return 0
    if command == "serve":
        from tidemark.server import serve

        serve(harbour)
        return 0
    if command == "table":
        return _table(harbour, options)
    if command == "windows":
        now = harbour.clock.now()
        span = Interval(now, now + timedelta(days=check_span(options.days, MAX_DAYS)))
        for window in harbour.windows(options.station, span, parse_length(options.height)):
            print(f"{format_instant(window.start)}  to  {format_instant(window.end)}")
        return 0
    if command == "stations":
        for station in harbour.catalogue:
            print(f"{station.id:<16} {station.grade}  {station.position}  {station.name}")
        return 0
    if command == "berth":
        return _berth(harbour, options)
    if command == "vessel":
        harbour.store.put_vessel(
            Vessel(
                options.id,
                options.name,
                parse_length(options.loa),
                parse_length(options.beam),
                parse_length(options.draught),
                options.hulls,
                options.contact,
            )
        )
        return 0
    if command == "sweep":
        print(f"{harbour.sweep()} expired")
        return 0
    if command == "deliver":
        delivered, failed = harbour.deliver()
        print(f"{delivered} delivered, {failed} failed")
        return EXIT_REFUSED if failed else 0
    return _reservation(harbour, options)


def _table(harbour: Harbour, options: argparse.Namespace) -> int:
    first = parse_day(options.first) if options.first else harbour.clock.now().date()
    tables = harbour.tide_table(options.station, first, check_span(options.days, MAX_DAYS))
    if options.json:
        print(json.dumps([entry.as_dict() for entry in tables], indent=2))
    elif options.format == "csv":
        print(render_csv(tables), end="")
    elif options.format == "ical":
        extremes = [extreme for entry in tables for extreme in entry.extremes]
        name = harbour.catalogue.get(options.station).name
        print(tide_calendar(name, extremes, harbour.clock.now()), end="")
    else:
        print(render_text(tables), end="")
    return 0


def _berth(harbour: Harbour, options: argparse.Namespace) -> int:
    if options.action == "list":
        for berth in harbour.store.berths():
            length, depth = format_length(berth.length_m), format_length(berth.charted_depth_m)
            print(f"{berth.code:<6} {berth.kind:<8} {length:>8} {depth:>7} {berth.power_amps:>3} A")
        return 0
    if not (options.code and options.length and options.beam and options.depth):
        print("tidemark: berth add needs a code, --length, --beam and --depth", file=sys.stderr)
        return 2
    harbour.store.put_berth(
        Berth(
            code=options.code,
            length_m=parse_length(options.length),
            max_beam_m=parse_length(options.beam),
            charted_depth_m=parse_length(options.depth),
            kind=BerthKind(options.kind),
            sill_m=parse_length(options.sill) if options.sill else None,
            exposed=options.exposed,
            power_amps=options.power,
        )
    )
    return 0


def _reservation(harbour: Harbour, options: argparse.Namespace) -> int:
    if options.command == "hold":
        reservation = harbour.hold(
            options.vessel,
            Interval(parse_instant(options.arrives), parse_instant(options.departs)),
            priority=Priority[options.priority.upper()],
            power_amps=options.power,
        )
    elif options.command == "confirm":
        reservation = harbour.confirm(options.reservation)
    elif options.command == "cancel":
        reservation, owed = harbour.cancel(options.reservation)
        print(f"owed: {format_pence(owed, harbour.settings.billing.currency)}")
    elif options.command == "revoke":
        reservation = harbour.revoke(options.reservation, options.reason)
    else:
        states = {
            "arrived": State.ARRIVED,
            "departed": State.DEPARTED,
            "no-show": State.NO_SHOW,
        }
        reservation = harbour.record(options.reservation, states[options.command])
    if options.json:
        print(json.dumps(reservation.as_dict(), indent=2))
        return 0
    price = format_pence(reservation.price_pence, harbour.settings.billing.currency)
    print(f"{reservation.id}  {reservation.state}  berth {reservation.berth_code}  {price}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
