"""The fast lane: stream requests answered straight from uvicorn's parser.

uvicorn owns sockets, parsing, keep-alive, upgrades and shutdown. Speaking ASGI takes it twice as
long per request as an append does, so for stream requests an `Exchange` replaces its
request/response cycle. Every other request goes through ASGI as usual.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any, ClassVar, Final, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tailrace.errors import BadRequest, HeadersTooLarge, MethodNotAllowed, RequestTooSlow
from tailrace.limits import (
    BODY_BYTES_PER_SECOND,
    BODY_SECONDS,
    HEADER_BYTES,
    HEADER_COUNT,
    HEADER_SECONDS,
    LINGER_BYTES,
    LINGER_SECONDS,
)
from tailrace.web.messages import METHODS, Parked, RawHeaders, Response, cors, render_headers
from tailrace.web.statuses import error_response
from tailrace.web.uvicorn.exchange import Exchange, FastLane, Refusal
from tailrace.web.uvicorn.flow import Flow
from tailrace.web.uvicorn.listener import Listener, ListenerServer
from tailrace.web.uvicorn.websocket_protocol import SocketProtocol

_UPGRADE_HEADERS: Final = (b"upgrade", b"connection", b"http2-settings")


class Pipeline(list[tuple[Any, Any]]):
    """Requests that wait for the answers before theirs; an empty deque would take ten times as
    much memory."""

    def appendleft(self, item: tuple[Any, Any]) -> None:
        self.insert(0, item)

    def popleft(self) -> tuple[Any, Any]:
        return self.pop(0)


class StreamProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with the fast lane."""

    # Beside uvicorn's own attributes, which are in a dictionary: with more in it that would grow.
    __slots__ = (
        "_answering",
        "_asgi_bytes",
        "_check_at",
        "_declining_upgrade",
        "_dropped_bytes",
        "_got_body",
        "_head_began",
        "_head_bytes",
        "_head_bytes_first",
        "_in_head",
        "_incomplete",
        "_overhead_bytes",
        "_receiving",
        "_refused",
        "_upgrading",
        "_waiting_since",
    )

    lane: FastLane
    listeners: ClassVar[ListenerServer | None] = None
    _default: tuple[Any, bytes] = (None, b"")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.pipeline = cast("Any", Pipeline())
        self._answering: Any = None
        """The request that is to be answered next."""
        self._receiving: Any = None
        """The request whose body is being read."""
        self._in_head = False
        self._head_began = False
        """Whether a head began in the last data."""
        self._head_bytes = 0
        """Bytes received since the current head began, including the data in which it began."""
        self._head_bytes_first = 0
        """Bytes of the data in which it began, which may contain other requests."""
        self._upgrading = self._declining_upgrade = False
        self._refused = False
        self._asgi_bytes = 0
        """Bytes received of a body that uvicorn handles."""
        self._incomplete: Any = None
        """The request whose body was incomplete after the last data."""
        self._waiting_since = 0.0
        """When the connection began to wait for the client: for the rest of a request, or the next
        request."""
        self._check_at = 0.0
        """When the time-out is checked next."""
        self._dropped_bytes = 0
        """Bytes received after a refusal."""
        self._got_body = False
        """Whether the last data contained a part of a body."""
        self._overhead_bytes = 0
        """Bytes since the last part of a body: trailers, and the framing of chunks."""

    def default_headers(self) -> bytes:
        """uvicorn's headers such as Date, rendered once per list, a new one each second."""
        headers = self.server_state.default_headers
        if StreamProtocol._default[0] is not headers:
            StreamProtocol._default = (headers, render_headers(headers))
        return StreamProtocol._default[1]

    # Called by the transport

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = cast("Any", Flow(transport))
        self._waiting_since = self.loop.time()
        self._schedule_check(self.timeout_keep_alive)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            self._dropped_bytes += len(data)
            if self._dropped_bytes > LINGER_BYTES:
                self.transport.abort()
            return
        receiving, self._got_body = self._receiving, False
        self._head_began = False
        self._head_bytes = self._head_bytes + len(data) if self._in_head else len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if self._refused:
                return  # type: ignore[unreachable] # mypy does not see that the parser calls back
            if self._upgrading:
                self._unset_keepalive_if_required()
                self.handle_websocket_upgrade()
                return
            self._decline_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("this is not an HTTP/1.1 request")
        if self._refused:
            # What has been refused must not be answered, or carried out, as well.
            return  # type: ignore[unreachable] # mypy does not see that the parser calls back
        if self._in_head:
            if self._head_began:
                self._head_bytes_first = len(data)
                self._expect_rest(HEADER_SECONDS)
            elif self._head_bytes - self._head_bytes_first > HEADER_BYTES:
                # The parser keeps a header field of any length in memory until its end.
                self._refuse_head()
        elif self._receiving is not self._incomplete:
            self._incomplete = self._receiving
            if self._incomplete is not None:
                self._overhead_bytes = 0
                self._expect_rest(BODY_SECONDS)
                if isinstance(self._incomplete, Exchange):
                    self._incomplete.answer_before_body()
        elif receiving is not None and receiving is self._receiving:
            self._overhead_bytes = 0 if self._got_body else self._overhead_bytes + len(data)
            if self._overhead_bytes > HEADER_BYTES:
                self._refuse_head()

    def connection_lost(self, exc: Exception | None) -> None:
        for cycle in (self._answering, *(each for each, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
                if isinstance(cycle, Exchange):
                    cycle.on_disconnect()
        self.pipeline.clear()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)
        # They refer to the connection: their bodies would stay until the next garbage collection.
        self.cycle = self._answering = self._receiving = self._incomplete = None  # type: ignore[assignment]

    # Called by the parser

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._in_head = self._head_began = True

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self._refused:
            return
        if len(self.headers) > HEADER_COUNT or (
            self._head_bytes > HEADER_BYTES and head_size(self.url, self.headers) > HEADER_BYTES
        ):
            self._refuse_head()
            return
        if self.parser.should_upgrade():
            self._upgrading = self._should_upgrade()
            self._declining_upgrade = not self._upgrading
            return
        if not self.url.startswith(self.lane.prefixes):
            self._begin_asgi()
        else:
            method = self.parser.get_method().decode("ascii")
            self._enqueue(Exchange(self, method, self.parser.get_http_version()))
        self._receiving = self.cycle
        # Trailers, which come after a chunked body, are no headers.
        self.headers = []

    def _begin_asgi(self) -> None:
        """Let uvicorn serve the request; it creates the scope when a message begins."""
        self._asgi_bytes = 0
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.headers, self.expect_100_continue = url, headers, expects
        self.scope["headers"] = headers
        super().on_headers_complete()

    def handle_websocket_upgrade(self) -> None:
        self.connections.discard(self)
        protocol = SocketProtocol(self.config, self.server_state, self.loop)
        protocol.connection_made(self.transport)
        self.transport.set_protocol(protocol)
        scope = {
            "asgi": {"version": self.asgi_version, "spec_version": "2.4"},
            "scheme": "wss" if self.scheme == "https" else "ws",
            "server": self.server,
            "client": self.client,
        }
        method = self.parser.get_method().decode("ascii")
        protocol.begin(method, self.url, self.headers, scope)
        # It refers to this, and would keep it until the next garbage collection.
        self.parser = None  # type: ignore[assignment]

    def on_body(self, body: bytes) -> None:
        if self._refused or self._declining_upgrade:
            return
        self._got_body = True
        exchange: object = self.cycle
        if isinstance(exchange, Exchange):
            exchange.add_body(body)
        else:
            self._asgi_bytes += len(body)
            super().on_body(body)
            if self.cycle.response_complete and self._asgi_bytes > LINGER_BYTES:
                self.transport.close()

    def on_message_complete(self) -> None:
        self._receiving = None
        if self._refused or self._declining_upgrade or self._upgrading:
            return
        exchange: object = self.cycle
        if isinstance(exchange, Exchange):
            exchange.end_body()
        else:
            super().on_message_complete()

    def listen(
        self,
        parked: Parked,
        *,
        is_chunked: bool,
        keep_alive: bool,
        ended: Callable[[], None] | None,
    ) -> bool:
        """Leave the connection to an answer that waits for data; returns False if the client has
        sent more than the request. `ended`: called after the answer."""
        if (
            self.pipeline
            or self._in_head
            or self._receiving is not None
            or self._refused
            or self.transport.is_closing()
        ):
            return False
        self._unset_keepalive_if_required()
        self.connections.discard(self)
        Listener(
            self._listener_server(),
            self.transport,
            cast("Flow", self.flow),
            parked,
            is_chunked=is_chunked,
            keep_alive=keep_alive,
            ended=ended,
        )
        # They refer to this, and would keep it until the next garbage collection.
        self.parser = self.cycle = self._answering = None  # type: ignore[assignment]
        return True

    def _listener_server(self) -> ListenerServer:
        found = self.listeners
        if found is None or found.state is not self.server_state:
            make = partial(type(self), self.config, self.server_state, self.app_state, self.loop)
            found = ListenerServer(self.server_state, make, self.lane.memory)
            type(self).listeners = found
        return found

    # Pipelining

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        self._waiting_since = self.loop.time()
        if self.pipeline:
            cycle: Any
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
            if isinstance(cycle, Exchange):
                cycle.answer_before_body()

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

    # Time-outs

    def _schedule_check(self, seconds: float) -> None:
        """Check the time-out later: one timer checks again, instead of one timer per request."""
        self._check_at = self.loop.time() + seconds
        self.timeout_keep_alive_task = self.loop.call_later(
            seconds, self.timeout_keep_alive_handler
        )

    def _expect_rest(self, seconds: float) -> None:
        self._waiting_since = self.loop.time()
        if self._check_at > self._waiting_since + seconds:
            self._unset_keepalive_if_required()
            self._schedule_check(seconds)

    def timeout_keep_alive_handler(self) -> None:
        if self.transport.is_closing() or self._refused:
            return
        now = self.loop.time()
        receiving = self._in_head or self._receiving is not None
        answering = self._answering is not None and not self._answering.response_complete
        if self.flow.read_paused or (answering and not receiving):
            # The server is not waiting for the client: it does not read, or has yet to answer.
            self._waiting_since = now
        left = self._waiting_since + self._time_allowed() - now
        if left > 0:
            self._schedule_check(left)
        elif receiving:
            self._refuse(error_response(self._timeout_error()))
        else:
            self.transport.close()

    def _time_allowed(self) -> float:
        """Seconds in which the client must send what the connection waits for."""
        if self._in_head:
            return HEADER_SECONDS
        cycle = self._receiving
        if cycle is None:
            return self.timeout_keep_alive
        received = cycle.received if isinstance(cycle, Exchange) else self._asgi_bytes
        # Bounded: a client that sends fast must not hold the connection with an endless body.
        return BODY_SECONDS + min(received, self.lane.max_body_bytes) / BODY_BYTES_PER_SECOND

    def _timeout_error(self) -> RequestTooSlow:
        if self._in_head:
            return RequestTooSlow(f"the header fields did not arrive in {HEADER_SECONDS} s")
        return RequestTooSlow(
            f"the body arrived too slowly: it has {BODY_SECONDS} s, and one second more for each"
            f" {BODY_BYTES_PER_SECOND} bytes"
        )

    # Refusing

    def drain_and_close(self) -> None:
        """Send nothing more, and drop what the client still sends, up to a limit.

        Closing at once would reset the connection, and the client might never see its answer."""
        self._refused = True
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        self.transport.write_eof()
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(LINGER_SECONDS, self.transport.close)

    def _decline_upgrade(self, rest: bytes) -> None:
        """Stay with HTTP/1.1, as a server may, by parsing the request again without its upgrade."""
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._refuse(error_response(MethodNotAllowed("CONNECT", METHODS)))
            return
        closes = not self.parser.should_keep_alive()
        head = [b"%b %b HTTP/1.1\r\n" % (method, self.url)]
        head += [b"%b: %b\r\n" % each for each in self.headers if each[0] not in _UPGRADE_HEADERS]
        head.append(b"connection: close\r\n\r\n" if closes else b"\r\n")
        self._declining_upgrade = False
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(b"".join(head) + rest)

    def send_400_response(self, msg: str) -> None:
        self._refuse(error_response(BadRequest(msg)))

    def _refuse_head(self) -> None:
        limit = f"at most {HEADER_COUNT} header fields and {HEADER_BYTES} bytes of them"
        self._refuse(error_response(HeadersTooLarge(f"a request has {limit}")))

    def _refuse(self, answer: Response) -> None:
        """Answer the earlier requests, then send this answer and close the connection."""
        if self._refused or self.transport.is_closing():
            return
        self._refused = True
        answer.headers.extend(cors(self.lane.origins, dict(self.headers).get(b"origin")))
        incomplete = self._receiving
        if incomplete is not None:
            if incomplete.response_complete or getattr(incomplete, "response_started", False):
                # The client would take a second answer for that of its next request.
                self.transport.close()
                return
            # The refusal is the answer to the incomplete request.
            if isinstance(incomplete, Exchange):
                incomplete.cancel()
            else:
                # uvicorn drops what an application answers to a client that has disconnected.
                incomplete.disconnected = True
                incomplete.message_event.set()
            if self.pipeline and self.pipeline[0][0] is incomplete:
                self.pipeline.popleft()
            if self._answering is incomplete:
                Refusal(self, answer).start()
                return
            self.cycle = self._answering if not self.pipeline else self.pipeline[0][0]
        self._enqueue(Refusal(self, answer))


def head_size(url: bytes, headers: RawHeaders) -> int:
    return len(url) + sum(map(len, chain.from_iterable(headers)))


def stream_protocol(lane: FastLane) -> type[StreamProtocol]:
    """Create the protocol class for uvicorn, which passes no arguments of ours to it."""
    return type("BoundStreamProtocol", (StreamProtocol,), {"__slots__": (), "lane": lane})
