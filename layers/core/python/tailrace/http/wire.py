"""Requests and responses as the stream routes see them, whatever server carries them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol
from urllib.parse import parse_qsl

RawHeaders = list[tuple[bytes, bytes]]

_SPACE: Final = b" \t"

REQUEST_HEADERS: Final = (
    "Content-Type",
    "Authorization",
    "If-None-Match",
    "Stream-Seq",
    "Stream-TTL",
    "Stream-Expires-At",
    "Stream-Closed",
    "Producer-Id",
    "Producer-Epoch",
    "Producer-Seq",
    "Stream-Forked-From",
    "Stream-Fork-Offset",
    "Stream-Fork-Sub-Offset",
)
RESPONSE_HEADERS: Final = (
    "Stream-Next-Offset",
    "Stream-Cursor",
    "Stream-Up-To-Date",
    "Stream-Closed",
    "Stream-SSE-Data-Encoding",
    "Stream-TTL",
    "Stream-Expires-At",
    "ETag",
    "Location",
    "Content-Type",
    "Content-Encoding",
    "Vary",
    "Retry-After",
    "Producer-Epoch",
    "Producer-Seq",
    "Producer-Expected-Seq",
    "Producer-Received-Seq",
)
METHODS: Final = "GET, POST, PUT, DELETE, HEAD, OPTIONS"
READ_METHODS: Final = "GET, HEAD, OPTIONS"

COMMON_HEADERS: Final[RawHeaders] = [
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"cross-origin"),
    (b"access-control-allow-origin", b"*"),
    (b"access-control-expose-headers", ", ".join(RESPONSE_HEADERS).encode()),
]
"""On every answer of the stream routes."""

PREFLIGHT_HEADERS: Final[RawHeaders] = [
    (b"access-control-allow-methods", METHODS.encode()),
    (b"access-control-allow-headers", ", ".join(REQUEST_HEADERS).encode()),
    (b"access-control-max-age", b"86400"),
]


class Request:
    """A request with its whole body."""

    __slots__ = ("body", "headers", "method", "query", "raw_path", "scheme")

    def __init__(
        self,
        method: str,
        raw_path: str,
        query: str,
        headers: RawHeaders,
        body: bytes,
        scheme: str = "http",
    ) -> None:
        self.method = method
        self.raw_path = raw_path
        self.query = query
        self.headers = _combined(headers)
        self.body = body
        self.scheme = scheme

    def header(self, name: bytes) -> str | None:
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    def parameters(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        if self.query:
            for name, value in parse_qsl(self.query, keep_blank_values=True):
                found.setdefault(name, []).append(value)
        return found


class Response(NamedTuple):
    """An answer of known length."""

    status: int
    headers: RawHeaders
    body: bytes = b""


class Sink(Protocol):
    """Where an answer that goes on is written."""

    async def room(self) -> None:
        """Until there is room for more."""

    def push(self, data: bytes) -> bool:
        """Write at once; False when there is no room for more after that."""


class Streaming(NamedTuple):
    """An answer that goes on: `run` writes it, and returns when it is over."""

    status: int
    headers: RawHeaders
    run: Callable[[Sink], Awaitable[None]]


def _combined(headers: RawHeaders) -> dict[bytes, bytes]:
    """One value per name, without the space around it; a name that comes twice is a list."""
    found = {name: value.strip(_SPACE) for name, value in headers}
    if len(found) == len(headers):
        return found
    values: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        values.setdefault(name, []).append(value.strip(_SPACE))
    return {name: b", ".join(each) for name, each in values.items()}
