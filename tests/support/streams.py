"""Streams over the SQLite store, a client for them, and a clock that tests move."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from tailrace.errors import StreamGone, StreamNotFound
from tailrace.log.append import Append
from tailrace.log.content import join_bodies
from tailrace.log.create import Create, ForkFrom
from tailrace.log.offsets import parse
from tailrace.log.state import Producer
from tailrace.settings import Settings
from tailrace.store.sqlite.store import SqliteStore
from tailrace.streams import Appended, Created, Streams, View

T = TypeVar("T")

START = 1_700_000_000_000


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> int:
        return self.now

    def pass_ms(self, milliseconds: int) -> None:
        self.now += milliseconds

    def pass_s(self, seconds: float) -> None:
        self.now += int(seconds * 1000)


@asynccontextmanager
async def serving(data: Path, clock: Clock, **settings: Any) -> AsyncIterator[Streams]:
    """Open the streams of a data directory."""
    loaded = Settings(data=str(data), **settings)
    async with over(SqliteStore(loaded), loaded, clock) as streams:
        yield streams


@asynccontextmanager
async def over(store: SqliteStore, settings: Settings, clock: Clock) -> AsyncIterator[Streams]:
    """Open the streams of a store."""
    await store.open()
    try:
        yield Streams(store, settings, clock)
    finally:
        await store.close()


def place(token: str) -> tuple[int, int]:
    """Return slot and offset of a token; the epoch of a stream is different in each run."""
    slot, offset, _ = parse(token)
    return slot, offset


class Client:
    """Short forms of the calls that tests make."""

    def __init__(self, streams: Streams) -> None:
        self.streams = streams

    async def create(
        self,
        path: str,
        body: bytes = b"",
        content_type: str | None = "text/plain",
        **more: Any,
    ) -> Created:
        return await self.streams.create(path, Create(body, content_type, **more))

    async def fork(
        self,
        path: str,
        source: str,
        at: int | str | None = None,
        sub_offset: int = 0,
        body: bytes = b"",
        **more: Any,
    ) -> Created:
        """Fork a source at a slot, a token or its tail."""
        wanted = ForkFrom(source, None, sub_offset)
        if isinstance(at, str):
            slot, offset, epoch = parse(at)
            wanted = wanted._replace(slot=slot, offset=offset, epoch=epoch)
        else:
            wanted = wanted._replace(slot=at)
        return await self.streams.create(path, Create(body, fork=wanted, **more))

    async def append(
        self, path: str, *bodies: bytes, content_type: str = "text/plain", **more: Any
    ) -> Appended:
        for body in bodies:
            accepted = await self.streams.append(path, Append(body, content_type, **more))
        return accepted

    async def together(
        self, path: str, *bodies: bytes, content_type: str = "text/plain"
    ) -> list[Appended]:
        """Append bodies at once, so that they share a slot."""
        return await asyncio.gather(
            *(self.append(path, body, content_type=content_type) for body in bodies)
        )

    async def produce(
        self, path: str, producer: str, epoch: int, seq: int, body: bytes | None = None
    ) -> Appended:
        body = body or f"{producer}.{epoch}.{seq};".encode()
        request = Append(body, "text/plain", producer=Producer(producer, epoch, seq))
        return await self.streams.append(path, request)

    async def close(self, path: str) -> Appended:
        return await self.streams.append(path, Append(b"", close=True))

    async def views(self, path: str, position: int | str = 0) -> list[View]:
        """Read all chunks from a slot or a token to the tail, by following the offsets."""
        if isinstance(position, str):
            views = [await self.streams.read(path, parse(position))]
        else:
            views = [await self.streams.view(path, position)]
        while not views[-1].up_to_date:
            views.append(await self.streams.read(path, parse(views[-1].next_offset)))
        return views

    async def read(self, path: str, position: int | str = 0) -> bytes:
        """Read all data from a slot or a token on."""
        views = await self.views(path, position)
        mode = views[0].tail.stream.config.mode
        return join_bodies(mode, [body for view in views for body in view.bodies])

    async def status(self, path: str) -> str:
        """The status of a stream, without counting as an access."""
        try:
            await self.streams.find(path)
        except StreamNotFound:
            return "missing"
        except StreamGone:
            return "gone"
        return "there"


async def begun(work: Coroutine[Any, Any, T], seconds: float = 0.02) -> asyncio.Task[T]:
    """Start work that is not expected to end by itself."""
    task = asyncio.ensure_future(work)
    await asyncio.sleep(seconds)
    assert not task.done()
    return task


async def ended(task: asyncio.Task[T]) -> T:
    return await asyncio.wait_for(task, 120)
