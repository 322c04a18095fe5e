"""The HTTP interface: what each route reads, calls and returns.

Handlers translate and nothing more. They never catch a TidemarkError; :meth:`App.handle` turns it
into a response, with the status looked up by code below.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta
from typing import Any

from tidemark.clock import Interval, format_instant, parse_day, parse_instant
from tidemark.errors import BadRequest, TidemarkError
from tidemark.log import correlation
from tidemark.model import Priority, Vessel
from tidemark.router import Request, Response, Router
from tidemark.service import Harbour
from tidemark.store import DEFAULT_PAGE
from tidemark.tables import check_span, render_csv
from tidemark.units import parse_length

log = logging.getLogger("tidemark.api")

#: Longest table one request may ask for; the library itself goes further.
MAX_TABLE_DAYS = 62

#: Notes are for "black hull, dog aboard", not for novels.
MAX_NOTES = 280

#: HTTP status by error code. Anything absent is 500, and its detail stays in the log.
STATUS: dict[str, int] = {
    "TM1001": 400,
    "TM1002": 400,
    "TM1101": 401,
    "TM1102": 429,
    "TM2001": 404,
    "TM2002": 400,
    "TM2104": 409,
    "TM3001": 409,
    "TM3002": 404,
    "TM3003": 412,
    "TM3107": 410,
    "TM3108": 409,
    "TM4001": 422,
    "TM4002": 423,
    "TM5001": 502,
    "TM5002": 503,
    "TM5004": 503,
}


def page_limit(text: str | None, most: int) -> int:
    """The ``limit`` parameter. Out of range is brought into range; not a number is an error.

    Clamping rather than refusing is deliberate: old kiosks ask for 1000 and cannot be updated.
    """
    if text is None or not text.strip():
        return min(DEFAULT_PAGE, most)
    try:
        wanted = int(text)
    except ValueError:
        raise BadRequest(f"limit should be a number, not {text!r}") from None
    return max(1, min(wanted, most))


class App:
    """Routes bound to one harbour."""

    def __init__(self, harbour: Harbour) -> None:
        self.harbour = harbour
        self.router = Router()
        for method, pattern, handler in (
            ("GET", "/v1/health", self.health),
            ("GET", "/v1/stations", self.stations),
            ("GET", "/v1/stations/{station}", self.station),
            ("GET", "/v1/stations/{station}/tides", self.tides),
            ("GET", "/v1/stations/{station}/windows", self.windows),
            ("GET", "/v1/berths", self.berths),
            ("PUT", "/v1/vessels/{vessel}", self.put_vessel),
            ("POST", "/v1/holds", self.hold),
            ("POST", "/v1/holds/{reservation}/confirm", self.confirm),
            ("GET", "/v1/reservations", self.reservations),
            ("GET", "/v1/reservations/{reservation}", self.reservation),
            ("POST", "/v1/reservations/{reservation}/cancel", self.cancel),
            ("GET", "/v1/reservations/{reservation}/calendar.ics", self.calendar),
            ("GET", "/v1/reservations/{reservation}/invoice", self.invoice),
            ("GET", "/v1/occupancy", self.occupancy),
        ):
            self.router.add(method, pattern, handler)

    def handle(self, request: Request) -> Response:
        """Never raises: whatever goes wrong becomes a response with a code and a correlation."""
        with correlation(request.headers.get("x-correlation-id")) as identifier:
            try:
                found = self.router.find(request.method, request.path)
                if isinstance(found, list):
                    response = self._unrouted(found)
                else:
                    handler, params = found
                    response = handler(replace(request, params=params))
            except TidemarkError as problem:
                response = self._failed(problem)
            except Exception:
                log.exception("unexpected failure in %s %s", request.method, request.path)
                response = Response.of({"code": "TM0000", "message": "internal error"}, 500)
            log.info("%s %s %d", request.method, request.path, response.status)
            return replace(
                response, headers={**response.headers, "X-Correlation-Id": identifier}
            )

    @staticmethod
    def _unrouted(allowed: list[str]) -> Response:
        if allowed:
            body = {"code": "TM1001", "message": "this path has other methods"}
            return Response.of(body, 405, Allow=", ".join(allowed))
        return Response.of({"code": "TM3002", "message": "no such path"}, 404)

    @staticmethod
    def _failed(problem: TidemarkError) -> Response:
        status = STATUS.get(problem.code, 500)
        if status == 500:
            log.error("%s", problem)
            return Response.of({"code": problem.code, "message": "internal error"}, 500)
        wait = problem.detail.get("retry_after_s")
        headers = {"Retry-After": str(int(wait) + 1)} if wait is not None else {}
        return replace(Response.of(problem.as_dict(), status), headers=headers)

    # --- tides --------------------------------------------------------------------------------

    def health(self, request: Request) -> Response:
        return Response.of(self.harbour.health())

    def stations(self, request: Request) -> Response:
        near = request.query.get("near")
        if near:
            try:
                latitude, longitude = (float(part) for part in near.split(","))
            except ValueError:
                raise BadRequest("near should be latitude,longitude") from None
            station, distance = self.harbour.catalogue.nearest(latitude, longitude)
            return Response.of({"station": station.summary(), "distance_nm": round(distance, 1)})
        return Response.of({"stations": [s.summary() for s in self.harbour.catalogue]})

    def station(self, request: Request) -> Response:
        return Response.of(self.harbour.catalogue.get(request.params["station"]).summary())

    def tides(self, request: Request) -> Response:
        first = parse_day(request.require("from"))
        try:
            days = int(request.query.get("days", "1"))
        except ValueError:
            raise BadRequest("days should be a whole number") from None
        check_span(days, MAX_TABLE_DAYS)
        tables = self.harbour.tide_table(request.params["station"], first, days)
        if "text/csv" in request.headers.get("accept", ""):
            return Response.text(render_csv(tables), "text/csv")
        return Response.of(
            {"days": [entry.as_dict() for entry in tables]}, Cache_Control="public, max-age=86400"
        )

    def windows(self, request: Request) -> Response:
        start, end = request.require("from"), request.require("to")
        span = Interval(parse_instant(start), parse_instant(end))
        required = parse_length(request.require("height"))
        found = self.harbour.windows(request.params["station"], span, required)
        return Response.of(
            {
                "required_m": round(required, 2),
                "windows": [
                    {"opens": format_instant(w.start), "closes": format_instant(w.end)}
                    for w in found
                ],
            }
        )

    # --- berths -------------------------------------------------------------------------------

    def berths(self, request: Request) -> Response:
        return Response.of(
            {
                "berths": [
                    {
                        "code": berth.code,
                        "kind": berth.kind.value,
                        "length_m": berth.length_m,
                        "charted_depth_m": berth.charted_depth_m,
                        "power_amps": berth.power_amps,
                    }
                    for berth in self.harbour.store.berths()
                ]
            }
        )

    def put_vessel(self, request: Request) -> Response:
        body = request.json()
        try:
            vessel = Vessel(
                id=request.params["vessel"],
                name=str(body["name"]).strip(),
                loa_m=parse_length(str(body["loa"])),
                beam_m=parse_length(str(body["beam"])),
                draught_m=parse_length(str(body["draught"])),
                hulls=int(body.get("hulls", 1)),
                contact_e164=str(body.get("contact_e164", "")),
            )
        except KeyError as missing:
            raise BadRequest(f"the vessel's {missing.args[0]} is missing") from None
        self.harbour.store.put_vessel(vessel)
        return Response(204)

    def hold(self, request: Request) -> Response:
        body = request.json()
        notes = str(body.get("notes", ""))
        if len(notes) > MAX_NOTES:
            raise BadRequest(f"notes are limited to {MAX_NOTES} characters", limit=MAX_NOTES)
        try:
            stay = Interval(parse_instant(body["arrives"]), parse_instant(body["departs"]))
            vessel_id = str(body["vessel"])
        except KeyError as missing:
            raise BadRequest(f"{missing.args[0]} is missing") from None
        reservation = self.harbour.hold(
            vessel_id,
            stay,
            priority=_priority(body.get("priority", "visitor")),
            power_amps=int(body.get("power_amps", 0)),
            notes=notes,
        )
        location = f"/v1/reservations/{reservation.id}"
        return Response.of(reservation.as_dict(), 201, Location=location)

    def confirm(self, request: Request) -> Response:
        return Response.of(self.harbour.confirm(request.params["reservation"]).as_dict())

    def reservations(self, request: Request) -> Response:
        limit = page_limit(request.query.get("limit"), self.harbour.settings.http.max_page)
        page = self.harbour.store.reservations(request.query.get("after", ""), limit)
        body: dict[str, Any] = {"reservations": [reservation.as_dict() for reservation in page]}
        if len(page) == limit:
            body["next"] = page[-1].id
        return Response.of(body)

    def reservation(self, request: Request) -> Response:
        found = self.harbour.store.reservation(request.params["reservation"])
        return Response.of(found.as_dict(), ETag=f'"{found.version}"')

    def cancel(self, request: Request) -> Response:
        cancelled, owed = self.harbour.cancel(request.params["reservation"])
        return Response.of({**cancelled.as_dict(), "owed_pence": owed})

    def calendar(self, request: Request) -> Response:
        text = self.harbour.calendar(request.params["reservation"])
        return Response.text(text, "text/calendar")

    def invoice(self, request: Request) -> Response:
        invoice = self.harbour.store.invoice(request.params["reservation"])
        return Response.of(
            {
                "number": invoice.number,
                "lines": invoice.lines,
                "net_pence": invoice.net_pence,
                "vat_pence": invoice.vat_pence,
                "gross_pence": invoice.gross_pence,
                "issued_at": format_instant(invoice.issued_at),
            }
        )

    def occupancy(self, request: Request) -> Response:
        start = parse_instant(request.require("from"))
        hours = float(request.query.get("hours", "24"))
        span = Interval(start, start + timedelta(hours=hours))
        return Response.of({"occupancy": round(self.harbour.occupancy(span), 4)})


def _priority(name: str) -> Priority:
    try:
        return Priority[name.upper()]
    except KeyError:
        known = [priority.name.lower() for priority in Priority]
        raise BadRequest(f"no priority {name!r}", known=known) from None
