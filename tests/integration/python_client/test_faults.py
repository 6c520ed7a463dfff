"""Exactly once, whatever happens to connections and servers."""

from __future__ import annotations

import asyncio
import threading
from typing import Literal
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devtools.fault_proxy.cutting import CuttingProxy
from devtools.fault_proxy.proxy import Action, FaultProxy
from devtools.server import Server
from tailrace.client import AsyncClient, BatchLimits, Client, RetryPolicy

JSON = "application/json"
QUICK = RetryPolicy(attempts=None, first_pause=0.002, longest_pause=0.05)
LIMITS = BatchLimits(linger=0.0005, bytes=300, messages=9, in_flight=4)
COUNT = 150

WEIGHTS = {
    Action.PASS: 55,
    Action.DROP_REQUEST: 6,
    Action.DROP_ANSWER: 8,
    Action.TRUNCATE_ANSWER: 6,
    Action.DELAY_REQUEST: 5,
    Action.DELAY_ANSWER: 5,
    Action.DUPLICATE: 6,
    Action.LATE: 5,
    Action.THROTTLE: 2,
    Action.FAIL_BEFORE: 1,
    Action.FAIL_AFTER: 1,
}

Live = Literal["sse", "long-poll"]


async def check(server_url: str, proxy_url: str, live: Live) -> None:
    """Produce and follow through a proxy, and compare what arrived."""
    name = f"faults/{uuid4().hex}"
    async with (
        AsyncClient(server_url) as direct,
        AsyncClient(proxy_url, retries=QUICK, live_retries=QUICK) as client,
    ):
        await direct.stream(name).create(content_type=JSON)
        stream = client.stream(name, content_type=JSON)

        async def follow() -> list[int]:
            async with stream.tail("-1", live=live) as tail:
                return [item async for item in tail.items()]

        following = asyncio.create_task(follow())
        async with stream.producer(limits=LIMITS, retries=QUICK) as producer:
            for number in range(COUNT):
                await producer.append(number)
                if number % 10 == 0:
                    await asyncio.sleep(0.001)
            await producer.close_stream()
        wanted = list(range(COUNT))
        assert (await direct.stream(name).read()).json() == wanted
        assert await following == wanted


@pytest.mark.parametrize("live", ["sse", "long-poll"])
@settings(max_examples=8, deadline=None)
@given(cuts=st.lists(st.integers(1, 3000), min_size=5, max_size=60))
def test_connections_cut_at_any_byte(url: str, live: Live, cuts: list[int]) -> None:
    async def run() -> None:
        async with CuttingProxy(url, iter(cuts)) as proxy:
            await check(url, proxy.url, live)

    asyncio.run(run())


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_lost_late_doubled_and_refused_requests(url: str, seed: int) -> None:
    async def run() -> None:
        proxy = FaultProxy(url, seed=seed, weights=WEIGHTS, delay=(0.001, 0.03))
        async with proxy:
            await check(url, proxy.url, "long-poll")

    asyncio.run(run())


def test_a_server_that_is_killed_and_restarted(own_server: Server) -> None:
    read: list[int] = []
    with Client(own_server.url, retries=QUICK, live_retries=QUICK) as client:
        stream = client.stream(f"faults/{uuid4().hex}")
        stream.create(content_type=JSON)

        def follow(live: Live) -> None:
            read.extend(stream.tail("-1", live=live).items())

        readers = [
            threading.Thread(target=follow, args=("sse",)),
            threading.Thread(target=follow, args=("long-poll",)),
        ]
        for reader in readers:
            reader.start()
        with stream.producer(limits=LIMITS, retries=QUICK) as producer:
            for number in range(600):
                outcome = producer.append(number)
                if number % 200 == 100:
                    outcome.result()
                    own_server.kill()
                    producer.append(-number)
                    own_server.start()
            producer.close_stream()
        for reader in readers:
            reader.join()
        wanted = stream.read().json()
    numbers = [number for number in wanted if number >= 0]
    assert (numbers, len(wanted)) == (list(range(600)), 603)
    assert sorted(read) == sorted(wanted * 2)
