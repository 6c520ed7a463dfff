"""HTTP/1.1 on loopback, for function URLs and the local versions of AWS's APIs."""

from __future__ import annotations

import asyncio
import contextlib
import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, Self

from devtools.local_aws.events import Request
from devtools.local_aws.replies import Reply

HEAD_BYTES: Final = 64 << 10


class HttpServer(ABC):
    """Serves the requests of each connection one after the other."""

    def __init__(self) -> None:
        self.port = 0
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

    @abstractmethod
    async def _serve(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        """Respond to a request; True if the connection can take another one."""

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while request := await _read_request(reader, writer):
                if not await self._serve(request, writer) or request.closes:
                    break
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # The client has disconnected, or the server is closed.
        except (ValueError, asyncio.LimitOverrunError):
            writer.write(
                b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
            )
        finally:
            self._tasks.discard(task)
            writer.close()


class Api(HttpServer):
    """Responds to each request with the result of `handle`."""

    def __init__(self, handle: Callable[[Request], Awaitable[Reply]]) -> None:
        super().__init__()
        self._handle = handle

    async def _serve(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        reply = await self._handle(request)
        # Nothing is awaited before this, so that responses have the order in which `handle` ran.
        writer.write(_answer(reply))
        await writer.drain()
        return True


def refusal(status: int, kind: str, message: str) -> Reply:
    """An error response of AWS's JSON APIs."""
    headers = [("content-type", "application/json"), ("x-amzn-ErrorType", kind)]
    return Reply(status, headers, json.dumps({"message": message}).encode())


def _answer(reply: Reply) -> bytes:
    lines = [f"HTTP/1.1 {reply.status} {phrase(reply.status)}"]
    lines += [f"{name}: {value}" for name, value in reply.headers]
    if reply.status != 204:
        lines.append(f"content-length: {len(reply.body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + reply.body


async def _read_request(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> Request | None:
    """Read the next request; None if the client closes the connection."""
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


def phrase(status: int) -> str:
    with contextlib.suppress(ValueError):
        return HTTPStatus(status).phrase
    return "Unknown"
