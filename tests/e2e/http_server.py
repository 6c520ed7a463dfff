"""HTTP/1.1 on loopback for the stand-ins of AWS's own APIs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Self

from tests.e2e.events import Request
from tests.e2e.function_url import HEAD_BYTES, _phrase, _read_request
from tests.e2e.replies import Reply


class HttpServer:
    """Answers each request with what `handle` makes of it, and keeps connections open."""

    def __init__(self, handle: Callable[[Request], Awaitable[Reply]]) -> None:
        self.port = 0
        self._handle = handle
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
                reply = await self._handle(request)
                # No pause before this: what `handle` did in order is also answered in order.
                writer.write(_answer(reply))
                await writer.drain()
                if request.closes:
                    break
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # The client left, or the server is closed.
        except (ValueError, asyncio.LimitOverrunError):
            writer.write(_answer(refusal(400, "BadRequestException", "Bad Request")))
        finally:
            self._tasks.discard(task)
            writer.close()


def refusal(status: int, kind: str, message: str) -> Reply:
    """An error as AWS's JSON APIs tell it."""
    headers = [("content-type", "application/json"), ("x-amzn-ErrorType", kind)]
    return Reply(status, headers, json.dumps({"message": message}).encode())


def _answer(reply: Reply) -> bytes:
    lines = [f"HTTP/1.1 {reply.status} {_phrase(reply.status)}"]
    lines += [f"{name}: {value}" for name, value in reply.headers]
    if reply.status != 204:
        lines.append(f"content-length: {len(reply.body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + reply.body
