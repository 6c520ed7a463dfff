"""Exactly once, whatever happens to connections and servers; on other servers in tests/slow."""

from __future__ import annotations

import asyncio
import threading
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devtools.fault_proxy.cutting import CuttingProxy
from devtools.fault_proxy.proxy import FaultProxy
from devtools.server import Server
from tailrace.client import Client
from tests.support.python_client import JSON, LIMITS, QUICK, WEIGHTS, Live, check


@pytest.mark.parametrize("live", ["sse", "long-poll"])
@settings(max_examples=8, deadline=None)
@given(cuts=st.lists(st.integers(1, 3000), min_size=5, max_size=60))
def test_connections_cut_at_any_byte(server: Server, live: Live, cuts: list[int]) -> None:
    async def run() -> None:
        async with CuttingProxy(server.url, iter(cuts)) as proxy:
            await check(server.url, proxy.url, live)

    asyncio.run(run())


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_lost_late_doubled_and_refused_requests(server: Server, seed: int) -> None:
    async def run() -> None:
        proxy = FaultProxy(server.url, seed=seed, weights=WEIGHTS, delay=(0.001, 0.03))
        async with proxy:
            await check(server.url, proxy.url, "long-poll")

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
