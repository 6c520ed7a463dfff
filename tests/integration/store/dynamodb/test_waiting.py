"""Waiting costs reads: how many, how late an entry may be noticed, and who shares them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from devtools.dynamodb_simulator.loop import run
from devtools.dynamodb_simulator.table import MemoryTable
from tailrace.errors import StreamNotFound
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.settings import Settings
from tailrace.store.dynamodb import polling
from tailrace.store.dynamodb.provision import Backend
from tailrace.store.dynamodb.store import DynamoStore
from tailrace.streams import Streams
from tests.integration.store.dynamodb.conftest import Start

FIRST_MINUTE = 75
"""Read units that docs/dynamodb.md promises for a waiter's first minute after an entry."""
IDLE_MINUTE = 61
"""The same for every later minute."""

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


def test_an_idle_waiter_costs_what_is_documented() -> None:
    async def main(world: World) -> None:
        streams = await world.process()
        await streams.create("a", Create(content_type="text/plain"))
        await streams.append("a", PLAIN)
        tail = await streams.access("a")
        units = []
        for _ in range(3):
            before = world.polls
            await streams.follow(tail, 1, 60)
            units.append((world.polls - before) / 2)
        # Observed: 71.5, then 59.5 each.
        assert 60 < units[0] <= FIRST_MINUTE
        assert all(50 < unit <= IDLE_MINUTE for unit in units[1:])

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
        assert counts[1] <= counts[0], "the second half minute is the quieter one"

    simulated(main)


@pytest.mark.parametrize(
    ("silence", "latest"), [(0.2, 0.07), (2, 0.3), (60, 0.6), (3600, 0.6)], ids=str
)
def test_an_entry_is_noticed_a_tenth_of_the_silence_late(silence: float, latest: float) -> None:
    async def main(world: World) -> None:
        here, there = await world.process(), await world.process()
        await here.create("a", Create(content_type="text/plain"))
        await here.append("a", PLAIN)
        loop = asyncio.get_running_loop()
        for n in range(1, 6 if silence < 60 else 2):
            reading = asyncio.ensure_future(here.follow(await here.access("a"), n, 7200))
            await asyncio.sleep(silence)
            await there.append("a", PLAIN)
            begun = loop.time()
            assert (await reading).bodies == [b"x"]
            assert loop.time() - begun < latest

    simulated(main)


def test_the_longest_pause_is_a_setting() -> None:
    async def main(world: World) -> None:
        streams = await world.process(poll_slowest=20)
        await streams.create("a", Create(content_type="text/plain"))
        tail = await streams.access("a")
        await streams.follow(tail, 0, 200)
        before = world.polls
        await streams.follow(tail, 0, 200)
        assert 9 <= world.polls - before <= 11

    simulated(main)


async def test_a_write_in_the_same_process_is_noticed_at_once(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "POLL_MILLISECONDS", 300_000)
    process = await start()
    streams = process.streams
    await streams.create("a", Create(content_type="text/plain"))
    reading = asyncio.ensure_future(streams.follow(await streams.access("a"), 0, 600))
    await asyncio.sleep(0.1)
    await streams.append("a", PLAIN)
    assert (await asyncio.wait_for(reading, 120)).bodies == [b"x"]


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
