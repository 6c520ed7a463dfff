"""One request of a stream route and its answer, on a connection that uvicorn owns.

These stand where uvicorn's request/response cycle would, so they have the attributes that uvicorn's
protocol looks at: `keep_alive`, `disconnected`, `response_complete` and `message_event`.
"""

from __future__ import annotations

import asyncio
import http
import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from tailrace.http.asgi import has_length
from tailrace.http.routes import Answer
from tailrace.http.wire import COMMON_HEADERS, RawHeaders, Request, Response, Streaming

if TYPE_CHECKING:
    from tailrace.http.protocol import StreamProtocol

logger = logging.getLogger("tailrace")

_STATUS_LINES: Final = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode())
    for status in http.HTTPStatus
}


def rendered(headers: RawHeaders) -> bytes:
    return b"".join([b"%b: %b\r\n" % header for header in headers])


_COMMON: Final = rendered(COMMON_HEADERS)

_STALLED_SECONDS: Final = 30
"""A reader of events who takes nothing for so long is let go; it can come back with its offset."""

_JOIN_BYTES: Final = 64 << 10
"""Larger bodies are handed over as they are instead of being copied behind their head."""


class _NoEvent:
    """uvicorn rings a bell for its own cycle; ours is told directly."""

    def set(self) -> None:
        pass


_NO_EVENT: Final = _NoEvent()


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

    @property
    def received(self) -> int:
        return self._length

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
                if self.keep_alive and self._protocol.flow.write_paused:
                    # The next request of the connection waits until this answer is on its way.
                    await self._protocol.flow.drain()
            else:
                await self._stream(answer)
        except TimeoutError:
            self._protocol.transport.abort()
        except Exception:
            # The head may be sent: hanging up is all that still tells the client.
            # The query may hold credentials.
            path = self._url.partition(b"?")[0].decode("latin-1")
            logger.exception("%s %s broke off", self._method, path)
            self._protocol.transport.close()
        else:
            self._complete()

    def _answer(self) -> Awaitable[Answer]:
        routes, parts = self._protocol.routes, self._parts
        too_large = self._length > routes.max_body_bytes
        if too_large:
            parts.clear()
        raw_path, _, query = self._url.partition(b"?")
        client = self._protocol.client
        request = Request(
            self._method,
            raw_path.decode("latin-1"),
            query.decode("latin-1"),
            self._headers,
            parts[0] if len(parts) == 1 else b"".join(parts),
            peer=client[0] if client else "",
        )
        return routes.too_large(request) if too_large else routes.respond(request)

    def _write(self, answer: Response) -> None:
        transport = self._protocol.transport
        head = _head(self._protocol, answer, self.keep_alive)
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

    async def room(self) -> None:
        flow = self._protocol.flow
        if flow.write_paused:
            async with asyncio.timeout(_STALLED_SECONDS):
                await flow.drain()

    def push(self, data: bytes) -> bool:
        protocol = self._protocol
        if protocol.transport.is_closing():
            return False
        protocol.transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)
        return not protocol.flow.write_paused

    async def _stream(self, answer: Streaming) -> None:
        transport = self._protocol.transport
        head = _head(self._protocol, answer, self.keep_alive)
        head.append(b"transfer-encoding: chunked\r\n\r\n" if self._chunked else b"\r\n")
        transport.write(b"".join(head))
        await answer.run(self)
        if self._chunked and not self.disconnected:
            transport.write(b"0\r\n\r\n")

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
        self.keep_alive = False
        self.disconnected = False
        self.response_complete = False
        self.message_event = _NO_EVENT

    def start(self) -> None:
        body = self._answer.body
        head = _head(self._protocol, self._answer, self.keep_alive)
        head += [b"content-length: %d\r\n\r\n" % len(body), body]
        self.response_complete = True
        self._protocol.transport.write(b"".join(head))
        self._protocol.transport.close()


def _head(protocol: StreamProtocol, answer: Answer, keep_alive: bool) -> list[bytes]:
    """An answer's head in pieces, but for its length and the empty line."""
    parts = [_STATUS_LINES[answer.status], protocol.default_headers(), _COMMON]
    parts += [b"%b: %b\r\n" % header for header in answer.headers]
    if not keep_alive:
        parts.append(b"connection: close\r\n")
    return parts
