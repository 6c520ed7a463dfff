"""HTTP/1.1 connections to one server, kept alive and shared by a bounded pool.

A connection carries one exchange at a time: a whole request out, a whole answer in. Whatever goes
wrong in between, a time-out and a cancelled caller included, ends the connection: what is left of
the answer must not be read as the answer to the next request.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import Final, NamedTuple, cast

import httptools

from tailrace.limits import CALL_SECONDS, CONNECT_SECONDS

_CHECKSUM: Final = b"x-amz-crc32"


class Answer(NamedTuple):
    status: int
    body: bytes
    checksum: bytes | None
    """CRC-32 of the body, in decimal, as the server sent it."""
    resent: bool = False
    """The request had been sent before, on a connection that the server then closed."""


class Broken(Exception):
    """No whole answer came. `sent`: the request may have reached the server all the same."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class Unheard(Broken):
    """The server closed the connection without a single byte of an answer."""


class Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self.ready = False
        """Open, and no exchange under way."""
        self.used = 0.0
        """When, by the wall's clock."""
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[Answer] | None = None
        self._received = False
        self._checksum: bytes | None = None
        self._body: list[bytes] = []

    async def exchange(self, request: bytes) -> Answer:
        if not self.ready or self._transport.is_closing():
            raise Unheard("the connection was closed", sent=False)
        self.ready = False
        self._received = False
        answer: asyncio.Future[Answer] = self._loop.create_future()
        self._answer = answer
        # A timer by hand: `asyncio.timeout` costs several times as much.
        timer = self._loop.call_later(CALL_SECONDS, self._expire)
        self._transport.write(request)
        try:
            return await answer
        finally:
            timer.cancel()
            if not self.ready:
                self.abort()

    def abort(self) -> None:
        self.ready = False
        self._transport.abort()

    def _expire(self) -> None:
        self._fail(Broken(f"no answer within {CALL_SECONDS} s", sent=True))

    def _fail(self, failure: Broken) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(failure)
        self.abort()

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.ready = True

    def data_received(self, data: bytes) -> None:
        self._received = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._fail(Broken("the answer is not HTTP/1.1", sent=True))

    def connection_lost(self, exc: Exception | None) -> None:
        kind = Broken if self._received else Unheard
        reason = "the connection was closed" if exc is None else f"the connection broke: {exc}"
        self._fail(kind(reason, sent=True))
        if not self.lost.done():
            self.lost.set_result(None)

    # What the parser calls

    def on_message_begin(self) -> None:
        if self._answer is None:
            # Nobody asked: the server answers twice, or says good-bye before it hangs up.
            self.abort()
        self._checksum = None
        self._body.clear()

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == _CHECKSUM:
            self._checksum = value

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        answer, self._answer = self._answer, None
        if answer is None or answer.done():
            return
        self.ready = self._parser.should_keep_alive() and not self._transport.is_closing()
        body = b"".join(self._body)
        self._body.clear()
        answer.set_result(Answer(self._parser.get_status_code(), body, self._checksum))


class Pool:
    """At most `size` connections; the one used last is used next, so that spare ones fall idle."""

    def __init__(
        self,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        size: int,
        idle_seconds: float | None = None,
    ) -> None:
        """`idle_seconds`: how long ago a connection may have been used last. By the wall's clock:
        that of a frozen function stands still, and servers close meanwhile what is idle."""
        self.closed = False
        self._idle_seconds = idle_seconds
        self._host = host
        self._port = port
        self._tls = tls
        self._slots = asyncio.Semaphore(size)
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()

    async def exchange(self, request: bytes) -> Answer:
        async with self._slots:
            idle = self._take_idle()
            if idle is None:
                return await self._through(await self._connect(), request)
            try:
                return await self._through(idle, request)
            except Unheard as unheard:
                # The server closes what was idle for long: no sign of trouble, so no wait either.
                sent = unheard.sent
            try:
                answer = await self._through(await self._connect(), request)
            except Broken as broken:
                broken.sent |= sent
                raise
            return answer._replace(resent=sent)

    async def close(self) -> None:
        self.closed = True
        closing = [connection.lost for connection in self._open]
        for connection in list(self._open):
            connection.abort()
        if closing:
            await asyncio.wait(closing)

    def _take_idle(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.ready and not self._is_stale(connection):
                return connection
            connection.abort()
        return None

    def _is_stale(self, connection: Connection) -> bool:
        longest = self._idle_seconds
        return longest is not None and time.time() - connection.used > longest

    async def _through(self, connection: Connection, request: bytes) -> Answer:
        try:
            return await connection.exchange(request)
        finally:
            if connection.ready:
                connection.used = time.time()
                self._idle.append(connection)

    async def _connect(self) -> Connection:
        self._refuse_if_closed()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, connection = await loop.create_connection(
                    Connection, self._host, self._port, ssl=self._tls
                )
        except TimeoutError:
            raise Broken(f"no connection within {CONNECT_SECONDS} s", sent=False) from None
        except OSError as error:
            raise Broken(f"no connection: {error}", sent=False) from error
        self._open.add(connection)
        connection.lost.add_done_callback(lambda _: self._open.discard(connection))
        try:
            self._refuse_if_closed()
        except Broken:
            connection.abort()
            raise
        return connection

    def _refuse_if_closed(self) -> None:
        if self.closed:
            raise Broken("the client is closed", sent=False)
