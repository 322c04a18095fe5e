"""Sockets, tokens and rate limits around :class:`tidemark.api.App`.

The standard library's threading server is enough for a harbour: the busiest on record peaked at
eleven requests a second, on the morning of a regatta. A reverse proxy does TLS.
"""

from __future__ import annotations

import hmac
import logging
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tidemark import __version__
from tidemark.api import App
from tidemark.errors import BadRequest, RateLimited, TidemarkError, Unauthorised
from tidemark.router import Request, Response
from tidemark.service import Harbour

log = logging.getLogger("tidemark.server")

#: Seconds a connection may dawdle between bytes before it is dropped.
SOCKET_TIMEOUT_S = 18.0

#: Largest request body accepted.
MAX_BODY_BYTES = 48 * 1024

#: The one path that is answered without a bearer token.
PUBLIC_PATHS = frozenset({"/v1/health"})

#: Requests a quiet client may make at once before the per-minute rate applies.
BURST = 25

SWEEP_EVERY_S = 60.0


class Bucket:
    """A token bucket per caller: ``rate`` a minute, up to ``burst`` saved up."""

    def __init__(
        self, rate: int, burst: int = BURST, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_second = rate / 60.0
        self._burst = float(burst)
        self._now = now
        self._lock = threading.Lock()
        self._levels: dict[str, tuple[float, float]] = {}

    def take(self, caller: str) -> None:
        """Spend one token of ``caller``'s or raise RateLimited with the seconds to wait."""
        with self._lock:
            now = self._now()
            level, since = self._levels.get(caller, (self._burst, now))
            level = min(self._burst, level + (now - since) * self._per_second)
            if level < 1.0:
                self._levels[caller] = (level, now)
                wait = (1.0 - level) / self._per_second
                raise RateLimited("too many requests", retry_after_s=round(wait, 2))
            self._levels[caller] = (level - 1.0, now)
            if len(self._levels) > 5000:
                self._forget(now)

    def _forget(self, now: float) -> None:
        full_after = self._burst / self._per_second
        self._levels = {
            caller: entry for caller, entry in self._levels.items() if now - entry[1] < full_after
        }


class Gate:
    """Who may come in. Tokens are compared in constant time; an empty list lets everyone in."""

    def __init__(self, tokens: tuple[str, ...]) -> None:
        self._tokens = tokens

    def caller(self, request: Request, address: str) -> str:
        """A name for the rate limiter. Raises Unauthorised for a bad or missing token."""
        if not self._tokens or request.path in PUBLIC_PATHS:
            return address
        scheme, _, offered = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not offered:
            raise Unauthorised("send the header Authorization: Bearer <token>")
        for number, token in enumerate(self._tokens):
            if hmac.compare_digest(token.encode(), offered.strip().encode()):
                return f"token-{number}"
        raise Unauthorised("that token is not known here")


def make_handler(app: App, gate: Gate, bucket: Bucket) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = SOCKET_TIMEOUT_S
        protocol_version = "HTTP/1.1"
        server_version = f"tidemark/{__version__}"

        def _serve(self) -> None:
            try:
                length = int(self.headers.get("Content-Length") or 0)
                if length > MAX_BODY_BYTES:
                    self.close_connection = True
                    raise BadRequest("the body is too large", limit_bytes=MAX_BODY_BYTES)
                body = self.rfile.read(length) if length else b""
                request = Request.build(self.command, self.path, dict(self.headers), body)
                bucket.take(gate.caller(request, self.client_address[0]))
                response = app.handle(request)
            except TidemarkError as problem:
                response = App._failed(problem)
            self._send(response)

        do_GET = do_POST = do_PUT = do_DELETE = _serve

        def _send(self, response: Response) -> None:
            self.send_response(response.status)
            if response.status != 204:
                self.send_header("Content-Type", response.content_type)
            self.send_header("Content-Length", str(len(response.body)))
            for name, value in response.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(response.body)

        def log_message(self, format: str, *args: object) -> None:
            log.debug(format, *args)

    return Handler


def make_server(harbour: Harbour) -> ThreadingHTTPServer:
    http = harbour.settings.http
    handler = make_handler(App(harbour), Gate(http.tokens), Bucket(http.requests_per_minute))
    server = ThreadingHTTPServer((http.host, http.port), handler)
    server.daemon_threads = True
    return server


def serve(harbour: Harbour) -> None:
    """Serve until interrupted, sweeping holds and delivering messages once a minute."""
    server = make_server(harbour)
    stopping = threading.Event()

    def housekeeping() -> None:
        while not stopping.wait(SWEEP_EVERY_S):
            try:
                expired = harbour.sweep()
                delivered, failed = harbour.deliver()
                if expired or delivered or failed:
                    log.info("swept %d, delivered %d, failed %d", expired, delivered, failed)
            except Exception:
                log.exception("housekeeping failed; trying again in a minute")

    thread = threading.Thread(target=housekeeping, name="housekeeping", daemon=True)
    thread.start()
    log.info("listening on %s:%d", *server.server_address[:2])
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        log.info("stopping")
    finally:
        stopping.set()
        server.server_close()
