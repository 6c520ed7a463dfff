"""Readers of server-sent events that connect again as a browser does, and check what they get."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from devtools.load.client import PATIENCE, Address, Connection
from devtools.load.wire import HEAD_END, ChunkDecoder, Event, EventDecoder, render

PAUSE: Final = 0.5
"""Before a reader connects again, and up to twice that; a browser waits for a second."""


class _Response(Connection):
    """One response, whose events go to `take`."""

    def __init__(self, request: bytes, take: Callable[[Event], None]) -> None:
        self._request = request
        self._take = take
        self._opening: bytes | None = b""
        self._chunks = ChunkDecoder()
        self._decoder = EventDecoder()
        self.status = 0
        self.ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """Resolved at the end: whether it was whole."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if self._opening is not None:
            self._opening += data
            head, found, data = self._opening.partition(HEAD_END)
            if not found:
                return
            self._opening = None
            self.status = int(head[9:12])
        if self.status != 200:
            self.transport.close()
            return
        for event in self._decoder.feed(self._chunks.feed(data)):
            self._take(event)
        if self._chunks.ended:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if not self.ended.done():
            self.ended.set_result(self._chunks.ended)


@dataclass(slots=True)
class Endings:
    """How the responses of an audience ended."""

    whole: int = 0
    broken: int = 0
    refused: int = 0
    """With another status than 200."""


class ResumingReader:
    """Follows a stream whose messages are numbers in lines, from its end on."""

    def __init__(
        self, address: Address, path: str, offset: str, headers: Mapping[str, str], endings: Endings
    ) -> None:
        self._address = address
        self._path = path
        self._headers = headers
        self._endings = endings
        self.offset = offset
        self.got: list[int] = []
        self.ready = asyncio.Event()
        """Set while a response is up to date."""

    async def follow(self) -> None:
        """Follow until cancelled; a message counts as soon as it has come, as in a browser."""
        while True:
            target = f"{self._path}?offset={self.offset}&live=sse"
            response = _Response(render("GET", target, self._headers), self._take)
            try:
                await self._address.connect(response)
                try:
                    whole = await response.ended
                finally:
                    response.close()
            except OSError:
                whole = False
            self.ready.clear()
            if response.status not in (0, 200):
                self._endings.refused += 1
            elif whole:
                self._endings.whole += 1
            else:
                self._endings.broken += 1
            await asyncio.sleep(PAUSE * random.uniform(1, 2))

    def _take(self, event: Event) -> None:
        if event.kind == "data":
            self.got += map(int, event.data.split())
        elif event.kind == "control":
            control = json.loads(event.data)
            self.offset = control["streamNextOffset"]
            if control.get("upToDate"):
                self.ready.set()


class ResumingAudience:
    """Readers of one stream that all have to get each number from 0 on, once and in order."""

    def __init__(
        self,
        address: Address,
        path: str,
        offset: str,
        count: int,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.endings = Endings()
        self.readers = [
            ResumingReader(address, path, offset, headers or {}, self.endings) for _ in range(count)
        ]
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self, at_once: int = 50) -> None:
        """Have all readers connect, some at a time, and wait until they are up to date."""
        async with asyncio.timeout(PATIENCE):
            await self._open(at_once)

    async def _open(self, at_once: int) -> None:
        for begin in range(0, len(self.readers), at_once):
            some = self.readers[begin : begin + at_once]
            self._tasks += [asyncio.create_task(reader.follow()) for reader in some]
            await asyncio.gather(*(reader.ready.wait() for reader in some))

    async def wait_for(self, messages: int, seconds: float) -> None:
        """Wait until every reader has so many messages."""
        deadline = time.monotonic() + seconds
        while any(len(reader.got) < messages for reader in self.readers):
            assert not [task for task in self._tasks if task.done()]
            assert time.monotonic() < deadline, f"readers miss messages: {self.wrong(messages)}"
            await asyncio.sleep(0.05)

    def wrong(self, messages: int) -> Sequence[Sequence[int]]:
        """The messages of readers that have lost or repeated some."""
        right = list(range(messages))
        return [reader.got for reader in self.readers if reader.got != right]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
