"""The ASGI adapter: requests out of scopes, answers into messages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, Self

from tailrace.auth.proxies import Proxies
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

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

WRITE_NOW: Final = "tailrace.write_now"
"""In the scope of a WebSocket: a function that writes a text at once, if there is room for it."""

SINK_ITEMS: Final = 16
"""Pieces that may wait to be sent before a reader counts as slow."""


async def serve(
    scope: Scope,
    receive: Receive,
    send: Send,
    respond: Callable[[Request], Awaitable[Answer]],
    bodies: Bodies,
) -> None:
    with _AsgiBody(scope, receive, bodies) as body:
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
    await send_answer(answer, scope["method"], receive, send)


def believe(proxies: Proxies, scope: Scope) -> None:
    """Take the client's address and scheme from a trusted proxy."""
    headers = dict(scope["headers"])
    peer = (scope.get("client") or ("",))[0]
    scope["client"] = (proxies.client(peer, headers), 0)
    if scope["type"] == "http":
        scope["scheme"] = proxies.scheme(peer, headers, scope.get("scheme", "http"))


async def refuse(answer: Response, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await send_answer(answer, scope["method"], receive, send)
        return
    await receive()
    await reject(answer, scope, send)


class _AsgiBody:
    """The body of a request, read when it is asked for, and counted until that is answered."""

    def __init__(self, scope: Scope, receive: Receive, bodies: Bodies) -> None:
        self._headers = scope["headers"]
        self._receive = receive
        self._bodies = bodies
        self._held = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bodies.give_back(self._held)

    async def read(self, limit: int) -> bytes:
        check_length(dict(self._headers).get(b"content-length"), limit)
        parts: list[bytes] = []
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            part = message.get("body", b"")
            if self._held + len(part) > limit:
                raise too_large(limit)
            self._bodies.take(len(part))
            self._held += len(part)
            parts.append(part)
            more = message.get("more_body", False)
        return b"".join(parts)


async def send_answer(answer: Answer, method: str, receive: Receive, send: Send) -> None:
    headers: RawHeaders = COMMON_HEADERS + answer.headers
    if isinstance(answer, Response):
        if has_length(method, answer.status):
            headers.append((b"content-length", b"%d" % len(answer.body)))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        body = b"" if method == "HEAD" else answer.body
        await send({"type": "http.response.body", "body": body})
        return
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    sending = asyncio.ensure_future(_stream(answer, send))
    leaving = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait([sending, leaving], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sending, leaving):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


class _AsgiSink:
    """What is pushed is sent by a task of its own, in order."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue()

    async def drain(self) -> None:
        await self._waiting.join()

    def push(self, data: bytes) -> bool:
        self._waiting.put_nowait(data)
        return self._waiting.qsize() < SINK_ITEMS

    async def pump(self) -> None:
        while True:
            data = await self._waiting.get()
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
            self._waiting.task_done()


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


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def reject(answer: Response, scope: Scope, send: Send) -> None:
    """Answer a WebSocket's handshake with an HTTP error."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1000})
        return
    start = "websocket.http.response.start"
    await send({"type": start, "status": answer.status, "headers": answer.headers})
    await send({"type": "websocket.http.response.body", "body": answer.body})
