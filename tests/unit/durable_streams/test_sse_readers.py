"""Readers of server-sent events, and the follower that serves them at the tail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from tailrace.limits import EVENT_STEP_BYTES
from tailrace.live.follower import SLICE_READERS
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.protocols.durable_streams.sse_readers import SseReader, SseReaders
from tailrace.streams import Streams, View
from tests.support.streams import Clock, serving

JSON = "application/json"
STEPS = 10
"""Iterations of the event loop: more than anything takes that does not wait."""


class MemorySink:
    """A sink that keeps what is pushed, and is full while `full` is set."""

    def __init__(self) -> None:
        self.pushed: list[bytes] = []
        self.full = False

    async def drain(self) -> None:
        raise AssertionError("a follower never waits for one reader")

    def push(self, data: bytes) -> bool:
        self.pushed.append(data)
        return not self.full


@pytest.fixture
async def streams(tmp_path: Path) -> AsyncIterator[Streams]:
    async with serving(tmp_path / "data", Clock()) as streams:
        await streams.create("a", Create(b"[0]", JSON))
        yield streams


class Client:
    """A reader that has the first messages of stream `a`."""

    def __init__(self, streams: Streams, readers: SseReaders, messages: int) -> None:
        self.sink = MemorySink()
        self._streams = streams
        self._readers = readers
        self._messages = messages

    async def attend(self) -> None:
        tail = await self._streams.find("a")
        view = View(tail, (), self._messages, self._messages, 0, up_to_date=True, closed=False)
        deadline = time.monotonic() + 3600
        self.reader = SseReader(self._readers, self.sink, view, 0, deadline)
        self.attending = asyncio.ensure_future(self._attend())
        await steps()

    async def _attend(self) -> bool:
        """Have the reader served; returns whether it is over then."""
        released = asyncio.get_running_loop().create_future()
        if not self._readers.join(self.reader):
            return False
        self.reader.park(self.sink, partial(released.set_result, None))
        try:
            await released
        finally:
            self.reader.leave()
        return self.reader.over

    async def until(self, messages: int) -> None:
        async with asyncio.timeout(120):
            while self.reader.offset < messages:  # noqa: ASYNC110 - the follower advances it
                await asyncio.sleep(0.001)


async def steps() -> None:
    for _ in range(STEPS):
        await asyncio.sleep(0)


async def attend(streams: Streams, readers: SseReaders, messages: int) -> Client:
    client = Client(streams, readers, messages)
    await client.attend()
    return client


async def test_a_reader_behind_the_follower_reads_on_by_itself(streams: Streams) -> None:
    readers = SseReaders(streams, 600)
    ahead = await attend(streams, readers, 1)
    await streams.append("a", Append(b"1", JSON))
    await ahead.until(2)
    late = await attend(streams, readers, 1)
    assert late.attending.done()
    assert late.attending.result() is False
    assert late.sink.pushed == []
    assert not ahead.attending.done()
    ahead.attending.cancel()


async def test_a_reader_that_comes_within_a_round_is_behind(streams: Streams) -> None:
    readers = SseReaders(streams, 600)
    clients = [await attend(streams, readers, 1) for _ in range(3 * SLICE_READERS)]
    late = Client(streams, readers, 1)
    coming: list[asyncio.Future[None]] = []

    def come(data: bytes) -> bool:
        clients[0].sink.pushed.append(data)
        coming.append(asyncio.ensure_future(late.attend()))
        return True

    clients[0].sink.push = come  # type: ignore[method-assign]
    await streams.append("a", Append(b"1", JSON))
    await clients[-1].until(2)
    await coming[0]
    assert late.attending.result() is False, "it has to read the message by itself"
    assert all(len(client.sink.pushed) == 1 for client in clients)
    for client in clients:
        client.attending.cancel()


async def test_a_reader_ahead_of_the_follower_gets_what_follows_once(streams: Streams) -> None:
    readers = SseReaders(streams, 600)
    await streams.append("a", Append(b"1", JSON))
    slow, quick = Client(streams, readers, 0), Client(streams, readers, 2)
    await asyncio.gather(slow.attend(), quick.attend())
    await slow.until(2)
    await streams.append("a", Append(b"2", JSON))
    await quick.until(3)
    assert [b"data:[2]" in data for data in quick.sink.pushed] == [True]
    for client in (slow, quick):
        client.attending.cancel()


async def test_a_keep_alive_releases_a_reader_whose_sink_is_full(streams: Streams) -> None:
    readers = SseReaders(streams, 0.01)
    client = Client(streams, readers, 1)
    client.sink.full = True
    await client.attend()
    assert await asyncio.wait_for(client.attending, 120) is False
    assert (client.reader.slot, client.reader.offset) == (1, 1)


async def test_a_large_event_is_left_to_the_readers_that_lack_it(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower that stayed before it would read it again and again."""
    await streams.append("a", Append(b'"%b"' % (b"x" * EVENT_STEP_BYTES), JSON))
    readers = SseReaders(streams, 600)
    reads: list[int] = []
    view = streams.view

    async def count(path: str, position: int) -> object:
        reads.append(position)
        await asyncio.sleep(0)
        return await view(path, position)

    monkeypatch.setattr(streams, "view", count)
    behind, ahead = Client(streams, readers, 1), Client(streams, readers, 2)
    await asyncio.gather(behind.attend(), ahead.attend())
    assert await asyncio.wait_for(behind.attending, 120) is False
    assert (behind.reader.slot, behind.reader.offset) == (1, 1)
    for _ in range(STEPS):
        await steps()
    assert len(reads) < STEPS
    await streams.append("a", Append(b"2", JSON))
    await ahead.until(3)
    assert [b"data:[2]" in data for data in ahead.sink.pushed] == [True]
    ahead.attending.cancel()
