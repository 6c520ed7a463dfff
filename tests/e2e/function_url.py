"""A function URL on loopback: HTTP/1.1 in front of a function.

What it sends is written out byte by byte: whether a 204 has a body, or a stream an end, is what the
tests are about.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Final, Self

from tests.e2e.environments import Answer
from tests.e2e.events import MOST_BYTES, Call, Request, to_call
from tests.e2e.functions import Function, Throttled
from tests.e2e.replies import (
    Malformed,
    Reply,
    from_prelude,
    from_result,
    internal_error,
    throttled,
    too_large,
)

HEAD_BYTES: Final = 64 << 10
STREAMED: Final = "application/vnd.awslambda.http-integration-response"
PRELUDE_END: Final = bytes(8)


class FunctionUrl:
    """The URL of one function; `streaming` is its invoke mode RESPONSE_STREAM."""

    def __init__(self, function: Function, domain: str, *, streaming: bool = False) -> None:
        self.function = function
        self.domain = domain
        self.streaming = streaming
        self.port = 0
        self.requests: Counter[tuple[str, str]] = Counter()
        """How often each method and target came: what the origin had to answer."""
        self.statuses: Counter[int] = Counter()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> Self:
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", 0, limit=HEAD_BYTES, backlog=2048
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while request := await _read_request(reader, writer):
                if not await self._serve(request, writer) or request.closes:
                    break
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # The client left, or the URL is closed.
        except (ValueError, asyncio.LimitOverrunError):
            writer.write(
                b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            )
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        """Answers; True when the connection can take another request."""
        self.requests[request.method, request.target] += 1
        call = to_call(request, self.domain)
        if len(json.dumps(call.event)) > MOST_BYTES:
            return await self._send(too_large(), call, request, writer)
        try:
            answer = await self.function.invoke(call.event, trace=call.trace)
        except Throttled:
            return await self._send(throttled(), call, request, writer)
        await answer.begun()
        if self.streaming and answer.mode == "streaming":
            return await self._stream(answer, call, request, writer)
        return await self._send(await _buffered(answer), call, request, writer)

    async def _send(
        self, reply: Reply, call: Call, request: Request, writer: asyncio.StreamWriter
    ) -> bool:
        bodiless = reply.status in (204, 304)
        length = () if bodiless else (("content-length", str(len(reply.body))),)
        self._write_head(reply, length, call, writer)
        if not bodiless and request.method != "HEAD":
            writer.write(reply.body)
        await writer.drain()
        return True

    async def _stream(
        self, answer: Answer, call: Call, request: Request, writer: asyncio.StreamWriter
    ) -> bool:
        pieces = answer.body()
        try:
            reply, piece = await _prelude(answer, pieces)
        except Malformed:
            return await self._send(internal_error(answer.failure), call, request, writer)
        self._write_head(reply, (("transfer-encoding", "chunked"),), call, writer)
        sent = False
        while piece is not None:
            if piece and request.method != "HEAD":
                sent = True
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await writer.drain()
            piece = await anext(pieces, None)
        if answer.failure is not None or not sent:
            # Cut: without the last chunk the client knows that it is not complete. The last chunk
            # of an empty answer never comes on AWS either.
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    def _write_head(
        self,
        reply: Reply,
        framing: tuple[tuple[str, str], ...],
        call: Call,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.statuses[reply.status] += 1
        own = [("x-amzn-requestid", call.request_id), ("x-amzn-trace-id", call.trace)]
        lines = [f"HTTP/1.1 {reply.status} {_phrase(reply.status)}"]
        lines += [f"{name}: {value}" for name, value in [*reply.headers, *own, *framing]]
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1", errors="replace"))


async def _buffered(answer: Answer) -> Reply:
    payload = b"".join([piece async for piece in answer.body()])
    if answer.failure is not None:
        return internal_error(answer.failure)
    try:
        return from_result(payload)
    except Malformed:
        return internal_error(answer.failure)


async def _prelude(answer: Answer, pieces: AsyncIterator[bytes]) -> tuple[Reply, bytes | None]:
    """Status and headers, and what of the body came with them."""
    if answer.content_type != STREAMED:
        return Reply(200, [("content-type", "application/octet-stream")]), b""
    head = b""
    async for piece in pieces:
        head += piece
        if PRELUDE_END in head:
            prelude, _, rest = head.partition(PRELUDE_END)
            return from_prelude(prelude), rest
    raise Malformed("the answer ended in its prelude")


async def _read_request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> Request | None:
    """The next request, or None when the client closes instead."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            return None
        raise
    first, *lines = head[:-4].decode("latin-1").split("\r\n")
    method, target, protocol = first.split(" ")
    headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    values = {name.lower(): value for name, value in headers}
    if values.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    peer: str = writer.get_extra_info("peername")[0]
    if values.get("transfer-encoding", "").lower() == "chunked":
        body = await _read_chunks(reader)
    else:
        body = await reader.readexactly(int(values.get("content-length", "0")))
    return Request(method, target, protocol, headers, body, peer)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while size := int((await reader.readline()).partition(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    while (await reader.readline()).strip():
        pass
    return bytes(body)


def _phrase(status: int) -> str:
    with contextlib.suppress(ValueError):
        return HTTPStatus(status).phrase
    return "Unknown"
