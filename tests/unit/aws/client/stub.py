"""A scripted HTTP server on loopback in the place of DynamoDB."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
import zlib
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, Self, cast

import httptools


class Seen(NamedTuple):
    """A request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int

    @property
    def operation(self) -> str:
        return self.headers["x-amz-target"].rpartition(".")[2]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Reply(NamedTuple):
    """Bytes to send, and whether the connection then ends, as `close` or as `reset`."""

    data: bytes
    then: str = ""
    authorizer: asyncio.Event | None = None
    """Sent once this is set."""


SILENCE = Reply(b"")
CLOSE = Reply(b"", "close")
RESET = Reply(b"", "reset")


def answer(
    content: Any = None,
    status: int = 200,
    *,
    body: bytes | None = None,
    checksum: int | None = None,
    keep: int | None = None,
    close: bool = False,
    chunked: bool = False,
    authorizer: asyncio.Event | None = None,
) -> Reply:
    """`checksum` other than the right one, only the first `keep` bytes, `close` after it."""
    if body is None:
        body = json.dumps({} if content is None else content).encode()
    lines = [
        f"HTTP/1.1 {status} Whatever",
        "Content-Type: application/x-amz-json-1.0",
        f"X-Amz-Crc32: {zlib.crc32(body) if checksum is None else checksum}",
        "Transfer-Encoding: chunked" if chunked else f"Content-Length: {len(body)}",
    ]
    if close:
        lines.append("Connection: close")
    if chunked:
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    data = "\r\n".join([*lines, "", ""]).encode() + body
    then = "close" if close or keep is not None else ""
    return Reply(data[:keep], then, authorizer)


def failure(code: str, *, status: int = 400, **more: Any) -> Reply:
    return answer({"__type": f"com.amazonaws.dynamodb.v20120810#{code}", **more}, status)


async def until(condition: Callable[[], bool]) -> None:
    """Lets the event loop turn until the condition holds."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0)


class Stub:
    """Answers each request with the next reply of the script, and with `{}` after its end."""

    def __init__(self, *script: Reply, tls: ssl.SSLContext | None = None) -> None:
        self.script = deque(script)
        self.seen: list[Seen] = []
        self.accepted = 0
        self.most = 0
        """Connections that were open at once."""
        self.peers: set[_Peer] = set()
        self.on_silence: Callable[[], None] = lambda: None
        """Called instead of sending `SILENCE`."""
        self._tls = tls

    @property
    def url(self) -> str:
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://127.0.0.1:{self.port}"

    @property
    def operations(self) -> list[str]:
        return [seen.operation for seen in self.seen]

    def stop_listening(self) -> None:
        self._server.close()

    async def hang_up(self) -> None:
        """Ends all connections, as a server does with idle ones."""
        for peer in list(self.peers):
            peer.transport.close()
        await until(lambda: not self.peers)

    async def arrived(self, requests: int) -> None:
        await until(lambda: len(self.seen) >= requests)

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Peer(self), "127.0.0.1", 0, ssl=self._tls)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._server.close()
        for peer in list(self.peers):
            peer.transport.abort()
        await until(lambda: not self.peers)
        await self._server.wait_closed()


class _Peer(asyncio.Protocol):
    def __init__(self, stub: Stub) -> None:
        self._stub = stub
        self._parser = httptools.HttpRequestParser(self)
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        stub = self._stub
        stub.accepted += 1
        stub.peers.add(self)
        stub.most = max(stub.most, len(stub.peers))
        self._number = stub.accepted

    def connection_lost(self, _: Exception | None) -> None:
        self._stub.peers.discard(self)
        for task in self._tasks:
            task.cancel()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._path = b""
        self._headers: dict[str, str] = {}
        self._body = b""

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode().lower()] = value.decode()

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        stub = self._stub
        method = self._parser.get_method().decode()
        path = self._path.decode()
        stub.seen.append(Seen(method, path, self._headers, self._body, self._number))
        reply = stub.script.popleft() if stub.script else answer()
        if reply.authorizer is None:
            self._send(reply)
        else:
            task = asyncio.ensure_future(self._send_later(reply, reply.authorizer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _send_later(self, reply: Reply, authorizer: asyncio.Event) -> None:
        await authorizer.wait()
        self._send(reply)

    def _send(self, reply: Reply) -> None:
        if reply == SILENCE:
            self._stub.on_silence()
        self.transport.write(reply.data)
        if reply.then == "close":
            self.transport.close()
        elif reply.then == "reset":
            at_once = struct.pack("ii", 1, 0)
            connection = self.transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
            self.transport.abort()
