"""Waiting costs reads: how many, how late an entry may be noticed, and who shares them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from devtools.dynamodb_simulator.loop import run
from devtools.dynamodb_simulator.table import MemoryTable
from tailrace.errors import StreamClosed, StreamNotFound
from tailrace.limits import POLLS_PER_SECOND
from tailrace.log.append import Append
from tailrace.log.create import Create, ForkFrom
from tailrace.log.state import Producer
from tailrace.settings import Settings
from tailrace.store.dynamodb.provision import Backend
from tailrace.store.dynamodb.store import DynamoStore
from tailrace.streams import Streams
from tests.integration.store.dynamodb.conftest import Start

BUSY_MINUTE = 1200
"""Read units that docs/dynamodb.md promises for a minute of waiting while a stream has news."""
QUIET_MINUTE = 120
"""The same after an hour of silence."""

PLAIN = Append(b"x", "text/plain")


class World:
    """Two processes over one table, in virtual time."""

    def __init__(self) -> None:
        self.table = MemoryTable(random.Random(1), latency=(0.001, 0.002), lag=0.0)
        self.polls = 0

    async def process(self, **settings: Any) -> Streams:
        chosen = Settings(**settings)
        store = DynamoStore(chosen, backend=Backend(self.table.connect(), None))
        await store.open()
        call = store._table._call

        async def counted(operation: str, **request: object) -> object:
            self.polls += operation == "GetItem" and not request["ConsistentRead"]
            return await call(operation, **request)

        store._table._call = counted  # type: ignore[method-assign,assignment]
        return Streams(store, chosen)


def simulated(main: Callable[[World], Awaitable[None]]) -> None:
    async def body() -> None:
        await main(World())

    run(1, body)


def test_a_waiter_costs_what_is_documented() -> None:
    async def main(world: World) -> None:
        streams = await world.process()
        await streams.create("a", Create(content_type="text/plain"))
        await streams.append("a", PLAIN)
        tail = await streams.access("a")
        now = asyncio.get_running_loop().time
        units = []
        for minute in (0, 4, 9, 60):
            await asyncio.sleep(minute * 60 - now())
            before = world.polls
            await streams.follow(tail, 1, 60)
            units.append((world.polls - before) / 2)
        # Observed: 1050, 1050, 580, 119.
        assert all(900 < unit <= BUSY_MINUTE for unit in units[:2])
        assert 400 < units[2] < 700
        assert 100 < units[3] <= QUIET_MINUTE

    simulated(main)


def test_all_waits_of_a_process_share_one_poll() -> None:
    async def main(world: World) -> None:
        streams = await world.process()
        await streams.create("a", Create(content_type="text/plain"))
        tail = await streams.access("a")
        counts = []
        for readers in (1, 100):
            before = world.polls
            await asyncio.gather(*(streams.follow(tail, 0, 30) for _ in range(readers)))
            counts.append(world.polls - before)
        assert counts[1] < 1.1 * counts[0]

    simulated(main)


@pytest.mark.parametrize(
    ("silence", "latest"), [(0.2, 0.06), (200, 0.06), (900, 0.12), (7200, 0.3)], ids=str
)
def test_an_entry_is_noticed_at_once_while_a_stream_has_news(silence: float, latest: float) -> None:
    async def main(world: World) -> None:
        here, there = await world.process(), await world.process()
        await here.create("a", Create(content_type="text/plain"))
        await here.append("a", PLAIN)
        loop = asyncio.get_running_loop()
        for n in range(1, 6 if silence < 60 else 2):
            await asyncio.sleep(silence * 0.99)
            reading = asyncio.ensure_future(here.follow(await here.access("a"), n, 10_000))
            await asyncio.sleep(silence * 0.01)
            await there.append("a", PLAIN)
            begun = loop.time()
            assert (await reading).bodies == [b"x"]
            assert loop.time() - begun < latest

    simulated(main)


def test_the_pauses_are_settings() -> None:
    async def main(world: World) -> None:
        streams = await world.process(poll_fastest=0.1, poll_slowest=20)
        await streams.create("a", Create(content_type="text/plain"))
        tail = await streams.access("a")
        await streams.follow(tail, 0, 60)
        assert 570 <= world.polls <= 600
        await asyncio.sleep(100_000)
        before = world.polls
        await streams.follow(tail, 0, 200)
        assert 9 <= world.polls - before <= 11

    simulated(main)


def test_of_two_pauses_the_shortest_counts() -> None:
    async def main(world: World) -> None:
        streams = await world.process(poll_fastest=2, poll_slowest=0.1)
        await streams.create("a", Create(content_type="text/plain"))
        await streams.follow(await streams.access("a"), 0, 60)
        assert 28 <= world.polls <= 30

    simulated(main)


def test_a_process_that_waits_for_many_streams_polls_each_less_often() -> None:
    async def main(world: World) -> None:
        streams = await world.process()
        paths = [f"s{number}" for number in range(200)]
        for path in paths:
            await streams.create(path, Create(content_type="text/plain"))
        tails = [await streams.access(path) for path in paths]
        await asyncio.gather(*(streams.follow(tail, 0, 5) for tail in tails))
        assert 0.8 * POLLS_PER_SECOND < world.polls / 5 <= POLLS_PER_SECOND
        before = world.polls
        await streams.follow(tails[0], 0, 5)
        assert world.polls - before > 150, "those that have ended do not count any more"

    simulated(main)


async def append(streams: Streams) -> None:
    await streams.append("a", PLAIN)


async def append_a_batch(streams: Streams) -> None:
    appended = await asyncio.gather(*(streams.append("a", PLAIN) for _ in range(8)))
    assert len({each.slot for each in appended}) < 8


async def append_with_a_producer(streams: Streams) -> None:
    await streams.append("a", PLAIN._replace(producer=Producer("p", 0, 0)))


async def append_a_large_body(streams: Streams) -> None:
    await streams.append("a", PLAIN._replace(body=b"x" * 100_000))


async def append_and_close(streams: Streams) -> None:
    await streams.append("a", PLAIN._replace(close=True))


async def close(streams: Streams) -> None:
    await streams.append("a", Append(b"", close=True))


async def delete(streams: Streams) -> None:
    await streams.delete("a")


async def delete_what_a_fork_needs(streams: Streams) -> None:
    await streams.create("fork", Create(fork=ForkFrom("a")))
    await streams.delete("a")


async def delete_and_create(streams: Streams) -> None:
    await streams.delete("a")
    await streams.create("a", Create(b"new", "text/plain"))


@pytest.mark.parametrize(
    "write",
    [
        append,
        append_a_batch,
        append_with_a_producer,
        append_a_large_body,
        append_and_close,
        close,
        delete,
        delete_what_a_fork_needs,
        delete_and_create,
    ],
    ids=lambda write: write.__name__,
)
async def test_a_write_in_the_same_process_is_noticed_at_once(
    start: Start, write: Callable[[Streams], Awaitable[None]]
) -> None:
    streams = (await start(poll_fastest=60)).streams
    await streams.create("a", Create(content_type="text/plain"))
    tail = await streams.access("a")
    waits = [asyncio.ensure_future(streams.store.wait(tail, 0, 600)) for _ in range(3)]
    await asyncio.sleep(0.1)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await write(streams)
    assert await asyncio.wait_for(asyncio.gather(*waits), 30) == [True] * 3
    assert loop.time() - begun < 50, "no poll was made meanwhile"


async def test_a_write_that_lost_its_race_tells_of_the_entry_that_won(start: Start) -> None:
    here, there = await start(poll_fastest=60), await start()
    await here.streams.create("a", Create(content_type="text/plain"))
    await here.streams.append("a", PLAIN)
    tail = await here.streams.access("a")
    reading = asyncio.ensure_future(here.streams.store.wait(tail, 1, 600))
    await asyncio.sleep(0.1)
    await there.streams.append("a", Append(b"", close=True))
    with pytest.raises(StreamClosed):
        await here.streams.append("a", PLAIN)
    assert await asyncio.wait_for(reading, 30)


@pytest.mark.parametrize("event", ["append", "close", "delete"])
async def test_a_slot_filled_elsewhere_ends_the_wait(start: Start, event: str) -> None:
    here, there = await start(), await start()
    await here.streams.create("a", Create(content_type="text/plain"))
    reading = asyncio.ensure_future(here.streams.follow(await here.streams.access("a"), 0, 600))
    await asyncio.sleep(0.1)
    if event == "delete":
        await there.streams.delete("a")
        with pytest.raises(Exception, match="no stream at 'a'"):
            await asyncio.wait_for(reading, 120)
    else:
        await there.streams.append("a", PLAIN if event == "append" else Append(b"", close=True))
        view = await asyncio.wait_for(reading, 120)
        assert (bool(view.bodies), view.closed) == (event == "append", event == "close")


def test_a_reader_is_told_that_the_stream_has_ended() -> None:
    async def main(world: World) -> None:
        here, there = await world.process(), await world.process()
        loop = asyncio.get_running_loop()
        here.clock = lambda: round(loop.time() * 1000)
        await there.create("deleted", Create(content_type="text/plain"))
        expiring = Create(content_type="text/plain", expires_at=here.clock() + 3000)
        await there.create("expires", expiring)
        endings = [here.follow(await here.find(path), 0, 600) for path in ("deleted", "expires")]
        waits = asyncio.gather(*endings, return_exceptions=True)
        await asyncio.sleep(1)
        await there.delete("deleted")
        begun = loop.time()
        assert [type(each) for each in await waits] == [StreamNotFound] * 2
        assert loop.time() - begun < 2.1

    simulated(main)
