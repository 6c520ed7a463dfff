"""Streams a response to the Runtime API: a prelude, eight NUL, and the body in chunks."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Iterable, Mapping

from asgi_stream.connection import BROKEN, Answer, Connection
from asgi_stream.faults import kind, log, report

FILLER = b"\n"
"""Sent if the app sends no body: a function URL may never end a stream without a byte."""

DROPPED = ("connection", "content-length", "transfer-encoding")
"""Headers of a connection that is not the client's; padding would also make a length wrong."""

EVENT_ENDS = (b"\n\n", b"\r\r", b"\n\r\n", b"\r\r\n")
"""The ends of a server-sent event: a line end and a blank line."""

_TRAILERS = ("Lambda-Runtime-Function-Error-Type", "Lambda-Runtime-Function-Error-Body")

Headers = Iterable[tuple[bytes, bytes]]


class Response:
    def __init__(self, connection: Connection, padding: int, on_end: Callable[[], None]) -> None:
        """`on_end` is called when the Runtime API has the whole response, or has aborted it."""
        self.started = False
        self.ended = False
        self.lost = False
        """The Runtime API aborted the response."""
        self._connection = connection
        self._padding = b":%b\n\n" % (b" " * (padding - 3)) if padding else b""
        self._on_end = on_end
        self._empty = True
        self._tail = b""

    async def start(
        self, path: str, echo: Mapping[str, str], status: int, headers: Headers
    ) -> None:
        """Send the prelude immediately: clients wait for it before they expect events."""
        fields, cookies = _fields(headers)
        if not _can_be_padded(fields):
            self._padding = b""
        prelude = {"statusCode": status, "headers": fields, "cookies": cookies}
        text = json.dumps(prelude, separators=(",", ":")).encode()
        assert b"\0" not in text
        self.started = True
        about = {
            **echo,
            "Content-Type": "application/vnd.awslambda.http-integration-response",
            "Lambda-Runtime-Function-Response-Mode": "streaming",
            "Transfer-Encoding": "chunked",
            "Trailer": ", ".join(_TRAILERS),
        }
        try:
            await self._connection.begin("POST", path, about, _chunk(text + bytes(8)))
        except BROKEN:
            self.lost = True
            raise
        self._answer = asyncio.create_task(self._connection.answer())
        self._answer.add_done_callback(self._answered)
        self._pad()

    async def write(self, piece: bytes, *, more: bool) -> None:
        """Send a piece; return when the buffer has room for another."""
        self._raise_if_lost()
        if piece:
            self._empty = False
            self._connection.write(_chunk(piece))
            self._tail = (self._tail + piece[-3:])[-3:]
            if more and self._tail.endswith(EVENT_ENDS):
                self._pad()
        await self._connection.drain()

    async def end(self, error: BaseException | None = None) -> None:
        """End the response; return when the Runtime API has accepted it."""
        self._raise_if_lost()
        self.ended = True
        try:
            if self._empty:
                self._connection.write(_chunk(FILLER))
            self._connection.write(b"0\r\n%b\r\n" % _trailers(error))
            answer = await self._answer
        except BaseException:
            self._connection.close()
            raise
        if answer.status != 202:
            log(f"the Runtime API refused the response: {answer}")

    def _pad(self) -> None:
        """Send padding: the platform may hold back a small piece until the next one."""
        if self._padding:
            self._empty = False
            self._connection.write(_chunk(self._padding))

    def _answered(self, task: asyncio.Task[Answer]) -> None:
        if not self.ended and not task.cancelled():
            self.lost = True
            self._connection.close()
            log(f"the Runtime API aborted the response: {task.exception() or task.result()}")
        self._on_end()

    def _raise_if_lost(self) -> None:
        if self.lost:
            raise ConnectionResetError("the Runtime API aborted the response")


def _fields(headers: Headers) -> tuple[dict[str, str], list[str]]:
    """Join repeated headers, since the prelude has no lists; cookies cannot be joined."""
    fields: dict[str, str] = {}
    cookies: list[str] = []
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        if name == "set-cookie":
            cookies.append(value)
        elif name not in DROPPED:
            fields[name] = f"{fields[name]}, {value}" if name in fields else value
    fields.setdefault("content-type", "application/octet-stream")
    return fields, cookies


def _can_be_padded(fields: Mapping[str, str]) -> bool:
    """Whether comments can be inserted: only in uncompressed event streams."""
    kind_of_body = fields["content-type"].partition(";")[0].strip().lower()
    return kind_of_body == "text/event-stream" and "content-encoding" not in fields


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _trailers(error: BaseException | None) -> bytes:
    if error is None:
        return b""
    values = (kind(error), base64.b64encode(report(error)).decode())
    lines = [f"{name}: {value}\r\n" for name, value in zip(_TRAILERS, values, strict=True)]
    return "".join(lines).encode()
