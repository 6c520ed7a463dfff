"""The actors of a world, and the mixes of them that are tried."""

from __future__ import annotations

import asyncio
from typing import Any

from devtools.dynamodb_simulator.network import Faults
from devtools.linearizability.checker import Acknowledged, Duplicate, Outcome, Rejected, Unknown
from tailrace.errors import StreamClosed, StreamNotFound
from tailrace.log.create import ForkFrom
from tailrace.log.offsets import NOW, Position, parse
from tailrace.log.state import Producer
from tests.integration.simulation.archivist import Archivist
from tests.integration.simulation.world import BEGIN, NOT_NOW, Client, Mix

STEPS = 12
ATTEMPTS = 4
"""How often a producer sends the same append before it gives up and begins a new epoch."""
CRASHES = 0.25
"""How often an archivist is killed at its work."""
FORKS = ("f1", "f2", "f3")


class Writer:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._chance = client.chance
        self._producer = "shared" if self._chance.random() < 0.5 else client.name
        """Of two producers with one name, the one with the later epoch fences the other off."""
        self._next: dict[str, tuple[int, int]] = {}

    async def run(self) -> None:
        for _ in range(STEPS):
            await self._client.pause()
            path = self._client.path()
            match await self.append(path):
                case Rejected(StreamNotFound.code) if path not in FORKS:
                    await self._create(path)
                case Rejected(StreamClosed.code) if self._chance.random() < 0.5:
                    await self._client.delete(path)

    async def _create(self, path: str) -> None:
        more: dict[str, Any] = {}
        if self._chance.random() < 0.3:
            more["body"] = self._client.body()
        if self._chance.random() < 0.05:
            more["closed"] = True
        await self._client.create(path, **more)

    async def append(self, path: str) -> Outcome:
        client, body = self._client, self._client.body()
        dice = self._chance.random()
        if dice < 0.4:
            return await self._produce(path, body)
        if dice < 0.5:
            # Everybody counts together, roughly, and whoever is behind is rejected.
            number = len(client.world.sequences) + self._chance.randrange(3)
            return await client.append(path, body, seq=f"{number:04d}")
        if dice < 0.55:
            place = parse(client.world.offsets[path][-1])
            return await client.append(path, body, expected=place)
        if dice < 0.57:
            return await client.close(path)
        return await client.append(path, body, close=dice < 0.59)

    async def _produce(self, path: str, body: bytes) -> Outcome:
        known = self._next.pop(path) if path in self._next else None
        epoch, seq = known or (next(self._client.world.epochs), 0)
        outcome = await self._send(path, body, Producer(self._producer, epoch, seq))
        if isinstance(outcome, Acknowledged | Duplicate):
            self._next[path] = (epoch, seq + 1)
        return outcome

    async def _send(self, path: str, body: bytes, producer: Producer) -> Outcome:
        """Sent again, now and then twice at once, until it is known what came of it."""
        for _ in range(ATTEMPTS):
            copies = 1 + (self._chance.random() < 0.15)
            sent = (self._client.append(path, body, producer) for _ in range(copies))
            outcome = (await asyncio.gather(*sent))[-1]
            if not isinstance(outcome, Unknown) and outcome not in NOT_NOW:
                return outcome
            await self._client.pause()
        return Unknown()


async def writer(client: Client) -> None:
    """Appends in every way there is, and creates what is missing."""
    await Writer(client).run()


async def crowd(client: Client) -> None:
    """Writers who come to one process and one stream at the same moment, some in a row: their
    appends share slots, unless they are large."""
    world, chance = client.world, client.chance
    for step in range(STEPS // 3):
        await client.pause()
        path, process = client.path(), chance.choice(world.processes)
        together = [Client(world, f"{client.name}.{step}.{each}", [process]) for each in range(8)]
        if path not in FORKS:
            await together[0].create(path)
        row = next(world.epochs)
        sent = [
            each.append(path, each.body(), Producer(f"{client.name}.{step}", row, seq))
            for seq, each in enumerate(together[:3])
        ]
        await asyncio.gather(
            *sent, *(Writer(each).append(path) for each in together[3:]), relay(client, path)
        )


async def relay(client: Client, path: str) -> None:
    """A producer whose appends follow each other at once, at one process and then at another."""
    epoch, name = next(client.world.epochs), f"relay {client.name}"
    for seq in range(4):
        outcome = await client.append(path, client.body(), Producer(name, epoch, seq))
        if not isinstance(outcome, Acknowledged):
            return


async def reader(client: Client) -> None:
    """From the start, from anywhere that somebody was told of, or only where the end is."""
    for _ in range(STEPS):
        await client.pause()
        path = client.path()
        dice = client.chance.random()
        if dice < 0.2:
            await client.find(path)
        elif dice < 0.4:
            await client.read(path, Position(NOW))
        elif dice < 0.7:
            await client.read_all(path)
        else:
            known = client.chance.choice(client.world.offsets[path])
            await client.read_all(path, parse(known))


async def follower(client: Client) -> None:
    """Along one path, and on as it grows."""
    path, position = client.path(), BEGIN
    for _ in range(STEPS):
        view = await client.read(path, position, client.chance.choice((0.2, 2.0)))
        position = Position(NOW)
        if view is None:
            await client.pause()
        elif not view.closed:
            position = parse(view.next_offset)


async def deleter(client: Client) -> None:
    """Deletes, and mostly creates the same path again."""
    for _ in range(STEPS // 2):
        await client.pause()
        path = client.path()
        await client.delete(path)
        if client.chance.random() < 0.7:
            await client.pause()
            await client.create(path)


async def forker(client: Client) -> None:
    """Forks anything, forks included; deletes sources and forks in any order."""
    chance, paths = client.chance, [*client.world.mix.paths]
    for _ in range(STEPS):
        await client.pause()
        path = chance.choice([path for path in paths if path in FORKS])
        source = chance.choice([other for other in paths if other != path])
        dice = chance.random()
        if dice < 0.3:
            await client.delete(source if dice < 0.15 else path)
            continue
        fork = ForkFrom(source)
        if dice < 0.7:
            slot, offset, epoch = parse(chance.choice(client.world.offsets[source]))
            fork = ForkFrom(source, slot, chance.choice((0, 0, 1, 3)), offset, epoch)
        if await client.create(path, body=client.body() if dice > 0.9 else b"", fork=fork):
            await client.read_all(path)
        elif source not in FORKS:
            await client.create(source, body=client.body())


async def sweeper(client: Client) -> None:
    for _ in range(STEPS // 4):
        await client.pause()
        await client.pause()
        await client.sweep()


async def archivist(client: Client) -> None:
    """Moves entries to segments; dies between any two calls, and another one goes on."""
    world, chance = client.world, client.chance
    working = Archivist(world)
    for _ in range(STEPS):
        await client.pause()
        for path in chance.sample([*world.mix.paths], 2):
            work = asyncio.ensure_future(working.work(path))
            patience = chance.random() * 0.2 if chance.random() < CRASHES else None
            await asyncio.wait((work,), timeout=patience)
            if work.done():
                work.result()
            else:
                working.kill()
                working = Archivist(world)


async def storm(client: Client) -> None:
    """Now and then hardly anything gets through, for longer than a call is tried."""
    network = client.world.table.network
    for _ in range(STEPS // 4):
        await client.pause()
        network.faults = Faults.some(0.15)
        await asyncio.sleep(client.chance.random() * 2)
        network.faults = client.world.mix.faults


async def killer(client: Client) -> None:
    for _ in range(STEPS // 3):
        await client.pause()
        await client.pause()
        await client.world.kill()


PLAIN: dict[str, dict[str, Any]] = {"a": {}, "b": {}}
FORKED = PLAIN | {fork: {} for fork in FORKS}
EXPIRING: dict[str, dict[str, Any]] = {
    "a": {"ttl": 1},
    "b": {"ttl": 4},
    "c": {"lifetime": 3000},
    "f1": {},
}
MILD = Faults.some(0.01)
LONG = (0.05, 1.0, 59.0, 150.0)
"""Up to and beyond the time for which a tail is trusted."""

MIXES = {
    "calm": Mix(
        cast=((writer, 3), (crowd, 1), (reader, 2), (follower, 2)),
        paths=PLAIN,
    ),
    "faulty": Mix(
        cast=(
            (writer, 3),
            (crowd, 1),
            (reader, 2),
            (follower, 1),
            (deleter, 1),
            (sweeper, 1),
            (storm, 1),
        ),
        paths=PLAIN,
        faults=Faults.some(0.03),
        impatience=0.05,
    ),
    "crashing": Mix(
        cast=((writer, 3), (crowd, 1), (reader, 2), (follower, 1), (deleter, 1), (killer, 1)),
        paths=PLAIN,
        faults=MILD,
        large=0.2,
    ),
    "forks": Mix(
        cast=((writer, 2), (crowd, 1), (reader, 2), (forker, 3), (sweeper, 1)),
        paths=FORKED,
        faults=MILD,
        pauses=(0.02, 0.1, 0.5, 60.0),
        latency=(0.0005, 0.1),
    ),
    "deletes": Mix(
        cast=((writer, 3), (crowd, 1), (reader, 3), (follower, 1), (deleter, 2), (sweeper, 1)),
        paths=PLAIN,
        faults=MILD,
        pauses=(0.02, 0.05, 0.5, 150.0),
        page_bytes=700,
    ),
    "expiry": Mix(
        cast=((writer, 2), (crowd, 1), (reader, 2), (follower, 2), (forker, 1), (sweeper, 2)),
        paths=EXPIRING,
        faults=Faults.some(0.02),
        impatience=0.03,
        pauses=(0.1, 1.0, 3.0),
    ),
    "retention": Mix(
        cast=((writer, 3), (crowd, 1), (reader, 2), (follower, 1), (archivist, 2)),
        paths=PLAIN,
        faults=MILD,
        impatience=0.05,
        pauses=LONG,
        retention=True,
    ),
    "history": Mix(
        cast=((writer, 3), (crowd, 1), (reader, 3), (follower, 1), (archivist, 2)),
        paths=PLAIN,
        faults=MILD,
        impatience=0.05,
        pauses=LONG,
    ),
    "history-of-forks": Mix(
        cast=((writer, 2), (crowd, 1), (reader, 2), (forker, 2), (archivist, 2), (sweeper, 1)),
        paths=FORKED,
        faults=MILD,
        pauses=LONG,
        large=0.15,
    ),
    "tiny-pages": Mix(
        cast=(
            (writer, 2),
            (crowd, 1),
            (reader, 2),
            (forker, 1),
            (deleter, 1),
            (archivist, 1),
            (sweeper, 1),
        ),
        paths=FORKED,
        faults=MILD,
        pauses=LONG,
        page_bytes=700,
        retention=True,
    ),
}
