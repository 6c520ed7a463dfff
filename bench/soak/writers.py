"""Writers of single messages and batches, and idempotent producers that lose connections."""

from __future__ import annotations

import asyncio
import json
import random
import time

from bench.soak.world import Acknowledged, World
from bench.streams import append, next_offset
from devtools.load.client import Client, WrongAnswer
from devtools.load.wire import Response

SIZES = (40, 100, 300, 20_000, 300_000)
SIZE_WEIGHTS = (300, 500, 190, 9, 1)
ABORTED = 0.05
REPEATED = 0.10
NEW_EPOCH = 0.01


async def write(world: World, writer: int, per_second: float, dice: random.Random) -> None:
    """Run one writer, on all streams, until stopped."""
    styles = (Single, Batch, Producer)
    style = styles[writer % len(styles)](world, writer, dice)
    try:
        while world.writing:
            await asyncio.sleep(dice.expovariate(per_second))
            await style.append(dice.choice(list(world.ledgers)))
    except (WrongAnswer, ConnectionError, TimeoutError) as error:
        world.fail(f"writer {writer}: {error!r}")
    finally:
        style.close()


class Single:
    """One message per request, without producer headers."""

    def __init__(self, world: World, writer: int, dice: random.Random) -> None:
        self._world = world
        self._writer = writer
        self._dice = dice
        self._client: Client | None = None

    async def append(self, name: str) -> None:
        first, body = self._messages(name, 1)
        response = await self._ask(append(name, body), 204)
        self._acknowledge(name, first, 1, next_offset(response))

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _messages(self, name: str, count: int) -> tuple[int, bytes]:
        first = self._world.ledgers[name].reserve(self._writer, count)
        [size] = self._dice.choices(SIZES, SIZE_WEIGHTS)
        now = time.monotonic()
        messages = [
            {"w": self._writer, "i": first + at, "t": now, "text": "x" * size}
            for at in range(count)
        ]
        return first, json.dumps(messages).encode()

    async def _connected(self) -> Client:
        if self._client is None or self._client.lost:
            self._client = await self._world.address.connect(Client())
        return self._client

    async def _ask(self, request: bytes, *expected: int) -> Response:
        return await (await self._connected()).ask(request, *expected)

    def _acknowledge(self, name: str, first: int, count: int, offset: str | None) -> None:
        acknowledged = Acknowledged(self._writer, first, count, offset)
        self._world.ledgers[name].appends.append(acknowledged)
        self._world.tally["appends"] += 1
        self._world.tally["messages"] += count


class Batch(Single):
    """Several messages per request."""

    async def append(self, name: str) -> None:
        count = self._dice.randint(2, 10)
        first, body = self._messages(name, count)
        response = await self._ask(append(name, body), 204)
        self._acknowledge(name, first, count, next_offset(response))


class Producer(Single):
    """Numbered requests, which can be repeated after a lost response."""

    def __init__(self, world: World, writer: int, dice: random.Random) -> None:
        super().__init__(world, writer, dice)
        self._next: dict[str, tuple[int, int]] = {}

    async def append(self, name: str) -> None:
        epoch, sequence = self._next.get(name, (0, 0))
        if sequence and self._dice.random() < NEW_EPOCH:
            epoch, sequence = epoch + 1, 0
        count = self._dice.randint(1, 3)
        first, body = self._messages(name, count)
        request = append(
            name,
            body,
            Producer_Id=f"producer-{self._writer}",
            Producer_Epoch=str(epoch),
            Producer_Seq=str(sequence),
        )
        if self._dice.random() < ABORTED:
            await self._send_and_vanish(request)
            response = await self._ask(request, 200, 204)
            self._world.tally["retries"] += 1
        else:
            response = await self._ask(request, 200)
        known = next_offset(response) if response.status == 200 else None
        self._acknowledge(name, first, count, known)
        self._next[name] = (epoch, sequence + 1)
        if self._dice.random() < REPEATED:
            await self._ask(request, 204)
            self._world.tally["duplicates"] += 1

    async def _send_and_vanish(self, request: bytes) -> None:
        client = await self._connected()
        client.transport.write(request)
        await asyncio.sleep(self._dice.uniform(0, 0.003))
        client.transport.abort()
        self._client = None
