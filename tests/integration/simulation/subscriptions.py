"""A world of subscriptions: servers, writers, workers and receivers that fail in every way.

A seed decides everything. The actors note here what they do; the table knows what was stored.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import orjson

from devtools.dynamodb_simulator.bucket import MemoryBucket
from devtools.dynamodb_simulator.engine import Change
from devtools.dynamodb_simulator.network import CALM, Faults
from devtools.dynamodb_simulator.table import MemoryTable
from tailrace.clock import system_clock
from tailrace.errors import (
    AlreadyClaimed,
    Fenced,
    InvalidAckOffset,
    NoPendingWork,
    StreamConflict,
    SubscriptionNotFound,
    TailraceError,
    WebhookFailed,
)
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.protocols.subscriptions.core.configuration import Configuration
from tailrace.protocols.subscriptions.core.records import (
    Link,
    Phase,
    offset_of,
)
from tailrace.protocols.subscriptions.dynamodb_store import DynamoSubscriptions
from tailrace.protocols.subscriptions.runner import SubscriptionRunner
from tailrace.protocols.subscriptions.service import Ack, Fence, SubscriptionService
from tailrace.protocols.subscriptions.table_stream import (
    SubscriptionRecords,
    SubscriptionTimer,
    TimerLease,
)
from tailrace.protocols.subscriptions.webhook_sender import WebhookAnswer
from tailrace.settings import Settings
from tailrace.store.dynamodb.provision import Backend
from tailrace.store.dynamodb.store import DynamoStore
from tailrace.streams import Streams

TABLE: Final = "tailrace"
JSON: Final = "application/json"
WAKES: Final = "wakes"
PATHS: Final = ("a/1", "a/2", "a/3", "b/1")
SERVERS: Final = 2
ACTING_SECONDS: Final = 90.0
PATIENCE_SECONDS: Final = 1200.0
"""How long, at most, everything may take to be processed after all faults have ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """The kind of the world."""

    faults: Faults = CALM
    kills: float = 0.0
    """Kills of servers per second."""
    jumps: float = 0.0
    """Jumps of a server's clock per second."""
    deaths: float = 0.0
    """How many of the workers die while they hold a wake."""
    failures: float = 0.0
    """How many of the requests to a webhook fail."""
    callbacks: float = 0.4
    """How many of the webhooks are accepted, and call back."""
    repeated: int = 5
    """Records of the table's stream that come twice, now and then."""
    deletions: float = 0.0
    """How many of the writers' steps delete a stream."""


class Held(NamedTuple):
    """A wake that a worker or a receiver holds."""

    id: str
    fence: Fence
    streams: tuple[tuple[str, str, str], ...]
    """Path, cursor and end of each stream."""


class Token:
    """Signs nothing: a token is its generation."""

    async def sign(self, body: bytes, now: int) -> str:  # noqa: ARG002
        return "signature"

    async def issue_token(self, subscription: str, generation: int, now: int) -> str:  # noqa: ARG002
        return f"{generation}"


class Server:
    """A process that can be killed."""

    def __init__(self, world: SubscriptionWorld) -> None:
        settings = Settings(table=TABLE, store="dynamodb")
        self.ahead = 0
        """Milliseconds by which its clock is ahead."""
        self._client, self._bucket = world.table.connect(), world.bucket.connect()
        backend = Backend(self._client, self._bucket)
        self._store = DynamoStore(settings, self.clock, backend=backend)
        self.streams = Streams(self._store, settings, self.clock)
        self.service = SubscriptionService(
            self.streams,
            DynamoSubscriptions(self._store),
            Receiver(world),
            Token(),
            self.clock,
        )
        self.lease = TimerLease(lambda: self._store.table, self.clock)
        self.store = DynamoSubscriptions(self._store)
        self._runner: SubscriptionRunner | None = None
        self.death: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def clock(self) -> int:
        return system_clock() + self.ahead

    async def start(self, *, runs: bool = True) -> None:
        """`runs`: whether it does what is due; else functions do."""
        await self._store.open()
        if runs:
            self._runner = SubscriptionRunner(self.service, self.clock)
            self._runner.start()

    async def kill(self) -> None:
        """Like `kill -9`: no call returns, and what was under way may or may not be done."""
        self._client.cut()
        self._bucket.cut()
        self.death.set_result(None)
        if self._runner is not None:
            await self._runner.stop()


class SubscriptionWorld:
    def __init__(self, trouble: Trouble, seed: int) -> None:
        self.trouble = trouble
        self.chance = random.Random(f"subscriptions {seed}")
        self.table = MemoryTable(self.chance, faults=trouble.faults, name=TABLE)
        self.bucket = MemoryBucket(self.chance)
        self.servers: list[Server] = []
        self.processed: defaultdict[tuple[str, str], int] = defaultdict(int)
        """For each subscription and stream, by its path and epoch, the offset up to which somebody
        processed it without a gap."""
        self.calm = False
        self.seen: set[str] = set()
        """The kinds of events that have happened."""

    # The run

    async def run(self) -> None:
        for _ in range(SERVERS):
            await self.start()
        await self.setup()
        actors = [
            *self.platform(),
            *(self.write(number) for number in range(3)),
            *(self.work(f"worker-{number}") for number in range(3)),
            self.harm(),
        ]
        tasks = [asyncio.create_task(actor) for actor in actors]
        await asyncio.sleep(ACTING_SECONDS)
        self.calm = True
        self.table.faults = CALM
        for server in self.servers:
            server.ahead = 0
        # A server that was killed may have been the only one that knew of an append.
        await self.kill()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                if await self.is_settled():
                    break
                await asyncio.sleep(1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def platform(self) -> list[Coroutine[Any, Any, None]]:
        """Return what runs beside the servers."""
        return []

    async def setup(self) -> None:
        configurations = {
            "pull": Configuration("pull-wake", "a/*", (), None, WAKES, 5000, None),
            "named": Configuration("pull-wake", None, ("a/1", "b/1"), None, WAKES, 5000, None),
            "hook": Configuration("webhook", "**", (), "https://hook/", None, 5000, None),
        }
        await self.ask(lambda s: s.streams.create(WAKES, Create(b"", JSON)))
        for id_, configuration in configurations.items():
            await self.ask(
                lambda s, i=id_, c=configuration: s.service.create(i, c, "http://x", None)
            )

    async def start(self) -> None:
        server = Server(self)
        self.servers.append(server)
        await server.start()

    async def kill(self) -> None:
        server = self.servers.pop(self.chance.randrange(len(self.servers)))
        await server.kill()
        await self.start()

    async def ask(self, call: Any) -> Any:
        """Repeat a call until a server answers."""
        while True:
            with suppress(TailraceError, ServerDied):
                return await self.once(call)
            await asyncio.sleep(0.2)

    async def once(self, call: Any) -> Any:
        """Have any server do something; raises ServerDied if it is killed meanwhile."""
        server = self.chance.choice(self.servers)
        task = asyncio.ensure_future(call(server))
        # Nobody is left to hear of it if the server dies, or the run ends.
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait({task, server.death}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        task.cancel()
        raise ServerDied

    def happens(self, probability: float) -> bool:
        return not self.calm and self.chance.random() < probability

    # Actors

    async def write(self, number: int) -> None:
        """Create streams, append to them, and delete some."""
        body = 0
        while not self.calm:
            await asyncio.sleep(self.chance.random() * 3)
            path = self.chance.choice(PATHS)
            body += 1
            text = orjson.dumps({"writer": number, "body": body})
            with suppress(TailraceError, ServerDied):
                if self.happens(self.trouble.deletions):
                    await self.once(lambda s, p=path: s.streams.delete(p))
                    self.seen.add("deleted")
                    continue
                with suppress(StreamConflict):
                    await self.once(lambda s, p=path: s.streams.create(p, Create(b"", JSON)))
                await self.once(lambda s, p=path, t=text: s.streams.append(p, Append(t, JSON)))
                self.seen.add("appended")

    async def work(self, name: str) -> None:
        """Claim wakes, process their streams, and acknowledge; or die, or come too late."""
        while True:
            await asyncio.sleep(self.chance.random() * 2)
            id_ = self.chance.choice(("pull", "named"))
            try:
                claimed = await self.once(lambda s, i=id_: s.service.claim(i, name))
            except AlreadyClaimed:
                self.seen.add("busy")
                continue
            except (NoPendingWork, SubscriptionNotFound):
                continue
            except (TailraceError, ServerDied):
                self.seen.add("claim lost")
                continue
            self.seen.add("claimed")
            record, links = claimed
            assert record.wake_id is not None
            await self.handle(
                Held(record.id, _fence(record.generation, record.wake_id), _shown(links))
            )

    async def handle(self, held: Held) -> None:
        """Process the streams of a wake, and acknowledge them."""
        if self.happens(self.trouble.deaths):
            self.seen.add("died at once")
            return
        acks = []
        for path, cursor, end in held.streams:
            await self.process(held.id, path, cursor, end)
            acks.append(Ack(path, end))
            if self.happens(self.trouble.deaths):
                self.seen.add("died in the middle")
                return
        if self.happens(self.trouble.deaths):
            self.seen.add("late")
            await asyncio.sleep(self.chance.random() * 12)
        if self.chance.random() < 0.2:
            await self.acknowledge(held, [], done=False)
        if self.chance.random() < 0.1:
            self.seen.add("released")
            with suppress(TailraceError, ServerDied):
                await self.once(lambda s: s.service.release(held.id, held.fence))
            return
        await self.acknowledge(held, acks, done=True)

    async def acknowledge(self, held: Held, acks: list[Ack], *, done: bool) -> None:
        for _ in range(3):
            try:
                await self.once(
                    lambda s: s.service.acknowledge(held.id, held.fence, acks, done=done)
                )
            except (Fenced, SubscriptionNotFound):
                self.seen.add("fenced")
                return
            except InvalidAckOffset:
                # The stream was deleted meanwhile.
                self.seen.add("invalid")
                return
            except (TailraceError, ServerDied):
                self.seen.add("repeated")
                continue
            self.seen.add("done" if done else "extended")
            return

    async def process(self, id_: str, path: str, cursor: str, end: str) -> None:
        """Note that a stream was processed from its cursor to its end; a duplicate is fine."""
        await asyncio.sleep(self.chance.random() * 0.5)
        key = id_, path + end[:4]
        begin = offset_of(cursor)
        assert begin <= self.processed[key], f"{id_} skips data of {path}"
        self.processed[key] = max(self.processed[key], offset_of(end))

    async def harm(self) -> None:
        """Kill servers, and let their clocks jump."""
        while not self.calm:
            await asyncio.sleep(1)
            if self.happens(self.trouble.kills):
                self.seen.add("killed")
                await self.kill()
            if self.happens(self.trouble.jumps):
                self.seen.add("jumped")
                server = self.chance.choice(self.servers)
                server.ahead = self.chance.choice((-60_000, -3000, 0, 3000, 60_000))

    # The end

    async def is_settled(self) -> bool:
        """Whether every subscription has processed everything."""
        server = self.servers[-1]
        after = ""
        while records := await server.service.store.list(after, 10):
            for record in records:
                if record.phase is not Phase.IDLE:
                    return False
                for link in await server.service.store.links(record, "", 100):
                    if not await self._is_processed(server, link):
                        return False
            after = records[-1].id
        return True

    async def _is_processed(self, server: Server, link: Link) -> bool:
        try:
            tail = await server.streams.find(link.path)
        except TailraceError:
            return link.stream is None
        return link.stream == tail.stream.id and offset_of(link.acked) == tail.committed.offset


class FunctionWorld(SubscriptionWorld):
    """The same, where functions do what is due: one gets the changes of the table, at least once
    and in any batches, and one sends webhooks and waits. Both are killed at any time."""

    async def start(self) -> None:
        server = Server(self)
        self.servers.append(server)
        await server.start(runs=False)

    def platform(self) -> list[Coroutine[Any, Any, None]]:
        self._functions: dict[str, Server] = {}
        return [self._dispatch(), self._tick()]

    async def kill(self) -> None:
        if self._functions and self.chance.random() < 0.7:
            name = self.chance.choice([*self._functions])
            self.seen.add(f"{name} killed")
            await self._functions.pop(name).kill()
        else:
            await super().kill()

    async def _function(self, name: str) -> Server:
        """Return a warm environment of a function, or a new one."""
        while name not in self._functions:
            server = Server(self)
            await server.start(runs=False)
            self._functions.setdefault(name, server)
        return self._functions[name]

    async def _call(self, name: str, work: Callable[[Server], Awaitable[Any]]) -> Any:
        """Call a function; raises ServerDied if it is killed meanwhile."""
        server = await self._function(name)
        task = asyncio.ensure_future(work(server))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait({task, server.death}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        task.cancel()
        raise ServerDied

    async def _dispatch(self) -> None:
        """Pass the changes of the table on, each batch until it succeeds, and some twice."""
        done = 0
        while True:
            await asyncio.sleep(0.05 + self.chance.random() * 0.2)
            begin = max(0, done - self.chance.choice((0, 0, 0, self.trouble.repeated)))
            changes = self.table.changes[begin : done + self.chance.randrange(1, 30)]
            if not changes:
                continue
            records = [record for record in map(_record, changes) if record is not None]
            try:
                failed = await self._call("dispatch", partial(self._handle, records))
            except ServerDied:
                self.seen.add("batch repeated")
                continue
            if not failed:
                done = max(done, begin + len(changes))

    async def _handle(self, records: Sequence[Any], server: Server) -> Any:
        async def send(subscription: str) -> None:
            self._invoke(self._send(subscription))

        async def start_timer() -> None:
            self._invoke(self._wait())

        server.service.send_elsewhere = send
        handler = SubscriptionRecords(server.service, server.lease, start_timer, server.clock)
        return await handler.handle(records)

    def _invoke(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _send(self, subscription: str) -> None:
        async def perform(server: Server) -> None:
            server.service.works_elsewhere = True
            await server.service.perform(subscription)

        with suppress(ServerDied, TailraceError):
            await self._call("webhooks", perform)

    async def _wait(self) -> None:
        async def wait(server: Server) -> None:
            async def perform(subscription: str) -> None:
                self._invoke(self._send(subscription))

            end = asyncio.get_running_loop().time() + 105
            timer = SubscriptionTimer(server.store, server.lease, perform, server.clock)
            if await timer.run(lambda: end - asyncio.get_running_loop().time()):
                self._invoke(self._wait())

        self.seen.add("timer")
        with suppress(ServerDied, TailraceError):
            await self._call("webhooks", wait)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(60)
            self._invoke(self._wait())


def _record(change: Change) -> dict[str, Any] | None:
    """Return a change as a record of the table's stream, if a filter passes it."""
    if change.after is None:
        return None
    kind = "INSERT" if change.before is None else "MODIFY"
    keys = {name: {"S": each} for name, each in zip("ps", change.key, strict=True)}
    return {"eventName": kind, "dynamodb": {"Keys": keys, "NewImage": change.after}}


class ServerDied(Exception):
    """The server was killed before it answered."""


class Receiver:
    """The webhook: answers in every way, or not at all."""

    def __init__(self, world: SubscriptionWorld) -> None:
        self._world = world

    async def check_destination(self, url: str) -> None:
        """Accepts every URL."""

    async def send(self, url: str, body: bytes, headers: Mapping[str, str]) -> WebhookAnswer:  # noqa: ARG002
        world, failures = self._world, self._world.trouble.failures
        await asyncio.sleep(world.chance.random() * 0.3)
        if world.happens(failures):
            world.seen.add("webhook unreachable")
            raise WebhookFailed("unreachable")
        wake = orjson.loads(body)
        shown = [(e["path"], e["acked_offset"], e["tail_offset"]) for e in wake["streams"]]
        fence = _fence(int(wake["callback_token"]), wake["wake_id"], wake["generation"])
        held = Held(wake["subscription_id"], fence, tuple(shown))
        if world.chance.random() < world.trouble.callbacks:
            world.seen.add("webhook called back")
            task = asyncio.create_task(world.handle(held))
            task.add_done_callback(lambda _: None)
            return self._answer(failures, b"{}")
        for path, cursor, end in held.streams:
            await world.process(held.id, path, cursor, end)
        return self._answer(failures, b'{"done":true}')

    def _answer(self, failures: float, body: bytes) -> WebhookAnswer:
        world = self._world
        if world.happens(failures):
            world.seen.add("webhook answer lost")
            raise WebhookFailed("no answer")
        if world.happens(failures):
            world.seen.add("webhook error")
            return WebhookAnswer(500, b"")
        return WebhookAnswer(200, body)


def _fence(token_generation: int, wake_id: str, generation: int | None = None) -> Fence:
    return Fence(token_generation, generation or token_generation, wake_id)


def _shown(links: Any) -> tuple[tuple[str, str, str], ...]:
    return tuple((link.path, link.acked, link.tail) for link in links)
