"""A function URL on loopback: HTTP/1.1 in front of a function.

Responses are written byte by byte, because the tests check details such as the body of a 204 and
the end of a stream.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Final

from devtools.local_aws.environments import Answer
from devtools.local_aws.events import MOST_BYTES, Call, Request, to_call
from devtools.local_aws.functions import Function, Throttled
from devtools.local_aws.http_server import HttpServer, phrase
from devtools.local_aws.replies import (
    Malformed,
    Reply,
    from_prelude,
    from_result,
    internal_error,
    throttled,
    too_large,
)

STREAMED: Final = "application/vnd.awslambda.http-integration-response"
PRELUDE_END: Final = bytes(8)


class FunctionUrl(HttpServer):
    """The URL of one function; `streaming` is its invoke mode RESPONSE_STREAM."""

    def __init__(self, function: Function, domain: str, *, streaming: bool = False) -> None:
        super().__init__()
        self.function = function
        self.domain = domain
        self.streaming = streaming
        self.requests: Counter[tuple[str, str]] = Counter()
        """How often each method and target was requested from the origin."""
        self.statuses: Counter[int] = Counter()

    async def _serve(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        """Respond to a request; True if the connection can take another one."""
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
            # Truncated: a missing last chunk tells the client that the response is incomplete. AWS
            # does not send the last chunk of an empty response either.
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
        lines = [f"HTTP/1.1 {reply.status} {phrase(reply.status)}"]
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
    """The status, the headers and the part of the body that arrived with them."""
    if answer.content_type != STREAMED:
        return Reply(200, [("content-type", "application/octet-stream")]), b""
    head = b""
    async for piece in pieces:
        head += piece
        if PRELUDE_END in head:
            prelude, _, rest = head.partition(PRELUDE_END)
            return from_prelude(prelude), rest
    raise Malformed("the answer ended in its prelude")
