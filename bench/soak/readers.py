"""Live readers that follow a stream, lose their connection, resume and leave."""

from __future__ import annotations

import asyncio
import json
import random
import time
from abc import ABC, abstractmethod

from bench.soak.world import Follower, Ledger, World
from bench.streams import next_offset, read
from devtools.load.client import Client, WrongAnswer
from devtools.load.sse import SseTail

RECENT_APPENDS = 50
FROM_START = 0.05
"""Rare, because this load, and with it the server's memory, grows with the streams."""
FROM_NOW = 0.45
STAY_SECONDS = (2.0, 30.0)
CONNECTION_SECONDS = (0.05, 12.0)
CATCH_UP_SECONDS = 20.0
POLL_SECONDS = 0.5


async def follow(world: World, reader: int, dice: random.Random) -> None:
    """Run one reader after the other until stopped; the last one must catch up completely."""
    mode = (LongPoll, Sse)[reader % 2]
    try:
        while world.reading:
            name = dice.choice(list(world.ledgers))
            visit = mode(world, name, _start(world.ledgers[name], dice), dice)
            await visit.stay(dice.uniform(*STAY_SECONDS))
            world.tally["visits"] += 1
    except (WrongAnswer, ConnectionError, TimeoutError) as error:
        world.fail(f"{mode.__name__} reader: {error!r}")


def _start(ledger: Ledger, dice: random.Random) -> str:
    """Choose a start: the beginning, the tail, or a recent offset."""
    chance = dice.random()
    if chance < FROM_START:
        return "-1"
    recent = [append.offset for append in ledger.appends[-RECENT_APPENDS:] if append.offset]
    return "now" if chance < FROM_START + FROM_NOW or not recent else dice.choice(recent)


class Visit(ABC):
    """A reader of one stream, over any number of connections."""

    def __init__(self, world: World, name: str, start: str, dice: random.Random) -> None:
        self._world = world
        self._name = name
        self._dice = dice
        self._offset = start
        self._follower = Follower(from_start=start == "-1")

    async def stay(self, seconds: float) -> None:
        leave_at = time.monotonic() + seconds
        while time.monotonic() < leave_at and self._world.reading:
            connected = self._dice.uniform(*CONNECTION_SECONDS)
            await self._connection(min(connected, leave_at - time.monotonic()))
            self._world.tally["live connections"] += 1
        if not self._world.reading:
            await self._catch_up()

    @abstractmethod
    async def _connection(self, seconds: float) -> None:
        """Read live for a limited time."""

    async def _catch_up(self) -> None:
        """Read to the end: there are no more writes, so the reader must receive everything."""
        ledger = self._world.ledgers[self._name]
        deadline = time.monotonic() + CATCH_UP_SECONDS
        while not self._follower.has_all(ledger):
            if time.monotonic() > deadline:
                raise WrongAnswer(f"{self._name}: not caught up after {CATCH_UP_SECONDS:.0f} s")
            await self._connection(POLL_SECONDS)

    def _see(self, text: str | bytes, live_since: float) -> None:
        messages = json.loads(text)
        if problem := self._follower.see(messages):
            raise WrongAnswer(f"{self._name} from {self._offset}: {problem}")
        self._world.tally["delivered live"] += len(messages)
        self._world.note_delays(messages, live_since)


class LongPoll(Visit):
    async def _connection(self, seconds: float) -> None:
        client = await self._world.address.connect(Client())
        try:
            async with asyncio.timeout(seconds):
                while True:
                    await self._poll(client)
        except TimeoutError:
            pass
        finally:
            client.transport.abort()

    async def _poll(self, client: Client) -> None:
        since = time.monotonic()
        response = await client.ask(read(self._name, self._offset, "long-poll"), 200, 204)
        if response.status == 200:
            self._see(response.body, since)
        self._offset = next_offset(response)


class Sse(Visit):
    async def _connection(self, seconds: float) -> None:
        tail = SseTail(read(self._name, self._offset, "sse"))
        await self._world.address.connect(tail)
        held: list[str] = []
        since = time.monotonic()
        try:
            async with asyncio.timeout(seconds):
                while (event := await tail.events.get()) is not None:
                    if event.kind == "data":
                        held.append(event.data)
                        continue
                    if event.kind == "refused":
                        raise WrongAnswer(f"{self._name}: {event.data}")
                    # Data counts only with the offset after it: otherwise it will be sent again.
                    for text in held:
                        self._see(text, since)
                    held.clear()
                    self._offset = json.loads(event.data)["streamNextOffset"]
        except TimeoutError:
            pass
        finally:
            tail.transport.abort()
