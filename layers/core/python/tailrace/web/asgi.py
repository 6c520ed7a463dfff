"""The ASGI adapter: turns scopes into requests, and answers into messages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, Self

from tailrace.auth.proxies import Proxies
from tailrace.web.messages import (
    COMMON_HEADERS,
    Answer,
    BodyMemory,
    Disconnected,
    RawHeaders,
    Request,
    Response,
    Streaming,
    check_length,
    has_length,
    too_large,
)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

WRITE_NOW: Final = "tailrace.write_now"
"""Scope key of a WebSocket: a function that writes one text, or a tuple of them, at once if the
buffer has room."""

SINK_ITEMS: Final = 16
"""A reader with this many queued pieces counts as slow."""


async def serve_request(
    scope: Scope,
    receive: Receive,
    send: Send,
    respond: Callable[[Request], Awaitable[Answer]],
    memory: BodyMemory,
) -> None:
    """Answer an HTTP request with the result of `respond`."""
    with _AsgiBody(scope, receive, memory) as body:
        request = Request(
            scope["method"],
            (scope.get("raw_path") or scope["path"].encode()).decode("latin-1"),
            scope["query_string"].decode("latin-1"),
            scope["headers"],
            b"",
            scope.get("scheme", "http"),
            peer=(scope.get("client") or ("",))[0],
            edge_verified=scope.get("tailrace.edge_verified", False),
            source=body,
        )
        try:
            answer = await respond(request)
        except Disconnected:
            return
    await send_answer(answer, scope, receive, send)


def apply_forwarded_headers(proxies: Proxies, scope: Scope) -> None:
    """Take the client's address and scheme from a trusted proxy's headers."""
    headers = dict(scope["headers"])
    peer = (scope.get("client") or ("",))[0]
    scope["client"] = (proxies.client_address(peer, headers), 0)
    if scope["type"] == "http":
        scope["scheme"] = proxies.client_scheme(peer, headers, scope.get("scheme", "http"))


async def send_answer(answer: Answer, scope: Scope, receive: Receive, send: Send) -> None:
    """Send the answer to a request, or to a handshake after `websocket.connect` was received."""
    if scope["type"] == "websocket":
        assert isinstance(answer, Response)
        await _send_rejection(answer, scope, send)
        return
    headers: RawHeaders = COMMON_HEADERS + answer.headers
    if isinstance(answer, Response):
        if has_length(scope["method"], answer.status):
            headers.append((b"content-length", b"%d" % len(answer.body)))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        body = b"" if scope["method"] == "HEAD" else answer.body
        await send({"type": "http.response.body", "body": body})
        return
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    sending = asyncio.ensure_future(_stream(answer, send))
    disconnecting = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await asyncio.wait([sending, disconnecting], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sending, disconnecting):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def _send_rejection(answer: Response, scope: Scope, send: Send) -> None:
    if "websocket.http.response" not in scope.get("extensions", {}):
        # Without the extension the server itself answers 403.
        await send({"type": "websocket.close", "code": 1000})
        return
    start = "websocket.http.response.start"
    headers: RawHeaders = COMMON_HEADERS + answer.headers
    await send({"type": start, "status": answer.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": answer.body})


class _AsgiBody:
    """The body of a request, read on demand; its memory is reserved until the answer is sent."""

    def __init__(self, scope: Scope, receive: Receive, memory: BodyMemory) -> None:
        self._headers = scope["headers"]
        self._receive = receive
        self._memory = memory
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._memory.release(self._size)

    async def read(self, limit: int) -> bytes:
        check_length(dict(self._headers).get(b"content-length"), limit)
        parts: list[bytes] = []
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            part = message.get("body", b"")
            if self._size + len(part) > limit:
                raise too_large(limit)
            self._memory.reserve(len(part))
            self._size += len(part)
            parts.append(part)
            more = message.get("more_body", False)
        return b"".join(parts)


class _AsgiSink:
    """Queues pushed data, which `pump` sends in order from its own task."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()

    async def drain(self) -> None:
        await self._queue.join()

    def push(self, data: bytes) -> bool:
        self._queue.put_nowait(data)
        return self._queue.qsize() < SINK_ITEMS

    async def pump(self) -> None:
        while True:
            data = await self._queue.get()
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
            self._queue.task_done()


async def _stream(answer: Streaming, send: Send) -> None:
    sink = _AsgiSink(send)
    pump = asyncio.ensure_future(sink.pump())
    running = asyncio.ensure_future(answer.run(sink))
    try:
        await asyncio.wait([pump, running], return_when=asyncio.FIRST_COMPLETED)
        if pump.done():
            pump.result()
        await running
        await sink.drain()
        await send({"type": "http.response.body", "body": b""})
    finally:
        pump.cancel()
        running.cancel()


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
