from __future__ import annotations

import asyncio
import time

import pytest

from tailrace.web import watchdog
from tailrace.web.watchdog import Watchdog


async def test_a_block_is_measured_by_cpu_time() -> None:
    async with Watchdog() as dog:
        await asyncio.sleep(0)
        end = time.thread_time() + 3 * watchdog.INTERVAL
        while time.thread_time() < end:
            pass
        async with asyncio.timeout(120):
            while not dog.longest_block():  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.001)
        longest = dog.longest_block()
        assert longest is not None
        assert longest >= watchdog.INTERVAL


async def test_waiting_without_cpu_time_is_no_block() -> None:
    async with Watchdog() as dog:
        await asyncio.sleep(0)
        time.sleep(0.5)  # noqa: ASYNC251 - makes the loop late without CPU time
        await asyncio.sleep(2 * watchdog.INTERVAL)
        longest = dog.longest_block()
        assert longest is not None
        assert longest < 0.4


async def test_the_longest_of_the_last_minute_counts() -> None:
    async with Watchdog() as dog:
        now = time.monotonic()
        for ago, block in ((70, 5.0), (50, 0.3), (40, 0.2), (30, 0.25), (1, 0.01)):
            dog.record(now - ago, block, block + 1)
        assert dog.longest_block() == 0.3
    assert dog.longest_block() is None


def test_a_block_is_the_smaller_of_lateness_and_cpu_time(caplog: pytest.LogCaptureFixture) -> None:
    dog = Watchdog()
    dog.record(0, late=5, used=0.05)
    dog.record(1, late=0.05, used=5)
    dog.record(2, late=-0.001, used=0.01)
    assert not caplog.messages
    for second in range(15):
        dog.record(3 + second, late=0.25, used=0.3)
    assert caplog.messages == ["the event loop was blocked for 250 ms"] * 2
