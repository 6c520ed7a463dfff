"""Durable Streams requests, rendered once, and a client for set-up and checks."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from devtools.load.client import Address, Client, WrongAnswer
from devtools.load.wire import Response, render

JSON = "application/json"
BINARY = "application/octet-stream"
MESSAGE_BYTES = 100

_names = count()


def url(name: str) -> str:
    return f"/v1/stream/bench/{name}"


def message(writer: int, index: int, size: int = MESSAGE_BYTES) -> bytes:
    """A JSON message of exactly `size` bytes with one `~` in it."""
    start = b'{"w":%d,"i":%d,"text":"~' % (writer, index)
    return start + b"x" * (size - len(start) - 2) + b'"}'


def append(name: str, body: bytes, kind: str = JSON, **headers: str) -> bytes:
    extra = {name.replace("_", "-"): value for name, value in headers.items()}
    return render("POST", url(name), {"Content-Type": kind, **extra}, body)


def read(name: str, offset: str = "-1", live: str | None = None, *, closes: bool = False) -> bytes:
    """`closes`: the server is to close the connection after its answer."""
    mode = f"&live={live}" if live else ""
    headers = {"Connection": "close"} if closes else {}
    return render("GET", f"{url(name)}?offset={offset}{mode}", headers)


def next_offset(response: Response) -> str:
    offset = response.header("Stream-Next-Offset")
    if offset is None:
        raise WrongAnswer(f"no Stream-Next-Offset in {response.head!r}")
    return offset


@dataclass(frozen=True, slots=True)
class Page:
    request: bytes
    response: Response


class Streams:
    """A client with one connection, which is reopened after the server has closed it as idle."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._client: Client | None = None

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    async def create(self, name: str, kind: str = JSON, **headers: str) -> str:
        extra = {key.replace("_", "-"): value for key, value in headers.items()}
        request = render("PUT", url(name), {"Content-Type": kind, **extra}, b"")
        return next_offset(await self._ask(request, 200, 201))

    async def append(self, name: str, body: bytes, kind: str = JSON) -> str:
        return next_offset(await self._ask(append(name, body, kind), 204))

    async def delete(self, name: str) -> None:
        await self._ask(render("DELETE", url(name)), 204)

    async def expect_missing(self, name: str) -> None:
        await self._ask(read(name), 404)

    async def pages(self, name: str, offset: str = "-1") -> AsyncIterator[Page]:
        """All responses up to the tail; a server may send everything in one."""
        while True:
            request = read(name, offset)
            response = await self._ask(request, 200)
            yield Page(request, response)
            following = next_offset(response)
            if response.header("Stream-Up-To-Date") == "true":
                return
            if following == offset:
                raise WrongAnswer(f"no progress at {offset} and not up to date")
            offset = following

    async def messages(self, name: str) -> list[Any]:
        return [item async for page in self.pages(name) for item in json.loads(page.response.body)]

    async def length(self, name: str, offset: str = "-1") -> int:
        return sum([page.response.length async for page in self.pages(name, offset)])

    async def _ask(self, request: bytes, *expected: int) -> Response:
        if self._client is None or self._client.lost:
            self._client = await self.address.connect(Client())
        return await self._client.ask(request, *expected)


@asynccontextmanager
async def streams_at(address: Address) -> AsyncIterator[Streams]:
    streams = Streams(address)
    try:
        yield streams
    finally:
        streams.close()


@asynccontextmanager
async def temporary(
    streams: Streams, amount: int = 1, kind: str = JSON
) -> AsyncIterator[list[str]]:
    """Create streams and delete them afterwards, so that measurements do not affect each other."""
    names = [f"s{next(_names)}" for _ in range(amount)]
    for name in names:
        await streams.create(name, kind)
    yield names
    for name in names:
        await streams.delete(name)
