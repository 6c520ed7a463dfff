"""Appends to one stream from many processes, as Lambda spreads requests over its environments."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from devtools.dynamodb_simulator.loop import run
from devtools.dynamodb_simulator.table import Handle, MemoryTable
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.settings import Settings
from tailrace.store.dynamodb.chain import LIKELY, PRESUMED_SECONDS, OtherWriters
from tailrace.store.dynamodb.provision import Backend
from tailrace.store.dynamodb.store import DynamoStore
from tailrace.streams import Streams

PLAIN = Append(b"x" * 100, "text/plain")
EACH_WAY = (0.002, 0.003)
APPENDS = 200


class Cost(NamedTuple):
    """Of one append, on average, by processes that have used the stream before."""

    written: float
    """Write units, those of lost attempts included: DynamoDB bills them like any other."""
    read: float
    """Read units."""
    queries: float
    """Reads of the tail, each a round trip before that of the write."""


class Counted:
    """A client that counts its calls. Each of an item or of the tail takes one unit."""

    def __init__(self, client: Handle, calls: Counter[str]) -> None:
        self._client = client
        self._calls = calls

    async def call(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        self._calls[operation] += 1
        return await self._client.call(operation, request)

    async def close(self) -> None:
        await self._client.close()


def spread(processes: int, per_second: float, *, regular: bool = False) -> Cost:
    """Appends at random times, or regular ones, each by a process chosen at random."""

    async def main() -> Cost:
        table = MemoryTable(random.Random(3), latency=EACH_WAY, lag=0.02)
        calls: Counter[str] = Counter()
        group = []
        for _ in range(processes):
            store = DynamoStore(Settings(), backend=Backend(Counted(table.connect(), calls), None))
            await store.open()
            group.append(Streams(store, Settings()))
        await group[0].create("a", Create(content_type="text/plain"))

        async def appends(number: int) -> None:
            sent = []
            for _ in range(number):
                pause = 1 / per_second if regular else random.expovariate(per_second)
                await asyncio.sleep(pause)
                sent.append(asyncio.ensure_future(random.choice(group).append("a", PLAIN)))
            await asyncio.gather(*sent)

        await appends(20 * processes)
        calls.clear()
        await appends(APPENDS)
        reads = calls["Query"] + calls["GetItem"]
        return Cost(calls["PutItem"] / APPENDS, reads / APPENDS, calls["Query"] / APPENDS)

    return run(9, main, stalls=0.0, seconds=1e6)


@pytest.mark.parametrize("regular", [True, False])
@pytest.mark.parametrize("per_second", [0.05, 0.1, 1, 10])
def test_a_single_process_needs_one_round_trip(per_second: float, regular: bool) -> None:
    found = spread(1, per_second, regular=regular)
    assert found.written <= 1
    assert found.queries <= (0 if regular else 0.1)


@pytest.mark.parametrize("per_second", [0.1, 1, 10])
@pytest.mark.parametrize("processes", [2, 5, 20])
def test_among_many_processes_hardly_any_append_loses(processes: int, per_second: float) -> None:
    found = spread(processes, per_second)
    # With the tail trusted for a minute: 1.0 to 2.3.
    assert found.written < 1.15
    # Those that come more than a minute after their process's last one read the name, too.
    assert found.read < (1.1 if processes / per_second < 10 else 2)
    assert found.queries <= 1.05


def test_experience_replaces_what_was_presumed() -> None:
    others = OtherWriters()
    assert others.expected(PRESUMED_SECONDS) == 1
    for number in range(40):
        others.appended(number, 10.0 * number)
    assert others.expected(59) < LIKELY, "alone"
    for number in range(1, 4):
        others.appended(39 + 5 * number, 390 + 10.0 * number)
    assert others.expected(10) > LIKELY, "no longer alone"


def test_a_pause_between_two_bursts_says_nothing() -> None:
    others = OtherWriters()
    for number in range(0, 60, 3):
        others.appended(number, number / 10)
    before = others.expected(1)
    others.appended(2000, 5000)
    assert others.expected(1) == before
