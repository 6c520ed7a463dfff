"""An HTTP/1.1 connection to the Runtime API, with one exchange at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

BROKEN = (OSError, EOFError)
"""The exceptions of a connection that breaks."""


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def __str__(self) -> str:
        return f"{self.status} {self.body[:500].decode(errors='replace')}"


class Connection:
    """A persistent connection, opened on demand and reopened if it is found closed.

    asyncio enables TCP_NODELAY, so data is sent without delay.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        fields = {**(headers or {}), "Content-Length": str(len(body))}
        while True:
            reused = self._is_open()
            try:
                await self.begin(method, path, fields, body)
                return await self.answer()
            except BROKEN:
                self.close()
                if not reused:
                    raise

    async def begin(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
    ) -> None:
        """Send a request, or the head of one with a chunked body."""
        if not self._is_open():
            self.close()
            host, _, port = self._address.rpartition(":")
            self._streams = await asyncio.open_connection(host, int(port))
        lines = [f"{method} /2018-06-01/runtime{path} HTTP/1.1", f"Host: {self._address}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        await self.drain()

    def write(self, data: bytes) -> None:
        if self._streams is None:
            raise ConnectionResetError("the connection to the Runtime API is closed")
        self._streams[1].write(data)

    async def drain(self) -> None:
        if self._streams is not None:
            await self._streams[1].drain()

    async def answer(self) -> Answer:
        if self._streams is None:
            raise ConnectionResetError("the connection to the Runtime API is closed")
        reader, _ = self._streams
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines if line)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body = await _read_chunks(reader)
        else:
            body = await reader.readexactly(int(headers.get("content-length", 0)))
        if headers.get("connection", "").lower() == "close":
            self.close()
        return Answer(int(first.split(" ")[1]), headers, body)

    def close(self) -> None:
        """Close immediately, and discard unsent data."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None

    def _is_open(self) -> bool:
        if self._streams is None:
            return False
        reader, writer = self._streams
        return not reader.at_eof() and not writer.is_closing()


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    chunks: list[bytes] = []
    while size := int((await reader.readline()).partition(b";")[0], 16):
        chunks.append(await reader.readexactly(size))
        await reader.readexactly(2)
    while await reader.readline() not in (b"\r\n", b""):
        pass
    return b"".join(chunks)
