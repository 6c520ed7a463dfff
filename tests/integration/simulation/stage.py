"""A stage for small plays: two processes, and the one stream that both know."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from devtools.dynamodb_simulator.loop import run
from devtools.dynamodb_simulator.network import CALM, Faults, Network
from devtools.dynamodb_simulator.table import Handle
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.log.state import Producer
from tailrace.streams import Appended, Streams
from tests.integration.simulation.world import TEXT, Mix, Process, World

SEEDS = 5
STEPS = 20_000

Story = Callable[["Stage"], Coroutine[Any, Any, None]]


class Fateful:
    """The client of a process, of whose calls some meet a fault on the first attempt."""

    def __init__(self, handle: Handle, network: Network) -> None:
        self.number = handle._line.client
        self.fate = defaultdict[str, list[Faults]](list)
        """By operation and kind of item, such as `PutItem C`: what the next calls will meet."""
        self.blind = False
        """Whether queries do not see the forks yet that have just been made."""
        self._handle = handle
        self._network = network

    async def call(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        kind = f"{operation} {_place(request)}"
        if self.blind and kind == "Query E":
            return {"Items": []}
        if not self.fate[kind]:
            return await self._handle.call(operation, request)
        self._network.faults = self.fate[kind].pop(0)
        calling = asyncio.ensure_future(self._handle.call(operation, request))
        await asyncio.sleep(0)
        self._network.faults = CALM
        return await calling

    async def close(self) -> None:
        await self._handle.close()


def _place(request: Mapping[str, Any]) -> str:
    """The first letter of the partition, which says what kind of item it is about."""
    if "TransactItems" in request:
        return ", ".join(_place(part) for one in request["TransactItems"] for part in one.values())
    if "ExpressionAttributeValues" in request and "Key" not in request:
        return str(request["ExpressionAttributeValues"].get(":p", {"S": "?"})["S"][0])
    key = request.get("Key") or request.get("Item") or {"p": {"S": "?"}}
    return str(key["p"]["S"][0])


class Stage:
    """Two processes, one table, and the stream `s`."""

    def __init__(self, world: World, warm: Process, other: Process) -> None:
        self.world = world
        self.client = Fateful(warm.client, world.table.network)
        warm.store._table._client = self.client
        self.warm = warm.streams
        self.other = other.streams
        self._seen = 0

    def calls(self) -> list[str]:
        """The calls of `warm` to the table since the last call of this."""
        events = [e for e in self.world.table.trace() if e.client == self.client.number]
        new, self._seen = events[self._seen :], len(events)
        return [event.operation for event in new]


def play(story: Story, *, ttl: int | None = None, seeds: int = SEEDS) -> None:
    async def main(seed: int) -> None:
        world = World(Mix(cast=(), paths={}), seed)
        warm, other = [await world.start(open_streams=100) for _ in range(2)]
        stage = Stage(world, warm, other)
        await stage.other.create("s", Create(content_type=TEXT, ttl=ttl))
        await append(stage.warm, b"<0>")
        stage.calls()
        await story(stage)

    for seed in range(seeds):
        run(seed, partial(main, seed), steps=STEPS, stalls=0)


async def append(streams: Streams, body: bytes, path: str = "s", **more: Any) -> Appended:
    return await streams.append(path, Append(body, TEXT, **more))


async def produce(streams: Streams, epoch: int, seq: int) -> Appended:
    return await append(streams, b"<%d.%d>" % (epoch, seq), producer=Producer("p", epoch, seq))


async def head(streams: Streams) -> str:
    """The offset at which the stream ends."""
    tail = await streams.find("s")
    return tail.committed.next_offset(tail.stream.config.epoch)


async def content(streams: Streams, path: str = "s") -> bytes:
    views = [await streams.view(path, 0)]
    while not views[-1].up_to_date:
        views.append(await streams.view(path, views[-1].end))
    return b"".join(body for view in views for body in view.bodies)
