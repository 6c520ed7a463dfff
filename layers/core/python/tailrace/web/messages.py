"""Requests and responses of all protocols, independent of the server that carries them."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple, Protocol
from urllib.parse import parse_qsl

from tailrace import __version__
from tailrace.auth.origins import Origins
from tailrace.errors import BodyTooLarge, ServerBusy
from tailrace.live.follower import Sink


class BodyMemory:
    """Counts the bytes of request bodies that are in memory."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.used = 0

    def reserve(self, size: int) -> None:
        """Reserve memory for a piece of a body; raises ServerBusy if other bodies use it all."""
        if self.used + size > self._limit:
            raise ServerBusy("the memory for request bodies is used up; try again")
        self.used += size

    def release(self, size: int) -> None:
        self.used -= size


def check_length(declared: bytes | None, limit: int) -> None:
    """Refuse a body that is too large before any of it is read."""
    # The HTTP parser has checked that it is a number. The number of its digits is checked first,
    # since Python takes long to convert thousands of them.
    if declared is not None and (len(declared) > 20 or int(declared) > limit):
        raise too_large(limit)


def too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"a body has at most {limit} bytes")


RawHeaders = list[tuple[bytes, bytes]]

_SPACE: Final = b" \t"
_ID: Final = re.compile(rb"[A-Za-z0-9._:-]{1,64}")
_ID_BATCH: Final = 64
_ids: Final[list[str]] = []
"""Ids for the next requests."""

REQUEST_HEADERS: Final = (
    "Content-Type",
    "Authorization",
    "If-Match",
    "If-None-Match",
    "Last-Event-ID",
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
"""Request headers that web pages may send: those of streams, and that of Aviso."""

RESPONSE_HEADERS: Final = (
    "Stream-Next-Offset",
    "Stream-Cursor",
    "Stream-Up-To-Date",
    "Stream-Closed",
    "Stream-SSE-Data-Encoding",
    "Stream-TTL",
    "Stream-Expires-At",
    "Stream-Earliest-Offset",
    "Stream-Last-Written-At",
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

VERSION_HEADER: Final = (b"x-tailrace-version", __version__.encode())
"""Not `Server`, because function URLs and CloudFront set that themselves."""

COMMON_HEADERS: Final[RawHeaders] = [
    VERSION_HEADER,
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"cross-origin"),
]
"""Headers of every answer."""

_EXPOSED: Final = (b"access-control-expose-headers", ", ".join(RESPONSE_HEADERS).encode())
ANY_ORIGIN: Final[RawHeaders] = [(b"access-control-allow-origin", b"*"), _EXPOSED]
"""Headers of every answer while pages of all sites may use the server."""

PREFLIGHT_HEADERS: Final[RawHeaders] = [
    (b"access-control-allow-methods", METHODS.encode()),
    (b"access-control-allow-headers", ", ".join(ALLOWED_HEADERS).encode()),
    (b"access-control-max-age", b"86400"),
]


class Disconnected(BaseException):
    """The client disconnected before its request was complete.

    Like a cancellation it is no Exception: there is no client left to send an error to."""


class BodySource(Protocol):
    """Reads the body of a request on demand."""

    async def read(self, limit: int) -> bytes:
        """Read the whole body; raises BodyTooLarge, ServerBusy or Disconnected."""


class Request:
    """A request whose body is read only once the head has been accepted."""

    __slots__ = (
        "_source",
        "body",
        "client",
        "edge_verified",
        "fields",
        "headers",
        "id",
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
        """`peer`: the address that the request came from. `edge_verified`: the edge has authorized
        this read. `source`: reads the body, if it is not given as `body`."""
        self.method = method
        self.raw_path = raw_path
        self.query = query
        self.fields = headers
        self.headers = combine(headers)
        self.id = request_id(self.headers.get(b"x-request-id"))
        """Names the request in the answer and in the log."""
        self.body = body
        """Empty until `read` is called, unless the constructor got it."""
        self._source = source
        self.scheme = scheme
        self.peer = peer
        self.client = ""
        """The key by which `tailrace.web.limiter` counts the client."""
        self.edge_verified = edge_verified

    def restore(
        self, headers: RawHeaders, query: str, scheme: str, peer: str, *, edge_verified: bool
    ) -> None:
        """Replace what the edge has changed by what the client has sent."""
        self.fields = headers
        self.headers = combine(headers)
        self.query = query
        self.scheme = scheme
        self.peer = peer
        self.edge_verified = edge_verified

    async def read(self, limit: int) -> None:
        """Read the body; a client that waits for 100 Continue sends nothing before this call."""
        if self._source is not None:
            self.body = await self._source.read(limit)
            self._source = None
        elif len(self.body) > limit:
            raise too_large(limit)

    def header(self, name: bytes) -> str | None:
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    def parameters(self) -> dict[str, list[str]]:
        parameters: dict[str, list[str]] = {}
        if self.query:
            for name, value in parse_qsl(self.query, keep_blank_values=True):
                parameters.setdefault(name, []).append(value)
        return parameters


class Response(NamedTuple):
    """An answer of known length."""

    status: int
    headers: RawHeaders
    body: bytes = b""


class Parked(Protocol):
    """A streaming answer that waits for data, with nothing running for it."""

    over: bool
    """Whether it has come to its end."""

    def park(self, sink: Sink, wake: Callable[[], None]) -> None:
        """Let it write to `sink` from now on. `wake` is called when it is over, or `resume` has
        something to do: once, and not before this returns."""

    async def resume(self) -> bool:
        """Go on; returns whether it waits again, and is to be parked anew, or is over."""

    def leave(self) -> None:
        """Forget it: its client has gone."""


class Streaming(NamedTuple):
    """An answer of unknown length: `run` writes its body, and returns at its end."""

    status: int
    headers: RawHeaders
    run: Callable[[Sink], Awaitable[None]]
    begin: Callable[[Sink], Awaitable[Parked | None]] | None = None
    """As `run`, but it returns as soon as the answer waits for data; None: it does not."""


async def run_parked(parked: Parked, sink: Sink) -> None:
    """Run an answer that waits to its end."""
    loop = asyncio.get_running_loop()
    while True:
        woken = loop.create_future()
        parked.park(sink, partial(_resolve, woken))
        try:
            await woken
        except BaseException:
            parked.leave()
            raise
        if parked.over or not await parked.resume():
            return


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Rendered(NamedTuple):
    """An answer of known length."""

    status: int
    headers: bytes
    """Rendered; without those of every answer, and the length."""
    body: bytes
    id: bytes
    """The id of the request, which is among the headers."""


class PollClient(Sink, Protocol):
    """A request that waits for its answer without a task."""

    def answer(self, answer: Rendered) -> None: ...

    def serve(self) -> None:
        """Let the handler answer."""


Answer = Response | Streaming


class AppendCaller(Protocol):
    """A request that is an append, and waits for its answer."""

    def confirm_append(self, fields: bytes, request_id: bytes) -> None:
        """Answer that it is stored, with header fields that are rendered."""

    def refuse_append(self, answer: Response) -> None:
        """Answer with an error."""

    def serve(self) -> None:
        """Let the handler answer."""

    def fail(self, error: Exception) -> None:
        """Log an error, and disconnect."""


def has_length(method: str, status: int) -> bool:
    """Whether an answer has Content-Length: HTTP forbids or ignores bodies of the others."""
    return method != "HEAD" and status not in (204, 304)


def request_id(header: bytes | None) -> str:
    """The client's own id of a request if it is fit for a log, or else a new one."""
    return header.decode() if header is not None and is_id(header) else new_id()


def is_id(header: bytes) -> bool:
    return _ID.fullmatch(header) is not None


def new_id() -> str:
    """A random UUID, of version 4."""
    try:
        return _ids.pop()
    except IndexError:
        # One call to the system for many: it takes longer than all the rest.
        digits = secrets.token_hex(16 * _ID_BATCH)
        _ids.extend(_format_id(digits[i : i + 32]) for i in range(0, len(digits), 32))
        return _ids.pop()


def _format_id(digits: str) -> str:
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


def render_headers(headers: RawHeaders) -> bytes:
    return b"".join([b"%b: %b\r\n" % header for header in headers])


def combine(headers: RawHeaders) -> dict[bytes, bytes]:
    """Combine headers into one stripped value per name; repeated ones become a list with commas."""
    combined = {name: value.strip(_SPACE) for name, value in headers}
    if len(combined) == len(headers):
        return combined
    values: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        values.setdefault(name, []).append(value.strip(_SPACE))
    return {name: b", ".join(repeated) for name, repeated in values.items()}


def cors(origins: Origins, origin: bytes | None) -> RawHeaders:
    """The headers that tell a browser whether a page of an origin may read the answer."""
    if origins.allow_all:
        return ANY_ORIGIN
    varies = (b"vary", b"origin")
    if origin is None or not origins.allows(origin.decode("latin-1")):
        return [varies]
    # Browsers send credentials only where the origin is named: a star does not allow them.
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-allow-credentials", b"true"),
        _EXPOSED,
        varies,
    ]
