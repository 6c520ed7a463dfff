"""The fast lane: stream requests answered straight from uvicorn's parser.

uvicorn owns sockets, parsing, keep-alive, upgrades and shutdown. What it does per request to speak
ASGI costs twice as much as an append does, so for the stream routes its request/response cycle is
replaced by a leaner one. Every other request goes through ASGI as usual.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, Final, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tailrace.errors import BadRequest, HeadersTooLarge, MethodNotAllowed
from tailrace.http.exchange import Exchange, Refusal, rendered
from tailrace.http.paths import PREFIXES
from tailrace.http.routes import StreamRoutes
from tailrace.http.statuses import error_response
from tailrace.http.wire import METHODS, RawHeaders, Response
from tailrace.limits import HEADER_BYTES, HEADER_COUNT

_RAW_PREFIXES: Final = tuple(prefix.encode() for prefix in PREFIXES)
_OFFER_HEADERS: Final = (b"upgrade", b"connection", b"http2-settings")


class StreamProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with the fast lane."""

    routes: StreamRoutes
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
        self._idle_since = 0.0

    def default_headers(self) -> bytes:
        """Date and the like; uvicorn makes a new list once a second."""
        headers = self.server_state.default_headers
        if StreamProtocol._default[0] is not headers:
            StreamProtocol._default = (headers, rendered(headers))
        return StreamProtocol._default[1]

    # What the transport calls

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._idle_since = 0.0
        self._begun_in_data = False
        self._fed = self._fed + len(data) if self._in_head else len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            if self._should_upgrade():
                self.handle_websocket_upgrade()
            else:
                self._decline_upgrade(data[offer.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("what was sent is not HTTP/1.1")
        if self._in_head:
            if self._begun_in_data:
                self._fed_first = len(data)
            elif self._fed - self._fed_first > HEADER_BYTES:
                # The parser would keep a header field of any length until it has seen its end.
                self._refuse_head()

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
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.headers, self.expect_100_continue = url, headers, expects
        self.scope["headers"] = headers
        super().on_headers_complete()

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

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._watch_idleness(self.timeout_keep_alive)

    def _watch_idleness(self, seconds: float) -> None:
        """One timer that looks again later, instead of one that is set anew by each request."""
        self.timeout_keep_alive_task = self.loop.call_later(
            seconds, self.timeout_keep_alive_handler
        )

    def timeout_keep_alive_handler(self) -> None:
        now = self.loop.time()
        left = (self._idle_since or now) + self.timeout_keep_alive - now
        if left > 0:
            self._watch_idleness(left)
        elif not self.transport.is_closing():
            self.transport.close()

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


def head_size(url: bytes, headers: RawHeaders) -> int:
    return len(url) + sum(map(len, chain.from_iterable(headers)))


def stream_protocol(routes: StreamRoutes) -> type[StreamProtocol]:
    """The protocol class for uvicorn, bound to the routes it answers."""
    return type("BoundStreamProtocol", (StreamProtocol,), {"routes": routes})
