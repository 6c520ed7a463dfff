"""Exactly once through a proxy: a producer and a tail, and what has to arrive."""

from __future__ import annotations

import asyncio
from typing import Literal
from uuid import uuid4

from devtools.fault_proxy.proxy import Action
from tailrace.client import AsyncClient, BatchLimits, RetryPolicy

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
        stored = (await direct.stream(name).read()).json()
        assert stored == wanted, f"stored: {stored}"
        followed = await following
        assert followed == wanted, f"followed: {followed}"
