"""Reads of streams that do not exist yet: a page may open before its room has seen a message.

Below the second mount such a stream reads as an empty JSON stream, and live reads wait for its
first message. A position that a stream gave is refused: that stream was there, and was deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import orjson

from tailrace.errors import StaleOffset, StreamGone, StreamNotFound, TooManyRequests
from tailrace.limits import (
    LIVE_RETRY_SECONDS,
    MISSING_POLL_SECONDS,
    MISSING_WAITS,
    MISSING_WAITS_PER_CLIENT,
)
from tailrace.log.offsets import START, Position
from tailrace.protocols.durable_streams.read_start import ReadStart
from tailrace.streams import Streams
from tailrace.web.messages import RawHeaders

BODY: Final = b"[]"

HEADERS: Final[RawHeaders] = [
    (b"content-type", b"application/json"),
    (b"stream-next-offset", START.encode()),
    (b"stream-up-to-date", b"true"),
]


def check_start(start: ReadStart) -> None:
    """Refuse a position that only an earlier stream at the path can have given."""
    if isinstance(start, Position) and (start.epoch or start.slot > 0 or start.offset):
        raise StaleOffset("the stream that gave this offset was deleted")


def control_event(cursor: int) -> bytes:
    fields = {"streamNextOffset": START, "streamCursor": str(cursor), "upToDate": True}
    return b"event: control\ndata:%b\nid:%b\n\n" % (orjson.dumps(fields), START.encode())


class Permits(Protocol):
    """Bounds waits over processes that share no memory."""

    async def acquire(self, client: str, seconds: float) -> str | None:
        """Acquire a permit for a wait; None: the client, or all clients, hold all that they may."""

    async def release(self, permit: str) -> None: ...


Release = Callable[[], Awaitable[None]]
"""Says that a wait has ended."""


class MissingStreams:
    """Waits for streams to be created, bounded for each client and in sum: a client could name any
    number of streams. Those that wait for the same stream share its lookups."""

    def __init__(self, streams: Streams, permits: Permits | None = None) -> None:
        """`permits`: bound the waits of several processes, of which each has few."""
        self._streams = streams
        self._permits = permits
        self._waits: dict[str, int] = {}
        """By client."""
        self._sum = 0
        self._lookups: dict[str, _Lookup] = {}

    def check(self, client: str) -> None:
        """Check that a client may wait for one more stream in this process."""
        if self._waits.get(client, 0) >= MISSING_WAITS_PER_CLIENT or self._sum >= MISSING_WAITS:
            raise _too_many()

    async def admit(self, client: str, seconds: float) -> Release:
        """Admit a wait of so many seconds; call what is returned when it has ended."""
        self.check(client)
        if self._permits is None:
            return _nothing
        permit = await self._permits.acquire(client, seconds)
        if permit is None:
            raise _too_many()
        return partial(self._permits.release, permit)

    async def wait(self, path: str, client: str, seconds: float) -> bool:
        """Wait until there is a stream at a path; returns whether there is one."""
        lookup = self._lookups.get(path)
        if lookup is None or lookup.task.done():
            lookup = self._lookups[path] = _Lookup(asyncio.create_task(self._look_up(path)))
            # Its failure is that of those that wait, of which there may be none by then.
            lookup.task.add_done_callback(lambda task: task.cancelled() or task.exception())
        lookup.waits += 1
        try:
            with self._counted(client):
                await asyncio.wait((lookup.task,), timeout=seconds)
            return lookup.task.done() and lookup.task.result()
        finally:
            lookup.waits -= 1
            if not lookup.waits:
                lookup.task.cancel()
                if self._lookups.get(path) is lookup:
                    del self._lookups[path]

    @contextmanager
    def _counted(self, client: str) -> Iterator[None]:
        self._waits[client] = self._waits.get(client, 0) + 1
        self._sum += 1
        try:
            yield
        finally:
            self._sum -= 1
            self._waits[client] -= 1
            if not self._waits[client]:
                del self._waits[client]

    async def _look_up(self, path: str) -> bool:
        """Look a stream up until it exists; returns False when the server stops."""
        with self._streams.watching(path) as created:
            while not self._streams.draining:
                created.clear()
                with suppress(StreamNotFound, StreamGone):
                    await self._streams.find(path)
                    return True
                # Another process may create it, which this one is not told.
                with suppress(TimeoutError):
                    await asyncio.wait_for(created.wait(), MISSING_POLL_SECONDS)
        return False


def _too_many() -> TooManyRequests:
    return TooManyRequests(
        "too many reads wait for streams that do not exist; end one of them first",
        LIVE_RETRY_SECONDS,
    )


async def _nothing() -> None:
    pass


@dataclass(slots=True)
class _Lookup:
    """The task that looks a stream up, and how many wait for it."""

    task: asyncio.Task[bool]
    waits: int = 0
