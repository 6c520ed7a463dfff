"""Many processes on one stream, in virtual time: nobody starves, and losing does not cost much."""

from __future__ import annotations

import asyncio
import random
from itertools import chain
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


class Process(NamedTuple):
    took: list[float]
    """By each append of its writers, in seconds, in ascending order."""
    puts: float
    """Per append, those that lost their slot included."""


def race(*gaps: float, writers: int = 1) -> list[Process]:
    """A process for each gap, which is how long its writers wait, on average, between appends."""

    async def main() -> list[Process]:
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
            return took

        async def process(mine: Streams, gap: float) -> list[float]:
            return [*chain(*await asyncio.gather(*(write(mine, gap) for _ in range(writers))))]

        all_took = await asyncio.gather(*map(process, streams, gaps))
        outcomes = [store.outcomes for store in stores]
        return [
            Process(sorted(took), (each["appended"] + each["lost"]) / len(took))
            for took, each in zip(all_took, outcomes, strict=True)
        ]

    return run(5, main, stalls=0.0)


def per_second(*found: Process) -> float:
    return sum(len(each.took) for each in found) / SECONDS


def test_a_single_writer_never_loses_and_hardly_waits() -> None:
    (alone,) = race(0)
    assert alone.puts == 1
    assert per_second(alone) > 200  # 248; without courtesy 267


def test_the_writers_of_a_process_share_its_writes() -> None:
    (alone,) = race(0, writers=64)
    assert per_second(alone) > 12_000  # 15,900
    assert alone.took[-1] < 0.02  # 0.012


def test_a_busy_writer_lets_another_one_in() -> None:
    busy, other = race(0, 0.05)
    assert other.took[len(other.took) // 2] < 0.05  # 0.02; without courtesy 4
    assert other.took[-1] < 0.2  # 0.08
    assert per_second(busy) > 120  # 143


def test_of_many_busy_writers_none_starves() -> None:
    none_starves(8)


def none_starves(processes: int) -> None:
    found = race(*[0.0] * processes)
    assert max(each.took[-1] for each in found) < 0.4  # 0.1, 0.1, 0.2
    fair = per_second(*found) / processes
    assert min(map(per_second, found)) > fair / 2
    assert fair * processes > 130  # 158, 179, 200


def test_busy_processes_write_many_appends_at_a_time() -> None:
    found = race(*[0.0] * 8, writers=8)
    assert per_second(*found) > 1000  # 1,370
    assert sum(each.puts for each in found) / 8 < 0.4  # 0.27
    took = sorted(chain(*(each.took for each in found)))
    assert took[len(took) * 99 // 100] < 0.2  # 0.1
    fair = per_second(*found) / 8
    assert min(map(per_second, found)) > fair / 2


def test_among_rivals_a_read_comes_first_instead_of_a_write_that_loses() -> None:
    found = race(*[0.1] * 8)
    assert sum(each.puts for each in found) / 8 < 1.7  # 1.37; from memory alone 3.15
    assert max(each.took[-1] for each in found) < 0.2  # 0.05
