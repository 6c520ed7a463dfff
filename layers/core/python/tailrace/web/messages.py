"""Requests and responses as the stream routes see them, whatever server carries them."""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol
from urllib.parse import parse_qsl

from tailrace.auth.origins import Origins
from tailrace.web.bodies import too_large

RawHeaders = list[tuple[bytes, bytes]]

_SPACE: Final = b" \t"
_ID: Final = re.compile(rb"[A-Za-z0-9._:-]{1,64}")

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
    "X-Signed",
    "X-JID",
    "X-Request-ID",
)
ALLOWED_HEADERS: Final = (*REQUEST_HEADERS, "Idempotency-Key")
"""What pages may send: those of streams, and what Aviso has besides."""

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
    "WWW-Authenticate",
    "X-Request-ID",
)
METHODS: Final = "GET, POST, PUT, DELETE, HEAD, OPTIONS"
READ_METHODS: Final = "GET, HEAD, OPTIONS"

COMMON_HEADERS: Final[RawHeaders] = [
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"cross-origin"),
]
"""On every answer."""

_EXPOSED: Final = (b"access-control-expose-headers", ", ".join(RESPONSE_HEADERS).encode())
ANY_ORIGIN: Final[RawHeaders] = [(b"access-control-allow-origin", b"*"), _EXPOSED]
"""On every answer while the pages of all sites may use the server."""

PREFLIGHT_HEADERS: Final[RawHeaders] = [
    (b"access-control-allow-methods", METHODS.encode()),
    (b"access-control-allow-headers", ", ".join(ALLOWED_HEADERS).encode()),
    (b"access-control-max-age", b"86400"),
]


class Disconnected(BaseException):
    """The client left before its request was complete.

    Like a cancellation it is no Exception: nobody is left to be answered."""


class BodySource(Protocol):
    """Where the body of a request comes from, once it is wanted."""

    async def read(self, limit: int) -> bytes:
        """The whole body; raises BodyTooLarge, ServerBusy or Disconnected."""


class Request:
    """A request, judged by its head before its body is read."""

    __slots__ = (
        "_source",
        "body",
        "client",
        "edge_verified",
        "fields",
        "headers",
        "method",
        "peer",
        "query",
        "raw_path",
        "scheme",
    )

    def __init__(
        self,
        method: str,
        raw_path: str,
        query: str,
        headers: RawHeaders,
        body: bytes,
        scheme: str = "http",
        *,
        peer: str = "",
        edge_verified: bool = False,
        source: BodySource | None = None,
    ) -> None:
        """`peer`: the address it came from. `edge_verified`: the edge has authorized this read.
        `source`: has the body, if `body` does not."""
        self.method = method
        self.raw_path = raw_path
        self.query = query
        self.fields = headers
        self.headers = combined(headers)
        self.body = body
        """Empty until `read` was called, unless it was given."""
        self._source = source
        self.scheme = scheme
        self.peer = peer
        self.client = ""
        """Who counts as one client, as `tailrace.web.limiter` sees it."""
        self.edge_verified = edge_verified

    async def read(self, limit: int) -> None:
        """Take the body; until then a client that waits for 100 Continue sends nothing of it."""
        if self._source is not None:
            self.body = await self._source.read(limit)
            self._source = None
        elif len(self.body) > limit:
            raise too_large(limit)

    def header(self, name: bytes) -> str | None:
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    def parameters(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        if self.query:
            for name, value in parse_qsl(self.query, keep_blank_values=True):
                found.setdefault(name, []).append(value)
        return found

    def id(self) -> str:
        return request_id(self.headers.get(b"x-request-id"))


class Response(NamedTuple):
    """An answer of known length."""

    status: int
    headers: RawHeaders
    body: bytes = b""


class Sink(Protocol):
    """Where an answer that goes on is written."""

    async def drain(self) -> None:
        """Until there is room for more."""

    def push(self, data: bytes) -> bool:
        """Write at once; False when there is no room for more after that."""


class Streaming(NamedTuple):
    """An answer that goes on: `run` writes it, and returns when it is over."""

    status: int
    headers: RawHeaders
    run: Callable[[Sink], Awaitable[None]]


Answer = Response | Streaming


def has_length(method: str, status: int) -> bool:
    """Whether an answer carries Content-Length: not where HTTP forbids or ignores a body."""
    return method != "HEAD" and status not in (204, 304)


def request_id(given: bytes | None) -> str:
    """What the client calls its request, if that is fit for a log, or else a new name: by it the
    answer and the log can be told to belong together."""
    return given.decode() if given is not None and is_id(given) else new_id()


def is_id(given: bytes) -> bool:
    return _ID.fullmatch(given) is not None


def new_id() -> str:
    return secrets.token_hex(8)


def combined(headers: RawHeaders) -> dict[bytes, bytes]:
    """One value per name, without the space around it; a name that comes twice is a list."""
    found = {name: value.strip(_SPACE) for name, value in headers}
    if len(found) == len(headers):
        return found
    values: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        values.setdefault(name, []).append(value.strip(_SPACE))
    return {name: b", ".join(each) for name, each in values.items()}


def cors(origins: Origins, given: bytes | None) -> RawHeaders:
    """What tells a browser whether a page of the origin that it gave may see the answer."""
    if origins.any:
        return ANY_ORIGIN
    varies = (b"vary", b"origin")
    if given is None or not origins.allow(given.decode("latin-1")):
        return [varies]
    # With its own name, and not a star, a browser lets the page send credentials along.
    return [
        (b"access-control-allow-origin", given),
        (b"access-control-allow-credentials", b"true"),
        _EXPOSED,
        varies,
    ]
