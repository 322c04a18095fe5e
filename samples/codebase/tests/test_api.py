import json
import threading
import urllib.error
import urllib.request
from dataclasses import replace

import pytest

from tidemark.api import STATUS, App, page_limit
from tidemark.errors import BadRequest, RateLimited, all_codes
from tidemark.router import Request, Router
from tidemark.server import BURST, Bucket, make_server

STAY = {"arrives": "2026-05-05T09:00:00Z", "departs": "2026-05-07T09:00:00Z"}


@pytest.fixture
def app(harbour) -> App:
    return App(harbour)


def ask(app: App, method: str, target: str, body=None, **headers):
    raw = json.dumps(body).encode() if body is not None else b""
    response = app.handle(Request.build(method, target, headers, raw))
    is_json = response.content_type == "application/json" and response.body
    return response, (json.loads(response.body) if is_json else None)


def test_health_and_correlation(app):
    response, body = ask(app, "GET", "/v1/health", **{"X-Correlation-Id": "abc"})
    assert (response.status, body["status"]) == (200, "ok")
    assert response.headers["X-Correlation-Id"] == "abc"


def test_tides_as_json_and_csv(app):
    target = "/v1/stations/saltmere/tides?from=2026-05-01&days=2"
    _, body = ask(app, "GET", target)
    assert [day["day"] for day in body["days"]] == ["2026-05-01", "2026-05-02"]
    response, _ = ask(app, "GET", target, Accept="text/csv")
    assert response.body.startswith(b"station,day,kind")


@pytest.mark.parametrize(
    ("target", "status", "code"),
    [
        ("/v1/stations/atlantis", 404, "TM2001"),
        ("/v1/stations/saltmere/tides", 400, "TM1001"),
        ("/v1/stations/saltmere/tides?from=2026-05-01&days=63", 400, "TM2002"),
        ("/v1/stations?near=here", 400, "TM1001"),
        ("/v1/reservations/R-404", 404, "TM3002"),
        ("/v1/nothing", 404, "TM3002"),
    ],
)
def test_refusals(app, target, status, code):
    response, body = ask(app, "GET", target)
    assert (response.status, body["code"]) == (status, code)


def test_a_wrong_method_lists_the_right_ones(app):
    response, _ = ask(app, "GET", "/v1/holds")
    assert (response.status, response.headers["Allow"]) == (405, "POST")


def test_windows(app):
    target = (
        "/v1/stations/saltmere/windows?from=2026-05-01T00:00:00Z&to=2026-05-02T00:00:00Z"
        "&height=3.5m"
    )
    _, body = ask(app, "GET", target)
    assert len(body["windows"]) == 2


def test_hold_confirm_cancel(app, clock):
    response, held = ask(app, "POST", "/v1/holds", {"vessel": "wren", **STAY})
    assert response.status == 201
    assert response.headers["Location"] == f"/v1/reservations/{held['id']}"
    _, confirmed = ask(app, "POST", f"/v1/holds/{held['id']}/confirm")
    assert confirmed["state"] == "confirmed"
    clock.advance(days=3)
    _, cancelled = ask(app, "POST", f"/v1/reservations/{held['id']}/cancel")
    assert cancelled["owed_pence"] == round(held["price_pence"] * 0.8)
    again, body = ask(app, "POST", f"/v1/reservations/{held['id']}/cancel")
    assert (again.status, body["code"]) == (409, "TM3108")


def test_a_lapsed_hold_is_gone_and_its_berth_free(app, harbour, clock):
    _, held = ask(app, "POST", "/v1/holds", {"vessel": "wren", **STAY})
    clock.advance(minutes=26)
    response, body = ask(app, "POST", f"/v1/holds/{held['id']}/confirm")
    assert (response.status, body["code"]) == (410, "TM3107")
    _, second = ask(app, "POST", "/v1/holds", {"vessel": "wren", **STAY})
    assert second["berth"] == held["berth"]
    assert harbour.sweep() == 0


def test_departure_issues_an_invoice(app, harbour, clock):
    _, held = ask(app, "POST", "/v1/holds", {"vessel": "heron", **STAY})
    harbour.confirm(held["id"])
    clock.advance(days=4)
    from tidemark.model import State

    harbour.record(held["id"], State.ARRIVED)
    clock.advance(hours=20)
    harbour.record(held["id"], State.DEPARTED)
    _, invoice = ask(app, "GET", f"/v1/reservations/{held['id']}/invoice")
    assert invoice["number"] == "TM-2026-00001"
    assert invoice["gross_pence"] < held["price_pence"]  # left a day early


def test_pages_are_clamped_not_refused(app, harbour):
    assert page_limit(None, 200) == 50
    assert page_limit("1000", 200) == 200
    assert page_limit("-4", 200) == 1
    with pytest.raises(BadRequest):
        page_limit("many", 200)
    for _ in range(3):
        harbour.hold("wren", _interval())
    _, first = ask(app, "GET", "/v1/reservations?limit=2")
    _, rest = ask(app, "GET", f"/v1/reservations?limit=2&after={first['next']}")
    assert len(first["reservations"]) == 2
    assert "next" not in rest


def _interval():
    from tidemark.clock import Interval, parse_instant

    return Interval(parse_instant(STAY["arrives"]), parse_instant(STAY["departs"]))


def test_vessels_are_put_with_units(app, harbour):
    body = {"name": "Tern", "loa": "26ft", "beam": "2.5 m", "draught": "3ft 6"}
    response, _ = ask(app, "PUT", "/v1/vessels/tern", body)
    assert response.status == 204
    assert harbour.store.vessel("tern").draught_m == pytest.approx(1.0668)
    response, answer = ask(app, "PUT", "/v1/vessels/tern", {"name": "Tern"})
    assert (response.status, answer["code"]) == (400, "TM1001")


def test_notes_have_a_limit(app):
    response, _ = ask(app, "POST", "/v1/holds", {"vessel": "wren", **STAY, "notes": "x" * 281})
    assert response.status == 400


def test_the_calendar_is_a_calendar(app, harbour):
    held = harbour.hold("wren", _interval())
    response, _ = ask(app, "GET", f"/v1/reservations/{held.id}/calendar.ics")
    assert response.content_type.startswith("text/calendar")
    assert b"STATUS:TENTATIVE" in response.body


def test_a_bug_becomes_a_500_without_its_details(app, harbour, monkeypatch):
    monkeypatch.setattr(harbour, "health", lambda: 1 / 0)
    response, body = ask(app, "GET", "/v1/health")
    assert (response.status, body["message"]) == (500, "internal error")


def test_every_status_belongs_to_a_code():
    assert set(STATUS) <= set(all_codes())


def test_two_routes_of_one_shape_are_refused():
    router = Router()
    router.add("GET", "/a/{x}", lambda request: None)
    with pytest.raises(ValueError, match="already"):
        router.add("GET", "/a/{y}", lambda request: None)


def test_a_repeated_parameter_is_refused():
    with pytest.raises(BadRequest):
        Request.build("GET", "/v1/berths?limit=1&limit=2")


def test_the_bucket_empties_and_refills():
    now = [0.0]
    bucket = Bucket(60, now=lambda: now[0])
    for _ in range(BURST):
        bucket.take("kiosk")
    with pytest.raises(RateLimited) as caught:
        bucket.take("kiosk")
    assert caught.value.detail["retry_after_s"] == pytest.approx(1.0)
    bucket.take("somebody else")
    now[0] = 1.0
    bucket.take("kiosk")


def test_over_a_real_socket(harbour):
    http = replace(harbour.settings.http, port=0, tokens=("sesame",))
    harbour.settings = replace(harbour.settings, http=http)
    server = make_server(harbour)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    base = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        with urllib.request.urlopen(f"{base}/v1/health", timeout=5) as answer:
            assert answer.status == 200
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{base}/v1/berths", timeout=5)
        assert caught.value.code == 401
        request = urllib.request.Request(
            f"{base}/v1/berths", headers={"Authorization": "Bearer sesame"}
        )
        with urllib.request.urlopen(request, timeout=5) as answer:
            assert len(json.load(answer)["berths"]) == 5
    finally:
        server.shutdown()
        server.server_close()
