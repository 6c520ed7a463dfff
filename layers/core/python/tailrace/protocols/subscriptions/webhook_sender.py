"""Requests to webhooks, which clients choose: to public addresses only, bounded in every way.

The address that was checked is the one that is connected to, so a name that resolves differently
the next time gains nothing. Redirects are not followed, and proxies of the environment not used,
since they would connect to an address that nobody checked. It is written by hand on asyncio and
httptools, which every function has; httpx is in no layer.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from ipaddress import ip_address
from typing import Final, NamedTuple, TypeAlias

import httptools

from tailrace.errors import WebhookFailed, WebhookUrlRejected
from tailrace.limits import (
    WEBHOOK_ADDRESSES,
    WEBHOOK_ANSWER_BYTES,
    WEBHOOK_CONCURRENCY,
    WEBHOOK_CONNECT_SECONDS,
    WEBHOOK_HEAD_BYTES,
    WEBHOOK_HOST_CONCURRENCY,
    WEBHOOK_LOOKUPS,
    WEBHOOK_SECONDS,
)
from tailrace.protocols.subscriptions.webhook_urls import Address, WebhookUrl, parse_webhook_url

Resolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Resolves a host and port to IP addresses; raises OSError."""

_READ_BYTES: Final = 16 << 10
_MOST_BYTES: Final = WEBHOOK_HEAD_BYTES + 2 * WEBHOOK_ANSWER_BYTES
_FIELD: Final = re.compile(r"[A-Za-z0-9-]+: [\x20-\x7e]*")


class WebhookAnswer(NamedTuple):
    status: int
    body: bytes


class WebhookSender:
    def __init__(
        self,
        *,
        allow_loopback: bool,
        resolve: Resolver | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """`allow_loopback`: receivers on this machine may be used, for development.
        `tls`: verifies receivers with other authorities than the system's."""
        self._allow_loopback = allow_loopback
        self._resolve = resolve or _HostResolver()
        self._tls = tls
        self._slots = asyncio.Semaphore(WEBHOOK_CONCURRENCY)
        self._hosts: dict[str, _HostSlots] = {}

    def check_url(self, url: str) -> None:
        """Raise `WebhookUrlRejected` unless the URL is one that webhooks may have."""
        parse_webhook_url(url, allow_loopback=self._allow_loopback)

    async def check_destination(self, url: str) -> None:
        """Raise `WebhookUrlRejected` also when its host does not resolve to public addresses.

        The message does not say which of the two, as it would tell names of an internal network
        from others."""
        parsed = parse_webhook_url(url, allow_loopback=self._allow_loopback)
        try:
            async with asyncio.timeout(WEBHOOK_CONNECT_SECONDS):
                await self._find_addresses(parsed)
        except (OSError, WebhookFailed):
            raise WebhookUrlRejected("the host of the webhook URL has no public address") from None

    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> WebhookAnswer:
        """POST a body and return the answer, of any status; raise `WebhookFailed` without one.

        Takes at most twice `WEBHOOK_SECONDS`, the first half of it waiting for other requests. Do
        not show the answer, or the message of a failure, to clients."""
        try:
            parsed = parse_webhook_url(url, allow_loopback=self._allow_loopback)
        except WebhookUrlRejected as error:
            raise WebhookFailed(str(error)) from None
        request = _render(parsed, body, headers)
        async with self._slot(parsed.host):
            try:
                async with asyncio.timeout(WEBHOOK_SECONDS):
                    return await self._exchange(parsed, request)
            except TimeoutError:
                raise WebhookFailed(f"no answer within {WEBHOOK_SECONDS} s") from None
            except (OSError, ssl.SSLError) as error:
                raise WebhookFailed(f"the connection failed: {error}") from error

    @contextlib.asynccontextmanager
    async def _slot(self, host: str) -> AsyncIterator[None]:
        """Wait for one of the slots of this host, and of all: a slow host does not take all."""
        slots = self._hosts.setdefault(host, _HostSlots())
        slots.users += 1
        try:
            async with contextlib.AsyncExitStack() as stack:
                try:
                    async with asyncio.timeout(WEBHOOK_SECONDS):
                        await stack.enter_async_context(slots.free)
                        await stack.enter_async_context(self._slots)
                except TimeoutError:
                    raise WebhookFailed("too many webhooks are being sent") from None
                yield
        finally:
            slots.users -= 1
            if not slots.users:
                del self._hosts[host]

    async def _exchange(self, url: WebhookUrl, request: bytes) -> WebhookAnswer:
        reader, writer = await self._connect(url, await self._find_addresses(url))
        try:
            writer.write(request)
            return await _read_answer(reader)
        finally:
            # Not closed with care: a receiver could make that last.
            writer.transport.abort()

    async def _find_addresses(self, url: WebhookUrl) -> list[Address]:
        """Resolve the host; raise `WebhookFailed` unless all of its addresses are allowed.

        One bad address is enough: a name with a public and a private one has no good reason."""
        found = await self._resolve(url.host, url.port)
        addresses = [ip_address(each) for each in dict.fromkeys(found)]
        if not addresses or not all(map(url.may_connect_to, addresses)):
            raise WebhookFailed("the host has an address that is not public, or none")
        return addresses[:WEBHOOK_ADDRESSES]

    async def _connect(
        self, url: WebhookUrl, addresses: list[Address]
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        failure: OSError = OSError("no address")
        for address in addresses:
            try:
                async with asyncio.timeout(WEBHOOK_CONNECT_SECONDS):
                    reader, writer = await asyncio.open_connection(
                        str(address),
                        url.port,
                        ssl=self._tls_context() if url.secure else None,
                        server_hostname=url.host if url.secure else None,
                    )
            except TimeoutError:
                failure = OSError(f"no connection within {WEBHOOK_CONNECT_SECONDS} s")
                continue
            except OSError as error:
                failure = error
                continue
            if ip_address(writer.get_extra_info("peername")[0]) == address:
                return reader, writer
            writer.transport.abort()
            failure = OSError("connected to another address than the one that was checked")
        raise failure

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls


class _HostSlots:
    def __init__(self) -> None:
        self.free = asyncio.Semaphore(WEBHOOK_HOST_CONCURRENCY)
        self.users = 0
        """Requests that hold a slot of this host, or wait for one."""


class _HostResolver:
    """Resolves names in threads of its own.

    A lookup cannot be cancelled: slow ones would fill the executor that everything else uses."""

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(WEBHOOK_LOOKUPS)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        result: asyncio.Future[Sequence[str]] = loop.create_future()

        def finish(found: Sequence[str] | OSError) -> None:
            self._free.release()
            if result.done():
                return
            if isinstance(found, OSError):
                result.set_exception(found)
            else:
                result.set_result(found)

        def look_up() -> None:
            found = _look_up(host, port)
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(finish, found)

        threading.Thread(target=look_up, name="webhook-lookup", daemon=True).start()
        return await result


def _look_up(host: str, port: int) -> Sequence[str] | OSError:
    try:
        # Of an address it returns the address, without a lookup.
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return OSError(str(error))
    return [str(sockaddr[0]) for *_, sockaddr in found]


def _render(url: WebhookUrl, body: bytes, headers: Mapping[str, str]) -> bytes:
    fields = [
        f"host: {url.authority}",
        f"content-length: {len(body)}",
        "user-agent: tailrace",
        "accept: application/json",
        "accept-encoding: identity",
        "connection: close",
        *(f"{name.lower()}: {value}" for name, value in headers.items()),
    ]
    if not all(map(_FIELD.fullmatch, fields)):
        raise ValueError("a header field contains characters that would end it")
    return "\r\n".join([f"POST {url.target} HTTP/1.1", *fields, "", ""]).encode() + body


async def _read_answer(reader: asyncio.StreamReader) -> WebhookAnswer:
    parser = _AnswerParser()
    while not parser.complete:
        data = await reader.read(_READ_BYTES)
        if not data:
            parser.end()
            break
        parser.feed(data)
    return WebhookAnswer(parser.status, bytes(parser.body))


class _AnswerParser:
    """Parses one answer, after any informational ones, within its limits."""

    def __init__(self) -> None:
        self.complete = False
        self.status = 0
        self.body = bytearray()
        self._parser = httptools.HttpResponseParser(self)
        self._in_head = True
        self._bytes = 0
        self._until_close = True

    def feed(self, data: bytes) -> None:
        self._bytes += len(data)
        # Also of what is in no body: the framing of chunks, and trailers.
        if self._bytes > _MOST_BYTES:
            raise WebhookFailed(f"the answer has more than {WEBHOOK_ANSWER_BYTES} bytes")
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            raise error.__context__ or error from None
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not self.complete:
                raise WebhookFailed("the answer is not HTTP/1.1") from None
        if self._in_head and self._bytes > WEBHOOK_HEAD_BYTES:
            raise WebhookFailed(f"the answer's head has more than {WEBHOOK_HEAD_BYTES} bytes")

    def end(self) -> None:
        """The receiver closed the connection, which completes a body without a length."""
        if self._in_head or not self._until_close:
            raise WebhookFailed("the receiver closed the connection before its answer was complete")
        self.complete = True

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        self._in_head = True
        self._until_close = True

    def on_header(self, name: bytes, _: bytes) -> None:
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self._until_close = False

    def on_headers_complete(self) -> None:
        if not self.complete and self._parser.get_status_code() >= 200:
            self._in_head = False
            self.status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        if self.complete:
            return
        self.body += data
        if len(self.body) > WEBHOOK_ANSWER_BYTES:
            raise WebhookFailed(f"the answer has more than {WEBHOOK_ANSWER_BYTES} bytes")

    def on_message_complete(self) -> None:
        if not self._in_head:
            self.complete = True
