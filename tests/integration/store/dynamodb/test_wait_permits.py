"""Permits to wait for streams that do not exist: bounded for each client and in sum."""

from __future__ import annotations

import asyncio

import pytest

from tailrace.clock import system_clock
from tailrace.errors import TooManyRequests
from tailrace.limits import MISSING_WAITS_SHARE
from tailrace.protocols.durable_streams.missing import MissingStreams
from tailrace.store.dynamodb.wait_permits import MARGIN_SECONDS, WaitPermits
from tests.integration.store.dynamodb.conftest import Process, Start

TOTAL = 12
SHARE = TOTAL // MISSING_WAITS_SHARE


class Time:
    def __init__(self) -> None:
        self.now = system_clock()

    def __call__(self) -> int:
        return self.now


async def test_both_bounds_hold_whatever_comes_at_once(start: Start) -> None:
    functions = [WaitPermits((await start()).store, TOTAL, system_clock) for _ in range(3)]
    of_one = await asyncio.gather(*(each.acquire("one", 60) for each in functions for _ in "abcd"))
    assert len({each for each in of_one if each}) <= SHARE
    while await functions[0].acquire("one", 60):
        pass
    clients = [f"client {number}" for number in range(8 * TOTAL)]
    held = [permit for each in clients if (permit := await functions[1].acquire(each, 60))]
    assert len(held) == TOTAL - SHARE
    assert len(await (await start()).items("W")) == TOTAL


async def test_a_released_permit_is_free(process: Process) -> None:
    permits = WaitPermits(process.store, 1, system_clock)
    permit = await permits.acquire("one", 60)
    assert permit is not None
    assert await permits.acquire("one", 60) is None
    await permits.release(permit)
    again = await permits.acquire("two", 60)
    assert again is not None
    await permits.release(permit)  # It is not its own any more.
    assert await permits.acquire("one", 60) is None


async def test_the_permit_of_a_process_that_died_expires(process: Process) -> None:
    clock = Time()
    permits = WaitPermits(process.store, 1, clock)
    assert await permits.acquire("one", 60)
    clock.now += (60 + MARGIN_SECONDS) * 1000 - 1
    assert await permits.acquire("two", 60) is None
    clock.now += 1
    assert await permits.acquire("two", 60)


async def test_a_wait_costs_one_query_and_two_writes(process: Process) -> None:
    permits = WaitPermits(process.store, 100, system_clock)
    permit = await permits.acquire("one", 60)
    assert permit is not None
    await permits.release(permit)
    calls, written, read = process.spent()
    assert calls == {"Query": 1, "UpdateItem": 1, "DeleteItem": 1}
    assert written <= 2
    assert read <= 1


async def test_waits_of_functions_are_refused_over_the_bounds(process: Process) -> None:
    missing = MissingStreams(process.streams, WaitPermits(process.store, 1, system_clock))
    release = await missing.admit("one", 60)
    with pytest.raises(TooManyRequests):
        await missing.admit("two", 60)
    await release()
    await (await missing.admit("two", 60))()
    assert await process.items("W") == []
