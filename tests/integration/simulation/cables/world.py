"""A world of short-lived functions behind API Gateway: any may be killed between two calls.

A seed decides everything: how long calls take, which invocations are throttled, repeated or late,
which functions are killed and when, and in which order the table's stream has its records.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from devtools.dynamodb_simulator.bucket import MemoryBucket
from devtools.dynamodb_simulator.network import CALM, Faults
from devtools.dynamodb_simulator.table import MemoryTable
from tailrace.auth.authorizer import Authorizer
from tailrace.clock import system_clock
from tailrace.errors import TailraceError
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.protocols.action_cable.api_gateway.broadcaster import Broadcaster
from tailrace.protocols.action_cable.api_gateway.command_handler import CommandHandler
from tailrace.protocols.action_cable.api_gateway.delivery import Deliveries
from tailrace.protocols.action_cable.api_gateway.gateway_api import SendResult
from tailrace.protocols.action_cable.api_gateway.heartbeat import Heartbeat
from tailrace.protocols.action_cable.api_gateway.items import ConnectionRecord
from tailrace.protocols.action_cable.core.channels import Channels
from tailrace.protocols.action_cable.core.commands import parse
from tailrace.settings import Settings
from tailrace.store.dynamodb.provision import Backend
from tailrace.store.dynamodb.store import DynamoStore
from tailrace.streams import Streams
from tests.support.cable import pubsub

T = TypeVar("T")

TABLE = "tailrace"
STREAM = "a"
JSON = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chances:
    """The probability of each mishap, for every invocation or frame."""

    killed: float = 0.0
    throttled: float = 0.0
    repeated: float = 0.0
    unheard: float = 0.0
    """The response of an invocation is lost."""
    late: float = 0.0
    """An invocation begins long after its caller has given up."""
    doubtful: float = 0.0
    """The outcome of a frame is uncertain."""
    faults: Faults = CALM
    """Those of calls to the table."""


class Killed(Exception):
    """A function was killed before it returned."""


class Gateway:
    """The connections of clients, and the frames that arrived."""

    def __init__(self, world: World) -> None:
        self.frames: dict[str, list[str]] = {}
        self.open: set[str] = set()
        self.arrived: dict[str, list[float]] = {}
        """When the frames of each connection arrived."""
        self._world = world

    def note(self, connection: str) -> None:
        self.arrived[connection].append(asyncio.get_running_loop().time())

    def connect(self, name: str) -> list[str]:
        self.open.add(name)
        self.frames[name] = []
        self.arrived[name] = []
        return self.frames[name]

    def drop(self, name: str) -> None:
        self.open.discard(name)


class Sender:
    """The client of the management API of one function."""

    def __init__(self, gateway: Gateway, world: World) -> None:
        self.counts: Counter[str] = Counter()
        self.is_cut = False
        self._gateway = gateway
        self._world = world

    async def send(
        self, connection: str, frames: Sequence[str], attempts: int | None = None
    ) -> SendResult:
        del attempts
        chance = self._world.chance
        for frame in frames:
            await self._travel()
            if connection not in self._gateway.open:
                return SendResult.GONE
            if chance.random() < self._world.chances.doubtful:
                if chance.random() < 0.5:
                    self._gateway.frames[connection].append(frame)
                await self._travel()
                return SendResult.DOUBTFUL
            self._gateway.frames[connection].append(frame)
            self._gateway.note(connection)
            await self._travel()
        return SendResult.OK

    async def end(self, connection: str) -> None:
        await self._travel()
        self._gateway.drop(connection)
        await self._travel()

    async def close(self) -> None:
        pass

    async def _travel(self) -> None:
        """On the way there or back; a function that was killed sends and hears nothing more."""
        await asyncio.sleep(self._world.chance.random() * 0.02)
        if self.is_cut:
            await asyncio.get_running_loop().create_future()


class Process:
    """A function's environment: a store with its own memory, on the shared table."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.client = world.table.connect()
        self.sender = Sender(world.gateway, world)
        self.store = DynamoStore(
            world.settings, backend=Backend(self.client, world.bucket.connect())
        )
        self.death: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def open(self) -> Self:
        world = self._world
        await self.store.open()
        self.streams = Streams(self.store, world.settings)
        self.broadcaster = Broadcaster(self.store.table, self.sender, world.settings, system_clock)
        self.deliveries = Deliveries(self.store, self.broadcaster, system_clock, world.invoke)
        return self

    def command_handler(self, connection: str) -> CommandHandler:
        channels = Channels(Authorizer(self._world.settings), self._world.settings)
        return CommandHandler(self.broadcaster, self.streams, channels, connection, system_clock())

    def kill(self) -> None:
        if not self.death.done():
            self.client.cut()
            self.sender.is_cut = True
            self.death.set_result(None)


class World:
    def __init__(self, seed: int, chances: Chances) -> None:
        self.chance = random.Random(f"cables {seed}")
        self.chances = chances
        self.settings = Settings(store="dynamodb", table=TABLE, access="open")
        self.table = MemoryTable(self.chance, name=TABLE)
        self.bucket = MemoryBucket(self.chance)
        self.gateway = Gateway(self)
        self.invocations: Counter[str] = Counter()
        self.shares: dict[int, int] = {}
        """How many connections each part of the heartbeat had at last."""
        self._connections = itertools.count()
        self._tasks: list[asyncio.Future[None]] = []
        self._seen = 0

    # Functions

    async def run(self, work: Callable[[Process], Coroutine[Any, Any, T]]) -> T:
        """Run something in a function of its own, which may be killed."""
        process = await Process(self).open()
        if self.chance.random() < self.chances.killed:
            delay = self.chance.choice((0.05, 0.3, 3.0)) * self.chance.random()
            asyncio.get_running_loop().call_later(delay, process.kill)
        task = asyncio.ensure_future(work(process))
        await asyncio.wait((task, process.death), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            process.death.cancel()
            return task.result()
        raise Killed

    async def invoke(self, event: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Invoke a function for a part of a delivery, as Lambda does."""
        event = json.loads(json.dumps(event))
        dice = self.chance.random
        if dice() < self.chances.throttled:
            self.invocations["throttled"] += 1
            return None
        if dice() < self.chances.late:
            self.invocations["late"] += 1
            self._tasks.append(asyncio.ensure_future(self._serve_late(event)))
            await asyncio.sleep(dice() * 2)
            return None
        serving = asyncio.ensure_future(self._serve(event))
        if dice() < self.chances.repeated:
            self.invocations["repeated"] += 1
            first, serving = serving, asyncio.ensure_future(self._serve(event))
            if dice() < 0.5:
                await first
        response = await serving
        if dice() < self.chances.unheard:
            self.invocations["unheard"] += 1
            return None
        return response

    async def _serve_late(self, event: Mapping[str, Any]) -> None:
        await asyncio.sleep(self.chance.choice((1, 10, 90)) * self.chance.random())
        await self._serve(event)

    async def _serve(self, event: Mapping[str, Any]) -> Mapping[str, Any] | None:
        self.invocations["served"] += 1
        try:
            return await self.run(lambda process: process.deliveries.serve_part(event))
        except Exception:  # noqa: BLE001 - Lambda reports any failure as one
            self.invocations["failed"] += 1
            return None

    # Heartbeats

    async def heartbeat(self, seconds: float, task: Mapping[str, Any] | None = None) -> None:
        """Run a heartbeat in a function of its own for so long, and then its successor."""

        async def run(process: Process) -> tuple[bool, str]:
            table, broadcaster = process.store.table, process.broadcaster
            if task is None and not await broadcaster.connections.needs_heartbeat():
                return False, ""
            part, former = ((task or {}).get(name, "") for name in ("part", "former"))
            heartbeat = Heartbeat(
                table, broadcaster, self.settings, system_clock, part or 0, former
            )
            end = asyncio.get_running_loop().time() + seconds

            async def start(part: int) -> None:
                self.begin_heartbeat(seconds, {"part": part})

            going_on = await heartbeat.run(lambda: end - asyncio.get_running_loop().time(), start)
            self.shares[part or 0] = len(heartbeat.roster)
            return going_on, heartbeat.lease.owner

        self.invocations["heartbeat"] += 1
        try:
            going_on, owner = await self.run(run)
        except (Killed, TailraceError):
            self.invocations["heartbeats that died"] += 1
            return
        if going_on:
            part = (task or {}).get("part", 0)
            self.begin_heartbeat(seconds, {"part": part, "former": owner})

    def begin_heartbeat(self, seconds: float, task: Mapping[str, Any] | None = None) -> None:
        """Invoke a heartbeat asynchronously; sometimes it is invoked twice."""
        for _ in range(1 + (self.chance.random() < self.chances.repeated)):
            self._tasks.append(asyncio.ensure_future(self._heartbeat_soon(seconds, task)))

    async def _heartbeat_soon(self, seconds: float, task: Mapping[str, Any] | None) -> None:
        await asyncio.sleep(self.chance.random() * self.chance.choice((0.05, 1.0)))
        await self.heartbeat(seconds, task)

    # The log

    async def write(self, numbers: Sequence[int], pause: float) -> None:
        """Create the stream, and append numbers, by a process that nothing happens to."""
        process = await Process(self).open()
        await process.streams.create(STREAM, Create(content_type=JSON))
        for number in numbers:
            await asyncio.sleep(self.chance.random() * pause)
            await process.streams.append(STREAM, Append(b"%d" % number, JSON))

    # The table's stream

    def news(self) -> list[dict[str, Any]]:
        """Records of the changes since the last call."""
        changes = self.table.changes[self._seen :]
        self._seen += len(changes)
        return [
            {
                "eventName": "INSERT",
                "dynamodb": {
                    "Keys": {"p": each.after["p"], "s": each.after["s"]},
                    "NewImage": each.after,
                },
            }
            for each in changes
            if each.before is None and each.after is not None and each.after["p"]["S"][0] in "CN"
        ]

    async def dispatch(self, is_over: Callable[[], bool]) -> None:
        """Deliver all records, and repeat the batches that fail, as Lambda does."""
        waiting: list[dict[str, Any]] = []
        while not is_over() or waiting:
            waiting += self.news()
            self.chance.shuffle(waiting)
            size = self.chance.choice((1, 3, 10))
            batch, waiting = waiting[:size], waiting[size:]
            if not batch:
                await asyncio.sleep(0.25)
            elif await self._fails(batch):
                waiting += batch
                await asyncio.sleep(self.chance.random() * 5)

    async def _fails(self, batch: Sequence[dict[str, Any]]) -> bool:
        try:
            return bool(await self.run(lambda process: process.deliveries.handle(batch)))
        except Killed:
            return True

    # Clients

    async def connect(self, name: str) -> str:
        """Store a connection of a client; returns its name."""
        connection = f"{name}.{next(self._connections)}"
        record = ConnectionRecord(
            connection, f'{{"sid":"{connection}"}}', system_clock(), 3.0, "s", extended=True
        )
        process = await Process(self).open()
        await process.broadcaster.connections.open(record)
        return connection

    async def say(self, connection: str, **command: Any) -> None:
        """Send a command; raises Killed, or any error, if its function did not handle it."""
        message = parse(json.dumps({"identifier": pubsub(STREAM), **command}))

        def receive(process: Process) -> Coroutine[Any, Any, None]:
            return process.command_handler(connection).receive(message)

        await self.run(receive)


class Reader:
    """A client that follows the stream, and reconnects with its position when it has to."""

    def __init__(self, world: World, name: str) -> None:
        self.heard: list[int] = []
        self.lives = 0
        self._world = world
        self._name = name
        self._place: dict[str, Any] = {}

    async def read(self, last: int) -> None:
        await asyncio.sleep(self._world.chance.random() * 3)
        while last not in self.heard:
            self.lives += 1
            connection = await self._world.connect(self._name)
            frames = self._world.gateway.connect(connection)
            await self._listen(connection, frames, last)
            self._world.gateway.drop(connection)
            await asyncio.sleep(self._world.chance.random() * 2)

    async def _listen(self, connection: str, frames: list[str], last: int) -> None:
        world = self._world
        since = {} if self._place else {"since": 1}
        history = {**since, "streams": self._place}
        saying = asyncio.ensure_future(world.say(connection, command="subscribe", history=history))
        patience = 40.0 + 60.0 * world.chance.random()
        quiet = 0.0
        while connection in world.gateway.open and quiet < patience:
            quiet = 0.0 if frames else quiet + 0.05
            if self._hear(frames) or last in self.heard:
                break
            if saying.done() and saying.exception() is not None:
                break
            await asyncio.sleep(0.05)
        self._hear(frames)
        if saying.done():
            saying.exception()
        else:
            saying.add_done_callback(lambda task: task.cancelled() or task.exception())

    def _hear(self, frames: list[str]) -> bool:
        """Returns whether the client is told to reconnect."""
        while frames:
            frame = json.loads(frames.pop(0))
            assert frame.get("type") != "reject_history", frame
            if frame.get("type") == "disconnect":
                return True
            if "stream_id" in frame:
                self.heard.append(frame["message"])
                self._place[STREAM] = {"epoch": frame["epoch"], "offset": frame["offset"]}
        return False
