"""Short-lived streams: deleted, expired, abandoned, recreated, and deleted while they are read."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

from bench.soak.world import World
from bench.streams import Streams, message, read, streams_at
from devtools.load.client import WrongAnswer
from devtools.load.sse import SseTail

TTL_SECONDS = 2
AFTER_EXPIRY_SECONDS = TTL_SECONDS + 0.6
ABANDON_AT_ONCE = 10


async def churn(world: World, worker: int, dice: random.Random) -> None:
    lives = (_deleted, _expired, _abandoned, _vanishing)
    try:
        async with streams_at(world.address) as streams:
            for number in count():
                if not world.writing:
                    return
                life = dice.choice(lives)
                world.tally["churned streams"] += await life(streams, f"churn-{worker}-{number}")
                await asyncio.sleep(dice.uniform(0.02, 0.2))
    except (WrongAnswer, ConnectionError, TimeoutError) as error:
        world.fail(f"churn {worker}: {error!r}")


async def _deleted(streams: Streams, name: str) -> int:
    """A reused path starts empty."""
    for _ in range(2):
        await streams.create(name)
        await _fill(streams, name, 3)
        await streams.delete(name)
        await streams.expect_missing(name)
    return 2


async def _expired(streams: Streams, name: str) -> int:
    async with _unless_late():
        await streams.create(name, Stream_TTL=str(TTL_SECONDS))
        await _fill(streams, name, 5)
    await asyncio.sleep(AFTER_EXPIRY_SECONDS)
    await streams.expect_missing(name)
    return 1


async def _abandoned(streams: Streams, name: str) -> int:
    """Streams that are never requested again, so only the server's sweep can delete them."""
    for number in range(ABANDON_AT_ONCE):
        async with _unless_late():
            await streams.create(f"{name}-{number}", Stream_TTL=str(TTL_SECONDS))
            await streams.append(f"{name}-{number}", message(0, 0))
    return ABANDON_AT_ONCE


@asynccontextmanager
async def _unless_late() -> AsyncIterator[None]:
    """Tolerate a missing stream: on a very busy machine it may have expired already."""
    began = time.monotonic()
    try:
        yield
    except WrongAnswer:
        if time.monotonic() < began + TTL_SECONDS:
            raise


async def _vanishing(streams: Streams, name: str) -> int:
    """Streams that are deleted while clients read them."""
    await streams.create(name)
    tails = [SseTail(read(name, "-1", "sse")) for _ in range(3)]
    await streams.address.connect_all(tails)
    await _fill(streams, name, 1)
    await streams.delete(name)
    await streams.expect_missing(name)
    for tail in tails:
        tail.transport.abort()
    return 1


async def _fill(streams: Streams, name: str, messages: int) -> None:
    for index in range(messages):
        await streams.append(name, message(0, index))
    found = [item["i"] for item in await streams.messages(name)]
    if found != list(range(messages)):
        raise WrongAnswer(f"{name} holds {found}")
