"""One request of a stream route and its answer, on a connection that uvicorn owns.

These stand where uvicorn's request/response cycle would, so they have the attributes that uvicorn's
protocol looks at: `keep_alive`, `disconnected`, `response_complete` and `message_event`.
"""

from __future__ import annotations

import asyncio
import http
import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final, Protocol

from tailrace.auth.origins import Origins
from tailrace.auth.proxies import Proxies
from tailrace.errors import TailraceError
from tailrace.web.bodies import Bodies, check_length, too_large
from tailrace.web.messages import (
    COMMON_HEADERS,
    Answer,
    Disconnected,
    RawHeaders,
    Request,
    Response,
    Streaming,
    has_length,
)

if TYPE_CHECKING:
    from tailrace.web.uvicorn.protocol import StreamProtocol

logger = logging.getLogger("tailrace")

_STATUS_LINES: Final = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode())
    for status in http.HTTPStatus
}


def rendered(headers: RawHeaders) -> bytes:
    return b"".join([b"%b: %b\r\n" % header for header in headers])


_COMMON: Final = rendered(COMMON_HEADERS)

_JOIN_BYTES: Final = 64 << 10
"""Larger bodies are handed over as they are instead of being copied behind their head."""


class FastRoutes(Protocol):
    """The routes whose requests are answered without ASGI."""

    bodies: Bodies
    max_body_bytes: int
    origins: Origins
    proxies: Proxies

    async def respond(self, request: Request) -> Answer: ...


class _NoEvent:
    """uvicorn rings a bell for its own cycle; ours is told directly."""

    def set(self) -> None:
        pass


_NO_EVENT: Final = _NoEvent()


class Exchange:
    """One request and its answer on a connection; stands where uvicorn's cycle would.

    It is answered by a task of its own: at once when the body came with the head, or else as soon
    as the head is there. Then nothing more is read from the connection until the body is asked for,
    which nobody does for a request that is refused."""

    __slots__ = (
        "_body",
        "_chunked",
        "_expects",
        "_headers",
        "_held",
        "_length",
        "_method",
        "_most",
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
        "response_started",
    )

    def __init__(self, protocol: StreamProtocol, method: str, version: str) -> None:
        self._protocol = protocol
        self._method = method
        self._url = protocol.url
        self._headers: RawHeaders = protocol.headers
        self._expects = protocol.expect_100_continue
        self._chunked = version != "1.0"
        self._parts: list[bytes] = []
        self._length = self._held = 0
        self._most = protocol.routes.max_body_bytes
        self._whole = False
        self._ready = False
        self._body: asyncio.Future[None] | None = None
        """Resolved when the body is there, or cannot be taken."""
        self._task: asyncio.Task[None] | None = None
        self.keep_alive = self._chunked and protocol.parser.should_keep_alive()
        self.disconnected = False
        self.response_started = self.response_complete = False
        self.message_event = _NO_EVENT

    def start(self) -> None:
        """Its turn has come: no earlier request of the connection is unanswered."""
        self._ready = True
        if self._whole:
            self._run()

    def begin_early(self) -> None:
        """Answer a request whose body is not there yet, if its turn has come."""
        if self._ready and self._task is None and not self._whole:
            self._protocol.flow.pause_reading()
            self._run()

    def feed(self, data: bytes) -> None:
        """Take a piece of the body; what comes when no more is wanted is dropped."""
        self._length += len(data)
        if self._body is not None and self._body.done():
            return
        try:
            if self._length > self._most:
                raise too_large(self._most)
            self._protocol.routes.bodies.take(len(data))
        except TailraceError as error:
            self._drop()
            self._body = self._body or self._protocol.loop.create_future()
            self._body.set_exception(error)
            # It may never be asked for.
            self._body.exception()
            return
        self._held += len(data)
        self._parts.append(data)

    @property
    def received(self) -> int:
        return self._length

    def finish(self) -> None:
        self._whole = True
        if self._body is not None and not self._body.done():
            self._body.set_result(None)
        if self._ready and self._task is None:
            self._run()

    def leave(self) -> None:
        """The client is gone. A write goes on: it may be half done; a read need not, nor what
        waits for a body that will never come."""
        self.disconnected = True
        if self._task is None:
            self._drop()
        elif self._method == "GET" or (self._body is not None and not self._body.done()):
            self._task.cancel()

    def abandon(self) -> None:
        """Another answer is given instead: the request cannot be read to its end."""
        self.disconnected = True
        self._drop()
        if self._task is not None:
            self._task.cancel()

    async def read(self, limit: int) -> bytes:
        """The body, for which a client that asked first is invited to send it."""
        if not self._whole:
            if self.disconnected:
                raise Disconnected
            check_length(dict(self._headers).get(b"content-length"), limit)
            self._most = limit
            self._body = self._body or self._protocol.loop.create_future()
            if self._expects:
                self._protocol.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._protocol.flow.resume_reading()
        if self._body is not None:
            await self._body
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _run(self) -> None:
        self._task = self._protocol.loop.create_task(self._serve())

    async def _serve(self) -> None:
        try:
            answer = await self._answer()
            if self.disconnected:
                return
            self.response_started = True
            if not self._whole:
                self._refuse_rest()
            if isinstance(answer, Response):
                self._write(answer)
                if self.keep_alive and self._protocol.flow.write_paused:
                    # The next request of the connection waits until this answer is on its way.
                    await self._protocol.flow.drain()
            else:
                await self._stream(answer)
        except Disconnected:
            pass
        except Exception:
            # The head may be sent: hanging up is all that still tells the client.
            # The query may hold credentials.
            path = self._url.partition(b"?")[0].decode("latin-1")
            logger.exception("%s %s broke off", self._method, path)
            self._protocol.transport.close()
        else:
            self._complete()
        finally:
            self._drop()

    def _answer(self) -> Awaitable[Answer]:
        raw_path, _, query = self._url.partition(b"?")
        peer = self._protocol.client[0] if self._protocol.client else ""
        scheme, proxies = "http", self._protocol.routes.proxies
        if proxies:
            headers = dict(self._headers)
            scheme = proxies.scheme(peer, headers, scheme)
            peer = proxies.client(peer, headers)
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
        return self._protocol.routes.respond(request)

    def _refuse_rest(self) -> None:
        """What is still to come of the body is dropped; nobody has asked for it."""
        self.keep_alive = False
        self._body = self._body or self._protocol.loop.create_future()
        if not self._body.done():
            self._body.set_result(None)
        self._drop()
        self._protocol.flow.resume_reading()

    def _drop(self) -> None:
        """Let go of the body, and of the memory that it was counted for."""
        self._parts = []
        self._protocol.routes.bodies.give_back(self._held)
        self._held = 0

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

    async def drain(self) -> None:
        await self._protocol.flow.drain()

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
        if not self._whole:
            self._protocol.linger()
        elif not self.keep_alive:
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
        self._protocol.linger()


def _head(protocol: StreamProtocol, answer: Answer, keep_alive: bool) -> list[bytes]:
    """An answer's head in pieces, but for its length and the empty line."""
    parts = [_STATUS_LINES[answer.status], protocol.default_headers(), _COMMON]
    parts += [b"%b: %b\r\n" % header for header in answer.headers]
    if not keep_alive:
        parts.append(b"connection: close\r\n")
    return parts
