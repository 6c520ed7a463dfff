"""The fast lane: stream requests answered straight from uvicorn's parser.

uvicorn owns sockets, parsing, keep-alive, upgrades and shutdown. What it does per request to speak
ASGI costs twice as much as an append does, so for the stream routes its request/response cycle is
replaced by a leaner one. Every other request goes through ASGI as usual.
"""

from __future__ import annotations

import asyncio
import http
import logging
from contextlib import aclosing
from itertools import chain
from typing import Any, Final, Protocol, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tailrace.errors import BadRequest, HeadersTooLarge, MethodNotAllowed
from tailrace.http.asgi import has_length
from tailrace.http.paths import PREFIXES
from tailrace.http.routes import Answer, StreamRoutes
from tailrace.http.statuses import error_response
from tailrace.http.wire import (
    COMMON_HEADERS,
    METHODS,
    RawHeaders,
    Request,
    Response,
    Streaming,
)
from tailrace.limits import HEADER_BYTES, HEADER_COUNT

logger = logging.getLogger("tailrace")

_RAW_PREFIXES: Final = tuple(prefix.encode() for prefix in PREFIXES)
_OFFER_HEADERS: Final = (b"upgrade", b"connection", b"http2-settings")
_STATUS_LINES: Final = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode())
    for status in http.HTTPStatus
}


def _rendered(headers: RawHeaders) -> bytes:
    return b"".join([b"%b: %b\r\n" % header for header in headers])


_COMMON: Final = _rendered(COMMON_HEADERS)

_STALLED_SECONDS: Final = 30
"""A reader of events who takes nothing for so long is let go; it can come back with its offset."""

_JOIN_BYTES: Final = 64 << 10
"""Larger bodies are handed over as they are instead of being copied behind their head."""


class _Event(Protocol):
    def set(self) -> None: ...


class _NoEvent:
    """uvicorn rings a bell for its own cycle; ours is told directly."""

    def set(self) -> None:
        pass


_NO_EVENT: Final[_Event] = _NoEvent()


class Exchange:
    """One request and its answer on a connection; stands where uvicorn's cycle would."""

    __slots__ = (
        "_chunked",
        "_expects",
        "_headers",
        "_length",
        "_method",
        "_parts",
        "_protocol",
        "_ready",
        "_task",
        "_url",
        "_whole",
        "disconnected",
        "keep_alive",
        "message_event",
        "response_complete",
    )

    def __init__(self, protocol: StreamProtocol, method: str, version: str) -> None:
        self._protocol = protocol
        self._method = method
        self._url = protocol.url
        self._headers: RawHeaders = protocol.headers
        self._expects = protocol.expect_100_continue
        self._chunked = version != "1.0"
        self._parts: list[bytes] = []
        self._length = 0
        self._whole = False
        self._ready = False
        self._task: asyncio.Task[None] | None = None
        # What uvicorn looks at:
        self.keep_alive = self._chunked and protocol.parser.should_keep_alive()
        self.disconnected = False
        self.response_complete = False
        self.message_event = _NO_EVENT

    def start(self) -> None:
        """Its turn has come: no earlier request of the connection is unanswered."""
        self._ready = True
        if self._whole:
            self._run()
        elif self._expects:
            self._invite()

    def feed(self, data: bytes) -> None:
        """A piece of the body; what is beyond the limit is read and dropped."""
        self._length += len(data)
        if self._length <= self._protocol.routes.max_body_bytes:
            self._parts.append(data)

    def finish(self) -> None:
        self._whole = True
        if self._ready and self._task is None:
            self._run()

    def leave(self) -> None:
        """The client is gone. A write goes on: it may be half done; a read need not."""
        if self._task is not None and self._method == "GET":
            self._task.cancel()

    def _invite(self) -> None:
        """Let a client that asked first send its body, unless it is known to be too large."""
        length = dict(self._headers).get(b"content-length", b"0")
        if int(length) > self._protocol.routes.max_body_bytes:
            self._length = int(length)
            self.keep_alive = False
            self._run()
        else:
            self._protocol.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _run(self) -> None:
        self._task = self._protocol.loop.create_task(self._serve())

    async def _serve(self) -> None:
        try:
            answer = await self._answer()
            if self.disconnected:
                return
            if isinstance(answer, Response):
                self._write(answer)
            else:
                await self._stream(answer)
        except TimeoutError:
            self._protocol.transport.abort()
            return
        except Exception:
            # The head may be sent: hanging up is all that still tells the client.
            logger.exception("%s %s broke off", self._method, self._url.decode("latin-1"))
            self._protocol.transport.close()
            return
        self._complete()

    async def _answer(self) -> Answer:
        routes = self._protocol.routes
        if self._length > routes.max_body_bytes:
            self._parts.clear()
            return routes.too_large()
        parts = self._parts
        raw_path, _, query = self._url.partition(b"?")
        return await routes.respond(
            Request(
                self._method,
                raw_path.decode("latin-1"),
                query.decode("latin-1"),
                self._headers,
                parts[0] if len(parts) == 1 else b"".join(parts),
            )
        )

    def _write(self, answer: Response) -> None:
        transport = self._protocol.transport
        head = self._head(answer)
        if not has_length(self._method, answer.status):
            head.append(b"\r\n")
            transport.write(b"".join(head))
            return
        head.append(b"content-length: %d\r\n\r\n" % len(answer.body))
        if len(answer.body) <= _JOIN_BYTES:
            head.append(answer.body)
            transport.write(b"".join(head))
        else:
            transport.write(b"".join(head))
            transport.write(answer.body)

    async def _stream(self, answer: Streaming) -> None:
        protocol = self._protocol
        transport = protocol.transport
        head = self._head(answer)
        head.append(b"transfer-encoding: chunked\r\n\r\n" if self._chunked else b"\r\n")
        transport.write(b"".join(head))
        async with aclosing(answer.chunks) as chunks:
            async for chunk in chunks:
                if protocol.flow.write_paused:
                    async with asyncio.timeout(_STALLED_SECONDS):
                        await protocol.flow.drain()
                if self.disconnected:
                    return
                transport.write(b"%x\r\n%b\r\n" % (len(chunk), chunk) if self._chunked else chunk)
        if self._chunked:
            transport.write(b"0\r\n\r\n")

    def _head(self, answer: Answer) -> list[bytes]:
        parts = [_STATUS_LINES[answer.status], self._protocol.default_headers(), _COMMON]
        parts += [b"%b: %b\r\n" % header for header in answer.headers]
        if not self.keep_alive:
            parts.append(b"connection: close\r\n")
        return parts

    def _complete(self) -> None:
        self.response_complete = True
        if not self.keep_alive:
            self._protocol.transport.close()
        self._protocol.on_response_complete()


class Refusal:
    """The answer to what cannot be read on, given when its turn has come; then the line is cut."""

    def __init__(self, protocol: StreamProtocol, answer: Response) -> None:
        self._protocol = protocol
        self._answer = answer
        # What uvicorn looks at:
        self.keep_alive = False
        self.disconnected = False
        self.response_complete = False
        self.message_event = _NO_EVENT

    def start(self) -> None:
        body = self._answer.body
        parts = [
            _STATUS_LINES[self._answer.status],
            self._protocol.default_headers(),
            _COMMON,
            _rendered(self._answer.headers),
            b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body),
            body,
        ]
        self.response_complete = True
        self._protocol.transport.write(b"".join(parts))
        self._protocol.transport.close()


class StreamProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with the fast lane."""

    routes: StreamRoutes
    _default: tuple[Any, bytes] = (None, b"")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._answering: Any = None
        """The request whose turn it is to be answered."""
        self._requests = 0
        self._in_head = False
        self._receiving: Any = None
        """The request whose body is being read."""
        self._head_bytes = 0
        self._declining = False
        self._refused = False

    def default_headers(self) -> bytes:
        """Date and the like; uvicorn makes a new list once a second."""
        headers = self.server_state.default_headers
        if StreamProtocol._default[0] is not headers:
            StreamProtocol._default = (headers, _rendered(headers))
        return StreamProtocol._default[1]

    # What the transport calls

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._unset_keepalive_if_required()
        head = self._requests if self._in_head else None
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            if self._should_upgrade():
                self.handle_websocket_upgrade()
            else:
                self._decline_upgrade(data[offer.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("what was sent is not HTTP/1.1")
        # The parser keeps a header field of any length until it has seen its end.
        if self._in_head and head == self._requests:
            self._head_bytes += len(data)
            if self._head_bytes > HEADER_BYTES:
                self._refuse_head()
        else:
            self._head_bytes = 0

    def connection_lost(self, exc: Exception | None) -> None:
        answering = self._answering
        if answering is not None and not answering.response_complete:
            answering.disconnected = True
            answering.message_event.set()
            if isinstance(answering, Exchange):
                answering.leave()
        self.pipeline.clear()
        super().connection_lost(exc)

    # What the parser calls

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._requests += 1
        self._in_head = True

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self._refused:
            return
        size = len(self.url) + sum(map(len, chain.from_iterable(self.headers)))
        if len(self.headers) > HEADER_COUNT or size > HEADER_BYTES:
            self._refuse_head()
            return
        if self.parser.should_upgrade() and not self._should_upgrade():
            self._declining = True
            return
        if not self.url.startswith(_RAW_PREFIXES) or self.parser.should_upgrade():
            super().on_headers_complete()
        else:
            method = self.parser.get_method().decode("ascii")
            self._enqueue(Exchange(self, method, self.parser.get_http_version()))
        self._receiving = self.cycle
        if not self.parser.should_upgrade():
            # Fields after a chunked body are not fields of the head.
            self.headers = []

    def on_body(self, body: bytes) -> None:
        if self._refused or self._declining:
            return
        exchange: object = self.cycle
        if isinstance(exchange, Exchange):
            exchange.feed(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._receiving = None
        if self._refused or self._declining:
            return
        exchange: object = self.cycle
        if isinstance(exchange, Exchange):
            exchange.finish()
        else:
            super().on_message_complete()

    # Turns

    def _enqueue(self, cycle: Exchange | Refusal) -> None:
        before: Any = self.cycle
        self.cycle = cast(Any, cycle)
        if before is None or before.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._answering = cycle
        if isinstance(cycle, Exchange | Refusal):
            cycle.start()
        else:
            super()._start_asgi_task(cycle, app)

    def _decline_upgrade(self, rest: bytes) -> None:
        """Stay with HTTP/1.1, as a server may, by reading the request again without the offer."""
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._refuse(error_response(MethodNotAllowed("CONNECT", METHODS)))
            return
        closes = not self.parser.should_keep_alive()
        head = [b"%b %b HTTP/1.1\r\n" % (method, self.url)]
        head += [b"%b: %b\r\n" % each for each in self.headers if each[0] not in _OFFER_HEADERS]
        head.append(b"connection: close\r\n\r\n" if closes else b"\r\n")
        self._declining = False
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(b"".join(head) + rest)

    def send_400_response(self, msg: str) -> None:
        self._refuse(error_response(BadRequest(msg)))

    def _refuse_head(self) -> None:
        limit = f"at most {HEADER_COUNT} header fields and {HEADER_BYTES} bytes of them"
        self._refuse(error_response(HeadersTooLarge(f"a request has {limit}")))

    def _refuse(self, answer: Response) -> None:
        """Read nothing more; answer what came before, then this, and hang up."""
        if self._refused or self.transport.is_closing():
            return
        self._refused = True
        unfinished = self._receiving
        if unfinished is not None:
            # The request that broke off gets the refusal for its answer.
            if self.pipeline and self.pipeline[0][0] is unfinished:
                self.pipeline.popleft()
            if self._answering is unfinished:
                Refusal(self, answer).start()
                return
            self.cycle = self._answering if not self.pipeline else self.pipeline[0][0]
        self._enqueue(Refusal(self, answer))


def stream_protocol(routes: StreamRoutes) -> type[StreamProtocol]:
    """The protocol class for uvicorn, bound to the routes it answers."""
    return type("BoundStreamProtocol", (StreamProtocol,), {"routes": routes})
