"""Many processes on one stream, in virtual time: nobody starves, and losing does not cost much."""

from __future__ import annotations

import asyncio
import random
from typing import NamedTuple

from devtools.dynamodb_simulator.loop import run
from devtools.dynamodb_simulator.table import MemoryTable
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.settings import Settings
from tailrace.store.dynamodb.provision import Backend
from tailrace.store.dynamodb.store import DynamoStore
from tailrace.streams import Streams

PLAIN = Append(b"x" * 100, "text/plain")
SECONDS = 5.0
ROUND_TRIP = (0.0015, 0.003)
"""Each way, at least and at most."""


class Writer(NamedTuple):
    took: list[float]
    attempts: float
    """Puts per append."""


def race(*gaps: float) -> list[Writer]:
    """A writer for each gap, which is how long it waits, on average, between two appends."""

    async def main() -> list[Writer]:
        table = MemoryTable(random.Random(3), latency=ROUND_TRIP, lag=0.01)
        stores = [DynamoStore(Settings(), backend=Backend(table.connect(), None)) for _ in gaps]
        for store in stores:
            await store.open()
        streams = [Streams(store, Settings()) for store in stores]
        await streams[0].create("a", Create(content_type="text/plain"))
        now = asyncio.get_running_loop().time
        end = now() + SECONDS

        async def write(mine: Streams, gap: float) -> list[float]:
            took = []
            while now() < end:
                begun = now()
                await mine.append("a", PLAIN)
                took.append(now() - begun)
                await asyncio.sleep(random.uniform(0, 2 * gap))
            return sorted(took)

        all_took = await asyncio.gather(*map(write, streams, gaps))
        outcomes = [store.outcomes for store in stores]
        return [
            Writer(took, (each["appended"] + each["lost"]) / each["appended"])
            for took, each in zip(all_took, outcomes, strict=True)
        ]

    return run(5, main, stalls=0.0)


def test_a_single_writer_never_loses_and_hardly_waits() -> None:
    (alone,) = race(0)
    assert alone.attempts == 1
    assert len(alone.took) / SECONDS > 200  # 244; without courtesy 267


def test_a_busy_writer_lets_another_one_in() -> None:
    busy, other = race(0, 0.05)
    assert other.took[len(other.took) // 2] < 0.1  # 0.04; without courtesy 4
    assert other.took[-1] < 3
    assert len(busy.took) / SECONDS > 150  # 224


def test_of_many_busy_writers_none_starves() -> None:
    none_starves(8)


def none_starves(writers: int) -> None:
    found = race(*[0.0] * writers)
    assert max(writer.took[-1] for writer in found) < 6  # 1.5, 2.5, 4.2
    total = sum(len(writer.took) for writer in found)
    fair = total / writers
    assert min(len(writer.took) for writer in found) > fair / 4
    assert total / SECONDS > 180


def test_among_rivals_a_read_comes_first_instead_of_a_write_that_loses() -> None:
    found = race(*[0.1] * 8)
    attempts = sum(writer.attempts for writer in found) / 8
    assert attempts < 1.7  # 1.39; from memory alone 3.15
    assert max(writer.took[-1] for writer in found) < 0.5
