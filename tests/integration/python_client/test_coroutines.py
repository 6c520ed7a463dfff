"""`AsyncClient` on every server: it shares all decisions with `Client`, and not its I/O."""

from __future__ import annotations

import asyncio
from typing import Literal

import pytest

from tailrace.client import (
    AsyncClient,
    BatchLimits,
    ClosedError,
    FencedError,
    NotFoundError,
)

Live = Literal["auto", "sse", "long-poll"]
JSON = "application/json"
LIMITS = BatchLimits(linger=0.001, bytes=500, messages=7, in_flight=4)


async def test_whole_streams(url: str, name: str) -> None:
    async with AsyncClient(url) as client:
        stream = client.stream(name)
        assert (await stream.create(content_type=JSON)).created
        offset = (await stream.append({"a": 1})).next_offset
        await stream.append_many([2, [3]])
        assert (await stream.read()).json() == [{"a": 1}, 2, [3]]
        assert [item async for item in stream.items(offset)] == [2, [3]]
        assert (await stream.read(last=1)).json() == [[3]]
        fork = await stream.fork(f"{name}-fork", at=offset)
        assert (await fork.read()).json() == [{"a": 1}]
        await stream.close()
        assert (await stream.head()).closed
        with pytest.raises(ClosedError):
            await stream.append(4)
        await fork.delete()
        with pytest.raises(NotFoundError):
            await fork.read()


@pytest.mark.parametrize("live", ["auto", "sse", "long-poll"])
async def test_tails(url: str, name: str, live: Live) -> None:
    async with AsyncClient(url) as client:
        stream = client.stream(name, content_type=JSON)
        await stream.create(body=[0])

        async def follow() -> list[int]:
            async with stream.tail("-1", live=live) as tail:
                return [number async for item in tail.items() for number in item]

        followers = [asyncio.create_task(follow()) for _ in range(3)]
        for number in (1, 2, 3):
            await asyncio.sleep(0.02)
            await stream.append([number])
        await stream.append([4], close=True)
        assert await asyncio.gather(*followers) == [[0, 1, 2, 3, 4]] * 3


async def test_a_tail_can_be_left(url: str, name: str) -> None:
    async with AsyncClient(url) as client:
        stream = client.stream(name, content_type=JSON)
        await stream.create(body=b"[1, 2]")
        async with stream.tail("-1") as tail:
            async for chunk in tail:
                assert chunk.json() == [1, 2]
                break

        async def follow() -> list[int]:
            async with stream.tail(tail.offset) as rest:
                return [item async for item in rest.items()]

        waiting = asyncio.create_task(follow())
        await asyncio.sleep(0.1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_producers(url: str, name: str) -> None:
    async with AsyncClient(url) as client:
        stream = client.stream(name)
        await stream.create(content_type=JSON)
        async with stream.producer("p", limits=LIMITS) as producer:
            outcomes = [await producer.append(number) for number in range(300)]
            await producer.flush()
            assert all(outcome.done() for outcome in outcomes)
            async with stream.producer("p") as later:
                assert not (await (await later.append("later"))).duplicate
            with pytest.raises(FencedError):
                await (await producer.append("zombie"))
            await producer.stop()
        assert (await stream.read()).json() == [*range(300), "later"]
        closing = stream.producer(limits=LIMITS)
        await closing.append("end")
        assert (await closing.close_stream()).closed
        assert (await stream.read(last=1)).json() == ["end"]


async def test_a_producer_waits_while_too_much_is_under_way(url: str, name: str) -> None:
    limits = BatchLimits(bytes=1000, in_flight=2, buffered_bytes=4000)
    async with AsyncClient(url) as client:
        stream = client.stream(name, content_type="text/plain")
        await stream.create()
        async with stream.producer(limits=limits) as producer:
            most = 0
            for _ in range(200):
                await producer.append("x" * 99)
                most = max(most, producer._core.buffered)
        assert most <= 4100
        assert len((await stream.read()).body) == 200 * 99
