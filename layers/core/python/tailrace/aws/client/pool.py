"""A bounded pool of persistent HTTP/1.1 connections to one server.

A connection carries one exchange at a time: a request, then its whole response. Any failure in
between, including a timeout and a cancelled caller, closes the connection: otherwise the rest of
the response would be read as the response to the next request.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from functools import partial
from typing import Final, NamedTuple, cast

import httptools

from tailrace.limits import AWS_CALL_SECONDS, AWS_CONNECT_SECONDS

_CHECKSUM: Final = b"x-amz-crc32"


class ServiceResponse(NamedTuple):
    status: int
    body: bytes
    checksum: bytes | None
    """The server's CRC-32 of the body, in decimal."""
    resent: bool = False
    """The request was sent before on a connection that the server had closed."""


class ExchangeFailed(Exception):
    """No complete response. `sent`: the request may have reached the server nevertheless."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class ClosedWithoutResponse(ExchangeFailed):
    """The server closed the connection without any byte of a response."""


class PooledConnection(asyncio.Protocol):
    def __init__(self, seconds: float | None = None) -> None:
        self._seconds = AWS_CALL_SECONDS if seconds is None else seconds
        self.ready = False
        """Open, and without an exchange in progress."""
        self.used = 0.0
        """Wall-clock time of the last use."""
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[ServiceResponse] | None = None
        self._received = False
        self._checksum: bytes | None = None
        self._body: list[bytes] = []

    async def exchange(self, request: bytes) -> ServiceResponse:
        if not self.ready or self._transport.is_closing():
            raise ClosedWithoutResponse("the connection was closed", sent=False)
        self.ready = False
        self._received = False
        answer: asyncio.Future[ServiceResponse] = self._loop.create_future()
        self._answer = answer
        # `call_later` directly: `asyncio.timeout` costs several times as much.
        timer = self._loop.call_later(self._seconds, self._expire)
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
        self._fail(ExchangeFailed(f"no response within {self._seconds} s", sent=True))

    def _fail(self, failure: ExchangeFailed) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(failure)
        self.abort()

    # Callbacks of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.ready = True

    def data_received(self, data: bytes) -> None:
        self._received = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._fail(ExchangeFailed("the response is not HTTP/1.1", sent=True))

    def connection_lost(self, exc: Exception | None) -> None:
        kind = ExchangeFailed if self._received else ClosedWithoutResponse
        reason = "the connection was closed" if exc is None else f"the connection broke: {exc}"
        self._fail(kind(reason, sent=True))
        if not self.lost.done():
            self.lost.set_result(None)

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        if self._answer is None:
            # Without a request: a second response, or a message before the server closes.
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
        answer.set_result(ServiceResponse(self._parser.get_status_code(), body, self._checksum))


class Pool:
    """At most `size` connections; the last used is used next, so that spare ones expire."""

    def __init__(
        self,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        size: int,
        idle_seconds: float | None = None,
        call_seconds: float | None = None,
    ) -> None:
        """`idle_seconds`: how long a connection may be idle before it is replaced, in wall-clock
        time: the monotonic clock may stop while a function is frozen, but servers close idle
        connections meanwhile. `call_seconds`: how long to wait for a response; None:
        AWS_CALL_SECONDS."""
        self.closed = False
        self._idle_seconds = idle_seconds
        self._call_seconds = call_seconds
        self._host = host
        self._port = port
        self._tls = tls
        self._slots = asyncio.Semaphore(size)
        self._idle: list[PooledConnection] = []
        self._open: set[PooledConnection] = set()

    async def exchange(self, request: bytes) -> ServiceResponse:
        async with self._slots:
            idle = self._take_idle()
            if idle is None:
                return await self._exchange_on(await self._connect(), request)
            try:
                return await self._exchange_on(idle, request)
            except ClosedWithoutResponse as closed:
                # Servers close idle connections: that is no failure, so retry without a pause.
                sent = closed.sent
            try:
                answer = await self._exchange_on(await self._connect(), request)
            except ExchangeFailed as failure:
                failure.sent |= sent
                raise
            return answer._replace(resent=sent)

    async def close(self) -> None:
        self.closed = True
        closing = [connection.lost for connection in self._open]
        for connection in list(self._open):
            connection.abort()
        if closing:
            await asyncio.wait(closing)

    def _take_idle(self) -> PooledConnection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.ready and not self._is_stale(connection):
                return connection
            connection.abort()
        return None

    def _is_stale(self, connection: PooledConnection) -> bool:
        longest = self._idle_seconds
        return longest is not None and time.time() - connection.used > longest

    async def _exchange_on(self, connection: PooledConnection, request: bytes) -> ServiceResponse:
        try:
            return await connection.exchange(request)
        finally:
            if connection.ready:
                connection.used = time.time()
                self._idle.append(connection)

    async def _connect(self) -> PooledConnection:
        self._check_open()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(AWS_CONNECT_SECONDS):
                _, connection = await loop.create_connection(
                    partial(PooledConnection, self._call_seconds),
                    self._host,
                    self._port,
                    ssl=self._tls,
                )
        except TimeoutError:
            raise ExchangeFailed(
                f"no connection within {AWS_CONNECT_SECONDS} s", sent=False
            ) from None
        except OSError as error:
            raise ExchangeFailed(f"no connection: {error}", sent=False) from error
        self._open.add(connection)
        connection.lost.add_done_callback(lambda _: self._open.discard(connection))
        try:
            self._check_open()
        except ExchangeFailed:
            connection.abort()
            raise
        return connection

    def _check_open(self) -> None:
        if self.closed:
            raise ExchangeFailed("the client is closed", sent=False)
