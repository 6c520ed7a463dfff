"""The fast lane: stream requests answered straight from uvicorn's parser.

uvicorn owns sockets, parsing, keep-alive, upgrades and shutdown. What it does per request to speak
ASGI costs twice as much as an append does, so for the stream routes its request/response cycle is
replaced by a leaner one. Every other request goes through ASGI as usual.
"""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import Any, Final, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tailrace.errors import BadRequest, HeadersTooLarge, MethodNotAllowed, RequestTooSlow
from tailrace.limits import (
    BODY_RATE,
    BODY_SECONDS,
    HEAD_SECONDS,
    HEADER_BYTES,
    HEADER_COUNT,
    LINGER_BYTES,
    LINGER_SECONDS,
    STALLED_SECONDS,
)
from tailrace.web.messages import METHODS, RawHeaders, Response, cors
from tailrace.web.paths import PREFIXES
from tailrace.web.statuses import error_response
from tailrace.web.uvicorn.exchange import Exchange, FastRoutes, Refusal, rendered

_RAW_PREFIXES: Final = tuple(prefix.encode() for prefix in PREFIXES)
_OFFER_HEADERS: Final = (b"upgrade", b"connection", b"http2-settings")


class StreamProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with the fast lane."""

    routes: FastRoutes
    _default: tuple[Any, bytes] = (None, b"")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._answering: Any = None
        """The request whose turn it is to be answered."""
        self._receiving: Any = None
        """The request whose body is being read."""
        self._in_head = False
        self._begun_in_data = False
        self._fed = 0
        """Bytes received in which the present head may lie."""
        self._fed_first = 0
        """Those of them that came with its beginning, and perhaps with other requests."""
        self._declining = False
        self._refused = False
        self._asgi_bytes = 0
        """What has arrived of a body that uvicorn receives."""
        self._expected: Any = None
        """The request whose body was known to be incomplete when data came last."""
        self._since = 0.0
        """When the client was left to send something: the rest of a request, or the next one."""
        self._looks_at = 0.0
        self._dropped = 0
        """Bytes that came after a refusal."""
        self._progressed = False
        """Whether the data that came last held a part of a body."""
        self._unproductive = 0
        """Bytes since the last part of a body: trailers, and what is around chunks."""
        self._stalled: asyncio.TimerHandle | None = None

    def default_headers(self) -> bytes:
        """Date and the like; uvicorn makes a new list once a second."""
        headers = self.server_state.default_headers
        if StreamProtocol._default[0] is not headers:
            StreamProtocol._default = (headers, rendered(headers))
        return StreamProtocol._default[1]

    # What the transport calls

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._since = self.loop.time()
        self._look_in(self.timeout_keep_alive)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            self._dropped += len(data)
            if self._dropped > LINGER_BYTES:
                self.transport.abort()
            return
        receiving, self._progressed = self._receiving, False
        self._begun_in_data = False
        self._fed = self._fed + len(data) if self._in_head else len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            if self._refused:
                return  # type: ignore[unreachable] # mypy does not see that the parser calls back
            if self._should_upgrade():
                self._unset_keepalive_if_required()
                self.handle_websocket_upgrade()
                return
            self._decline_upgrade(data[offer.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("what was sent is not HTTP/1.1")
        if self._in_head:
            if self._begun_in_data:
                self._fed_first = len(data)
                self._expect_rest(HEAD_SECONDS)
            elif self._fed - self._fed_first > HEADER_BYTES:
                # The parser would keep a header field of any length until it has seen its end.
                self._refuse_head()
        elif self._receiving is not self._expected:
            self._expected = self._receiving
            if self._expected is not None:
                self._unproductive = 0
                self._expect_rest(BODY_SECONDS)
                if isinstance(self._expected, Exchange):
                    self._expected.begin_early()
        elif receiving is not None and receiving is self._receiving:
            self._unproductive = 0 if self._progressed else self._unproductive + len(data)
            if self._unproductive > HEADER_BYTES:
                self._refuse_head()

    def connection_lost(self, exc: Exception | None) -> None:
        for cycle in (self._answering, *(each for each, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
                if isinstance(cycle, Exchange):
                    cycle.leave()
        self.pipeline.clear()
        self._unset_keepalive_if_required()
        self._unset_stalled()
        super().connection_lost(exc)
        # They refer to the connection: bodies would be kept until the collector finds the cycle.
        self.cycle = self._answering = self._receiving = self._expected = None  # type: ignore[assignment]

    # What the parser calls

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._in_head = self._begun_in_data = True

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self._refused:
            return
        if len(self.headers) > HEADER_COUNT or (
            self._fed > HEADER_BYTES and head_size(self.url, self.headers) > HEADER_BYTES
        ):
            self._refuse_head()
            return
        upgrades = self.parser.should_upgrade()
        if upgrades and not self._should_upgrade():
            self._declining = True
            return
        if upgrades or not self.url.startswith(_RAW_PREFIXES):
            self._begin_asgi()
        else:
            method = self.parser.get_method().decode("ascii")
            self._enqueue(Exchange(self, method, self.parser.get_http_version()))
        self._receiving = self.cycle
        if not upgrades:
            # Fields after a chunked body are not fields of the head.
            self.headers = []

    def _begin_asgi(self) -> None:
        """Let uvicorn take over, with the scope that it would have begun with the message."""
        self._asgi_bytes = 0
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.headers, self.expect_100_continue = url, headers, expects
        self.scope["headers"] = headers
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if self._refused or self._declining:
            return
        self._progressed = True
        exchange: object = self.cycle
        if isinstance(exchange, Exchange):
            exchange.feed(body)
        else:
            self._asgi_bytes += len(body)
            super().on_body(body)
            if self.cycle.response_complete and self._asgi_bytes > LINGER_BYTES:
                self.transport.close()

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

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        self._since = self.loop.time()
        if self.pipeline:
            cycle: Any
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
            if isinstance(cycle, Exchange):
                cycle.begin_early()

    def _enqueue(self, cycle: Exchange | Refusal) -> None:
        before: Any = self.cycle
        self.cycle = cast("Any", cycle)
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

    # Patience

    def _look_in(self, seconds: float) -> None:
        """One timer that looks again later, instead of one that is set anew by each request."""
        self._looks_at = self.loop.time() + seconds
        self.timeout_keep_alive_task = self.loop.call_later(
            seconds, self.timeout_keep_alive_handler
        )

    def _expect_rest(self, seconds: float) -> None:
        self._since = self.loop.time()
        if self._looks_at > self._since + seconds:
            self._unset_keepalive_if_required()
            self._look_in(seconds)

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.is_closing() or self._refused:
            return
        now = self.loop.time()
        receiving = self._in_head or self._receiving is not None
        answering = self._answering is not None and not self._answering.response_complete
        if self.flow.read_paused or (answering and not receiving):
            # It is not the client's turn: what is not read cannot arrive.
            self._since = now
        left = self._since + self._patience() - now
        if left > 0:
            self._look_in(left)
        elif receiving:
            self._refuse(error_response(self._too_slow()))
        else:
            self.transport.close()

    def _patience(self) -> float:
        if self._in_head:
            return HEAD_SECONDS
        cycle = self._receiving
        if cycle is None:
            return self.timeout_keep_alive
        received = cycle.received if isinstance(cycle, Exchange) else self._asgi_bytes
        # A body that never ends must not go on forever because it is fast.
        return BODY_SECONDS + min(received, self.routes.max_body_bytes) / BODY_RATE

    def _too_slow(self) -> RequestTooSlow:
        if self._in_head:
            return RequestTooSlow(f"the header fields did not arrive in {HEAD_SECONDS} s")
        return RequestTooSlow(
            f"the body came too slowly: it has {BODY_SECONDS} s, and one more for each"
            f" {BODY_RATE} bytes"
        )

    def pause_writing(self) -> None:
        super().pause_writing()
        size = self.transport.get_write_buffer_size()
        self._watch_writing(size, self.loop.time() + STALLED_SECONDS + size / BODY_RATE)

    def resume_writing(self) -> None:
        self._unset_stalled()
        super().resume_writing()

    def _watch_writing(self, size: int, end: float) -> None:
        """Let a client go that takes nothing, or too little, of what waits to be sent to it."""
        self._stalled = self.loop.call_later(STALLED_SECONDS, self._check_writing, size, end)

    def _check_writing(self, before: int, end: float) -> None:
        size = self.transport.get_write_buffer_size()
        if size >= before or self.loop.time() >= end:
            self.transport.abort()
        else:
            self._watch_writing(size, end)

    def _unset_stalled(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    # Refusing

    def linger(self) -> None:
        """Say no more, and drop what the client still sends, up to a bound.

        Closing at once would reset the connection, and the client might never see its answer."""
        self._refused = True
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        self.transport.write_eof()
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(LINGER_SECONDS, self.transport.close)

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
        answer.headers.extend(cors(self.routes.origins, dict(self.headers).get(b"origin")))
        unfinished = self._receiving
        if unfinished is not None:
            if unfinished.response_complete or getattr(unfinished, "response_started", False):
                # A second answer would be taken for that of the next request.
                self.transport.close()
                return
            # The request that broke off gets the refusal for its answer.
            if isinstance(unfinished, Exchange):
                unfinished.abandon()
            if self.pipeline and self.pipeline[0][0] is unfinished:
                self.pipeline.popleft()
            if self._answering is unfinished:
                Refusal(self, answer).start()
                return
            self.cycle = self._answering if not self.pipeline else self.pipeline[0][0]
        self._enqueue(Refusal(self, answer))


def head_size(url: bytes, headers: RawHeaders) -> int:
    return len(url) + sum(map(len, chain.from_iterable(headers)))


def stream_protocol(routes: FastRoutes) -> type[StreamProtocol]:
    """The protocol class for uvicorn, bound to the routes it answers."""
    return type("BoundStreamProtocol", (StreamProtocol,), {"routes": routes})
