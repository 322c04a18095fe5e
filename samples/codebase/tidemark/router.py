"""Requests, responses and the matching of paths; no sockets and no business.

A pattern is a path with names in braces: ``/v1/stations/{station}/tides``. A name matches one
segment. There are no regular expressions because nobody has needed one in six years.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tidemark.errors import BadRequest


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    params: dict[str, str] = field(default_factory=dict)

    @classmethod
    def build(
        cls,
        method: str,
        target: str,
        headers: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> Request:
        """From a request line's target. A repeated query parameter is an error, not a lottery."""
        parts = urlsplit(target)
        query: dict[str, str] = {}
        for key, value in parse_qsl(parts.query, keep_blank_values=True):
            if key in query:
                raise BadRequest(f"{key} is given twice")
            query[key] = value
        lowered = {key.lower(): value for key, value in (headers or {}).items()}
        return cls(method.upper(), parts.path, query, lowered, body)

    def json(self) -> dict[str, Any]:
        if not self.body:
            raise BadRequest("this request needs a JSON body")
        try:
            value = json.loads(self.body)
        except ValueError as problem:
            raise BadRequest("the body is not valid JSON") from problem
        if not isinstance(value, dict):
            raise BadRequest("the body should be a JSON object")
        return value

    def require(self, name: str) -> str:
        value = self.query.get(name, "").strip()
        if not value:
            raise BadRequest(f"the parameter {name} is missing")
        return value


@dataclass(frozen=True)
class Response:
    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, value: Any, status: int = 200, **headers: str) -> Response:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return cls(
            status,
            text.encode(),
            headers={name.replace("_", "-"): item for name, item in headers.items()},
        )

    @classmethod
    def text(cls, value: str, content_type: str) -> Response:
        return cls(200, value.encode(), f"{content_type}; charset=utf-8")


Handler = Callable[[Request], Response]


class Router:
    def __init__(self) -> None:
        self._routes: list[tuple[str, tuple[str, ...], Handler]] = []

    def add(self, method: str, pattern: str, handler: Handler) -> None:
        segments = tuple(pattern.strip("/").split("/"))
        for known_method, known, _ in self._routes:
            if known_method == method and _shape(known) == _shape(segments):
                raise ValueError(f"{method} {pattern} is already routed")
        self._routes.append((method, segments, handler))

    def find(self, method: str, path: str) -> tuple[Handler, dict[str, str]] | list[str]:
        """The handler and its parameters; or, failing that, the methods this path does have.

        An empty list therefore means 404 and a filled one 405.
        """
        wanted = [unquote(segment) for segment in path.strip("/").split("/")]
        allowed: list[str] = []
        for route_method, segments, handler in self._routes:
            params = _match(segments, wanted)
            if params is None:
                continue
            if route_method == method:
                return handler, params
            allowed.append(route_method)
        return sorted(allowed)


def _shape(segments: tuple[str, ...]) -> tuple[str, ...]:
    return tuple("{}" if segment.startswith("{") else segment for segment in segments)


def _match(segments: tuple[str, ...], wanted: list[str]) -> dict[str, str] | None:
    if len(segments) != len(wanted):
        return None
    params: dict[str, str] = {}
    for segment, value in zip(segments, wanted, strict=True):
        if segment.startswith("{"):
            if not value:
                return None
            params[segment[1:-1]] = value
        elif segment != value:
            return None
    return params
