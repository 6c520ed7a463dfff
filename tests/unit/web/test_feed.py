"""The follower of a stream's tail, and readers that join it from any place."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.protocols.durable_streams.feed import Feeds, Reader
from tailrace.streams import Streams
from tests.support.streams import Clock, serving

JSON = "application/json"
STEPS = 10
"""Turns of the loop: more than anything takes that does not wait."""


class Kept:
    """A sink that keeps what it gets, and is full while `full` is set."""

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


def reader(n: int) -> tuple[Reader, Kept]:
    sink = Kept()
    made = Reader(sink, 0, time.monotonic() + 3600)
    made.slot = n
    return made, sink


async def attending(feeds: Feeds, streams: Streams, one: Reader) -> asyncio.Task[bool]:
    task = asyncio.ensure_future(feeds.attend(await streams.find("a"), one))
    for _ in range(STEPS):
        await asyncio.sleep(0)
    return task


async def until_at(one: Reader, n: int) -> None:
    async with asyncio.timeout(120):
        while one.slot < n:  # noqa: ASYNC110 - it is moved by the follower
            await asyncio.sleep(0.001)


async def test_a_reader_behind_the_follower_reads_on_by_itself(streams: Streams) -> None:
    feeds = Feeds(streams, 600)
    ahead, _ = reader(1)
    following = await attending(feeds, streams, ahead)
    await streams.append("a", Append(b"1", JSON))
    await until_at(ahead, 2)
    late, sink = reader(1)
    joined = await attending(feeds, streams, late)
    assert joined.done()
    assert joined.result() is False
    assert sink.pushed == []
    assert not following.done()
    following.cancel()


async def test_a_reader_ahead_of_the_follower_gets_what_follows_once(streams: Streams) -> None:
    feeds = Feeds(streams, 600)
    await streams.append("a", Append(b"1", JSON))
    slow, _ = reader(0)
    quick, sink = reader(2)
    tasks = [asyncio.ensure_future(feeds.attend(await streams.find("a"), slow))]
    tasks.append(asyncio.ensure_future(feeds.attend(await streams.find("a"), quick)))
    await until_at(slow, 2)
    await streams.append("a", Append(b"2", JSON))
    await until_at(quick, 3)
    assert [b"data:[2]" in data for data in sink.pushed] == [True]
    for task in tasks:
        task.cancel()


async def test_a_keep_alive_on_a_full_line_releases_its_reader(streams: Streams) -> None:
    feeds = Feeds(streams, 0.01)
    one, sink = reader(1)
    sink.full = True
    assert await asyncio.wait_for(feeds.attend(await streams.find("a"), one), 120) is False
    assert one.slot == 1
