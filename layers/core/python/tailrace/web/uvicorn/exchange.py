"""One stream request and its answer, on a connection that uvicorn owns.

The classes here replace uvicorn's request/response cycle, so they have the attributes that uvicorn
reads: `keep_alive`, `disconnected`, `response_complete` and `message_event`.
"""

from __future__ import annotations

import asyncio
import http
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from tailrace.auth.origins import Origins
from tailrace.auth.proxies import Proxies
from tailrace.errors import TailraceError
from tailrace.web.messages import (
    COMMON_HEADERS,
    Answer,
    AppendCaller,
    BodyMemory,
    Disconnected,
    Parked,
    PollClient,
    RawHeaders,
    Rendered,
    Request,
    Response,
    Streaming,
    check_length,
    has_length,
    render_headers,
    run_parked,
    too_large,
)

logger = logging.getLogger("tailrace")

_STATUS_LINES: Final = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode())
    for status in http.HTTPStatus
}


_COMMON: Final = render_headers(COMMON_HEADERS)

_CLOSE: Final = b"connection: close\r\n"

_JOIN_BYTES: Final = 16 << 10
"""Larger bodies are written separately: copying them behind their head would cost more."""


class Poll(Protocol):
    """A request that waits for data without a task of its own."""

    def leave(self) -> None:
        """Forget it: its client has gone."""


class FastLane(NamedTuple):
    """How requests are answered without ASGI: their paths, handler and limits."""

    prefixes: tuple[bytes, ...]
    """Beginnings of their paths."""
    respond: Callable[[Request], Awaitable[Answer]]
    memory: BodyMemory
    max_body_bytes: int
    origins: Origins
    proxies: Proxies
    begin_append: Callable[[bytes, RawHeaders, Sequence[bytes], AppendCaller], bool] | None = None
    """Begins a POST by its URL, header fields and body; returns False for one that needs the
    handler."""
    answer_read: Callable[[bytes, RawHeaders], Rendered | None] | None = None
    """Answers a GET by its URL and header fields; returns None for one that needs the handler."""
    begin_poll: Callable[[bytes, RawHeaders, PollClient], Poll | None] | None = None
    """Lets a GET wait, and answers it later; returns None for one that needs the handler."""
    record: Callable[[str, bytes, int, RawHeaders, bytes, int, float], None] | None = None
    """Records an answered request: its method, URL, status, header fields, body, the bytes received
    and the seconds it took."""


class ClientConnection(Protocol):
    """The connection that an exchange answers on."""

    lane: FastLane
    loop: asyncio.AbstractEventLoop
    transport: Any
    flow: Any
    parser: Any
    client: tuple[str, int] | None
    url: bytes
    headers: RawHeaders
    expect_100_continue: bool

    def default_headers(self) -> bytes: ...
    def on_response_complete(self) -> None: ...
    def drain_and_close(self) -> None: ...
    def listen(
        self,
        parked: Parked,
        *,
        is_chunked: bool,
        keep_alive: bool,
        ended: Callable[[], None] | None,
    ) -> bool: ...


class _NoEvent:
    """uvicorn sets an event for its own cycle; an exchange has methods for that."""

    def set(self) -> None:
        pass


_NO_EVENT: Final = _NoEvent()


class Exchange:
    """One request and its answer on a connection, in place of uvicorn's cycle.

    A plain append is answered when its commit calls back. For any other request a task of its own
    does it: at once if the body arrived with the head, and otherwise as soon as the head is
    complete. In the second case nothing more is read from the connection until the handler
    reads the body, so a request that is refused takes no memory."""

    __slots__ = (
        "_began",
        "_body_ready",
        "_chunked",
        "_connection",
        "_expects_continue",
        "_headers",
        "_is_next",
        "_limit",
        "_method",
        "_parts",
        "_poll",
        "_received_all",
        "_reserved",
        "_task",
        "_url",
        "disconnected",
        "keep_alive",
        "message_event",
        "received",
        "response_complete",
        "response_started",
    )

    def __init__(self, connection: ClientConnection, method: str, version: str) -> None:
        self._connection = connection
        self._began = time.perf_counter()
        self._method = method
        self._url = connection.url
        self._headers: RawHeaders = connection.headers
        self._expects_continue = connection.expect_100_continue
        self._chunked = version != "1.0"
        self._parts: list[bytes] = []
        self._reserved = 0
        """Bytes of the body that are counted by the lane's memory."""
        self._limit = connection.lane.max_body_bytes
        self._received_all = False
        self._is_next = False
        """Whether all earlier requests of the connection are answered."""
        self._body_ready: asyncio.Future[None] | None = None
        """Resolved when the body is complete, or cannot be received."""
        self._task: asyncio.Task[None] | None = None
        self._poll: Poll | None = None
        """Itself, while it waits without a task."""
        self.received = 0
        """Bytes of the body that were received."""
        self.keep_alive = self._chunked and connection.parser.should_keep_alive()
        self.disconnected = False
        self.response_started = self.response_complete = False
        self.message_event = _NO_EVENT

    def start(self) -> None:
        """Allow the answer, once all earlier requests of the connection are answered."""
        if self._connection.transport.is_closing():
            return
        self._is_next = True
        if self._received_all:
            self._run()

    def answer_before_body(self) -> None:
        """Answer a request whose body is incomplete, if it is the next to be answered."""
        if self._is_next and self._task is None and not self._received_all:
            self._connection.flow.pause_reading()
            self._run()

    def add_body(self, data: bytes) -> None:
        """Keep a piece of the body; once the body is refused, its pieces are dropped."""
        self.received += len(data)
        if self._body_ready is not None and self._body_ready.done():
            return
        try:
            if self.received > self._limit:
                raise too_large(self._limit)
            self._connection.lane.memory.reserve(len(data))
        except TailraceError as error:
            self._release_body()
            self._body_ready = self._body_ready or self._connection.loop.create_future()
            self._body_ready.set_exception(error)
            # The handler may never read the body: without this, asyncio would log the exception.
            self._body_ready.exception()
            return
        self._reserved += len(data)
        self._parts.append(data)

    def end_body(self) -> None:
        self._received_all = True
        if self._body_ready is not None and not self._body_ready.done():
            self._body_ready.set_result(None)
        if self._is_next and self._task is None:
            self._run()

    def on_disconnect(self) -> None:
        """Cancel reads, and requests that still wait for their body; writes run to their end."""
        self.disconnected = True
        if self._poll is not None:
            self._poll.leave()
        if self._task is None:
            self._release_body()
        elif self._method == "GET" or (
            self._body_ready is not None and not self._body_ready.done()
        ):
            self._task.cancel()

    def cancel(self) -> None:
        """Cancel a request that cannot be received completely: a refusal is its answer."""
        self.disconnected = True
        self._release_body()
        if self._task is not None:
            self._task.cancel()

    async def read(self, limit: int) -> bytes:
        """Read the body; a client that waits for 100 Continue gets that first."""
        if not self._received_all:
            if self.disconnected:
                raise Disconnected
            check_length(dict(self._headers).get(b"content-length"), limit)
            self._limit = limit
            self._body_ready = self._body_ready or self._connection.loop.create_future()
            if self._expects_continue:
                self._connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._connection.flow.resume_reading()
        if self._body_ready is not None:
            await self._body_ready
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _run(self) -> None:
        try:
            if self._run_without_task():
                return
        except Exception as error:  # noqa: BLE001 - whatever it is, it is logged
            self.fail(error)
            return
        self._start(self._serve())

    def _run_without_task(self) -> bool:
        """Answer a plain request, now or when there is an answer; False: it needs the handler."""
        lane = self._connection.lane
        if self._method == "POST" and lane.begin_append is not None and self._received_all:
            return lane.begin_append(self._url, self._headers, self._parts, self)
        if self._method == "GET" and lane.answer_read is not None and self._received_all:
            rendered = lane.answer_read(self._url, self._headers)
            if rendered is not None:
                self.answer(rendered)
                return True
            if lane.begin_poll is not None and b"live=long-poll" in self._url:
                self._poll = lane.begin_poll(self._url, self._headers, self)
                return self._poll is not None
        return False

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        self._task = self._connection.loop.create_task(work)

    def confirm_append(self, fields: bytes, request_id: bytes) -> None:
        if self.disconnected:
            return
        connection, record = self._connection, self._connection.lane.record
        self.response_started = True
        end = b"\r\n" if self.keep_alive else _CLOSE + b"\r\n"
        connection.transport.write(_stored_head(connection) + fields + end)
        if record is not None:
            seconds = time.perf_counter() - self._began
            headers = [(b"x-request-id", request_id)]
            record(self._method, self._url, 204, headers, b"", self.received, seconds)
        self._complete_now()

    def refuse_append(self, answer: Response) -> None:
        if self.disconnected:
            return
        self.response_started = True
        self._write(answer)
        self._record(answer)
        self._complete_now()

    def answer(self, answer: Rendered) -> None:
        """Answer without a task."""
        self._poll = None
        self.response_started = True
        status, headers, body, request_id = answer
        head = [_STATUS_LINES[status], self._connection.default_headers(), _COMMON, headers]
        if not self.keep_alive:
            head.append(_CLOSE)
        if has_length(self._method, status):
            self._write_body(head, body)
        else:
            head.append(b"\r\n")
            self._connection.transport.write(b"".join(head))
        if self._connection.lane.record is not None:
            self._record(Response(status, [(b"x-request-id", request_id)], body))
        self._complete_now()

    def serve(self) -> None:
        """Let the handler answer a request that waits."""
        self._poll = None
        if self.disconnected:
            return
        self._start(self._serve())

    def _complete_now(self) -> None:
        if self.keep_alive and self._connection.flow.write_paused:
            self._start(self._complete_when_sent())
        else:
            self._complete()
            self._release_body()

    async def _complete_when_sent(self) -> None:
        """Complete the answer; until it is sent, the connection's next request waits."""
        await self._connection.flow.drain()
        self._complete()
        self._release_body()

    async def _serve(self) -> None:
        try:
            answer = await self._respond()
            if self.disconnected:
                return
            self.response_started = True
            if not self._received_all:
                self._discard_rest()
            if isinstance(answer, Response):
                self._write(answer)
                if self.keep_alive and self._connection.flow.write_paused:
                    # The next request of the connection waits until this answer is sent.
                    await self._connection.flow.drain()
                self._record(answer)
            elif await self._stream(answer):
                return
        except Disconnected:
            pass
        except Exception as error:  # noqa: BLE001 - whatever it is, it is logged
            self.fail(error)
        else:
            self._complete()
        finally:
            self._release_body()

    def _respond(self) -> Awaitable[Answer]:
        raw_path, _, query = self._url.partition(b"?")
        connection = self._connection
        peer = connection.client[0] if connection.client else ""
        scheme, proxies = "http", connection.lane.proxies
        if proxies:
            headers = dict(self._headers)
            scheme = proxies.client_scheme(peer, headers, scheme)
            peer = proxies.client_address(peer, headers)
        request = Request(
            self._method,
            raw_path.decode("latin-1"),
            query.decode("latin-1"),
            self._headers,
            b"",
            scheme,
            peer=peer,
            source=self,
        )
        return connection.lane.respond(request)

    def _discard_rest(self) -> None:
        """Drop the rest of the body, which the handler has not read."""
        self.keep_alive = False
        self._body_ready = self._body_ready or self._connection.loop.create_future()
        if not self._body_ready.done():
            self._body_ready.set_result(None)
        self._release_body()
        self._connection.flow.resume_reading()

    def _release_body(self) -> None:
        self._parts = []
        self._connection.lane.memory.release(self._reserved)
        self._reserved = 0

    def _write(self, answer: Response) -> None:
        transport = self._connection.transport
        head = _render_head(self._connection, answer, self.keep_alive)
        if not has_length(self._method, answer.status):
            head.append(b"\r\n")
            transport.write(b"".join(head))
            return
        self._write_body(head, answer.body)

    def _write_body(self, head: list[bytes], body: bytes) -> None:
        """Write a head without its length, and a body."""
        head.append(b"content-length: %d\r\n\r\n" % len(body))
        if len(body) <= _JOIN_BYTES:
            head.append(body)
            self._connection.transport.write(b"".join(head))
        else:
            # One call to the system: a head by itself would wake the client an extra time.
            self._connection.transport.writelines((b"".join(head), body))

    async def drain(self) -> None:
        await self._connection.flow.drain()

    def push(self, data: bytes) -> bool:
        connection = self._connection
        if connection.transport.is_closing():
            return False
        connection.transport.write(frame_chunk(data) if self._chunked else data)
        return not connection.flow.write_paused

    async def _stream(self, answer: Streaming) -> bool:
        """Send a streaming answer; returns whether it goes on without this exchange."""
        self._write_streaming_head(answer)
        goes_on = False
        try:
            if answer.begin is None:
                await answer.run(self)
            else:
                parked = await answer.begin(self)
                if parked is not None:
                    goes_on = self._park(answer, parked)
                    if goes_on:
                        return True
                    await run_parked(parked, self)
        finally:
            if not goes_on:
                self._record(answer)
        if self._chunked and not self.disconnected:
            self._connection.transport.write(b"0\r\n\r\n")
        return False

    def _park(self, answer: Streaming, parked: Parked) -> bool:
        record, ended = self._connection.lane.record, None
        if record is not None:
            # Without the exchange, which would be kept as well.
            line = (self._method, self._url, answer.status, answer.headers, b"", self.received)
            ended = partial(_record_end, partial(record, *line), self._began)
        return self._connection.listen(
            parked, is_chunked=self._chunked, keep_alive=self.keep_alive, ended=ended
        )

    def _write_streaming_head(self, answer: Streaming) -> None:
        head = _render_head(self._connection, answer, self.keep_alive)
        head.append(b"transfer-encoding: chunked\r\n\r\n" if self._chunked else b"\r\n")
        self._connection.transport.write(b"".join(head))

    def _record(self, answer: Answer) -> None:
        """Record the request as answered."""
        if self._connection.lane.record is not None:
            body = answer.body if isinstance(answer, Response) else b""
            seconds = time.perf_counter() - self._began
            self._connection.lane.record(
                self._method, self._url, answer.status, answer.headers, body, self.received, seconds
            )

    def fail(self, error: Exception) -> None:
        """Log an error, and close: the head of the answer may be sent already."""
        # The path is logged without the query, which may hold credentials.
        path = self._url.partition(b"?")[0].decode("latin-1")
        logger.error("%s %s failed while it was answered", self._method, path, exc_info=error)
        self._connection.transport.close()

    def _complete(self) -> None:
        self.response_complete = True
        if not self._received_all:
            self._connection.drain_and_close()
        elif not self.keep_alive:
            self._connection.transport.close()
        self._connection.on_response_complete()


class Refusal:
    """The last answer of a connection whose input cannot be read any further."""

    def __init__(self, connection: ClientConnection, answer: Response) -> None:
        self._connection = connection
        self._answer = answer
        self.keep_alive = False
        self.disconnected = False
        self.response_complete = False
        self.message_event = _NO_EVENT

    def start(self) -> None:
        """Send it, once all earlier requests of the connection are answered."""
        body = self._answer.body
        head = _render_head(self._connection, self._answer, self.keep_alive)
        head += [b"content-length: %d\r\n\r\n" % len(body), body]
        self.response_complete = True
        self._connection.transport.write(b"".join(head))
        self._connection.drain_and_close()


_last_head: tuple[bytes | None, bytes] = (None, b"")


def _stored_head(connection: ClientConnection) -> bytes:
    """The head of an append's answer, but for the fields that tell of the append."""
    global _last_head
    defaults = connection.default_headers()
    if _last_head[0] is not defaults:
        _last_head = defaults, _STATUS_LINES[204] + defaults + _COMMON
    return _last_head[1]


_last_chunk: tuple[bytes, bytes] = (b"", b"")


def frame_chunk(data: bytes) -> bytes:
    """Frame data as a chunk; data that goes to many clients is framed once."""
    global _last_chunk
    if _last_chunk[0] is not data:
        _last_chunk = data, b"%x\r\n%b\r\n" % (len(data), data)
    return _last_chunk[1]


def _record_end(record: Callable[[float], None], began: float) -> None:
    record(time.perf_counter() - began)


def _render_head(connection: ClientConnection, answer: Answer, keep_alive: bool) -> list[bytes]:
    """Render an answer's head in pieces, without its length and the empty line."""
    parts = [_STATUS_LINES[answer.status], connection.default_headers(), _COMMON]
    parts += [b"%b: %b\r\n" % header for header in answer.headers]
    if not keep_alive:
        parts.append(_CLOSE)
    return parts
