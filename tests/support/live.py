"""Live readers of every protocol on either store, in virtual time.

A writer appends to one stream, deletes it and creates it again. Readers connect at any time, take
data slowly or pause, and reads of the store take a while. A seed determines all of it. After the
last append each reader has a few seconds, less than any timer that would wake it up by chance.
"""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from devtools.dynamodb_simulator.bucket import MemoryBucket
from devtools.dynamodb_simulator.loop import run
from devtools.dynamodb_simulator.table import MemoryTable
from tailrace.app import Application
from tailrace.errors import StreamNotFound
from tailrace.live.follower import Sink
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.settings import Settings
from tailrace.store.base import Store
from tailrace.store.dynamodb.provision import Backend
from tailrace.store.dynamodb.store import DynamoStore
from tailrace.store.sqlite.commit import GroupCommit, Write
from tailrace.store.sqlite.database import Database
from tailrace.store.sqlite.directory import DataDirectory
from tailrace.store.sqlite.store import SqliteStore
from tailrace.web.messages import Rendered, Request, Response, Streaming
from tailrace.web.urls import MANY
from tests.support.aviso import IDENTIFIER, SCHEMA, parse_frames
from tests.support.events import parsed

T = TypeVar("T")

JSON = "application/json"
PATH = "live"
TABLE = "live"
EVENTS = "/events"
REJECTED = b"event: reject_history"

CATCH_UP_SECONDS = 20.0
"""For a reader to get the last message: longer than any client or poll takes, and shorter than the
30 s after which a follower looks again by itself."""

STEPS = 400_000
"""Far more iterations of the loop than any run takes: only a busy loop uses them up."""

Message = tuple[int, int]
"""The incarnation of its stream, and its number in that incarnation."""


class SteppedCommit(GroupCommit):
    """Commits without a thread; the file is ahead of the memory for a while."""

    def __init__(self, delay: Callable[[], float], db: sqlite3.Connection) -> None:
        super().__init__(db)
        self._delay = delay

    async def close(self) -> None:
        await self.drain()
        self._inbox.put(None)
        self._thread.join()

    def _flush(self, *_: int) -> None:
        self._loop.call_later(self._delay(), self._carry_out, self._take())

    def _carry_out(self, batch: list[Write]) -> None:
        self._loop.call_later(self._delay(), self._finished, batch, self._commit(batch))


class SteppedDatabase(Database):
    """A database without threads: what goes to the file takes virtual time."""

    def __init__(self, directory: DataDirectory, delay: Callable[[], float]) -> None:
        super().__init__(directory)
        self._delay = delay

    def open(self) -> None:
        def commit(db: sqlite3.Connection) -> GroupCommit:
            return SteppedCommit(self._delay, db)

        with patch("tailrace.store.sqlite.database.GroupCommit", commit):
            super().open()

    async def run(self, function: Callable[..., T], *args: object) -> T:
        await asyncio.sleep(self._delay())
        result = function(*args)
        # The result is old when it arrives.
        await asyncio.sleep(self._delay())
        return result


class SteppedSqlite(SqliteStore):
    """The embedded store over such a database."""

    def __init__(self, settings: Settings, chance: random.Random) -> None:
        def delay() -> float:
            return chance.choice((0.0, 0.001, 0.02)) * chance.random()

        def database(directory: DataDirectory) -> Database:
            return SteppedDatabase(directory, delay)

        with patch("tailrace.store.sqlite.store.Database", database):
            super().__init__(settings)


class ClientSink:
    """A sink whose client takes what was pushed at its own pace, and sometimes pauses.

    `size`: pushes that may be under way before the sink is full."""

    def __init__(self, chance: random.Random, incarnation: Callable[[], int]) -> None:
        self.pushed: list[bytes] = []
        self.incarnations: list[int] = []
        """The incarnation of the stream at each push."""
        self.filled = 0
        """How often it was full."""
        self._chance = chance
        self._incarnation = incarnation
        self._size = chance.choice((1, 2, 2, 4, 1000))
        self._pace = chance.choice((0.0, 0.01, 0.1))
        self._loop = asyncio.get_running_loop()
        self._free = 0.0
        self._under_way = 0
        self._empty = asyncio.Event()
        self._empty.set()

    async def drain(self) -> None:
        await self._empty.wait()

    def push(self, data: bytes) -> bool:
        assert data, "an empty chunk would end a chunked body"
        self.pushed.append(data)
        self.incarnations.append(self._incarnation())
        self._under_way += 1
        stall = 1.0 if self._chance.random() < 0.03 else 0.0
        self._free = max(self._free, self._loop.time()) + self._pace * self._chance.random() + stall
        self._loop.call_at(self._free, self._taken)
        if self._under_way < self._size:
            return True
        self.filled += 1
        self._empty.clear()
        return False

    def _taken(self) -> None:
        self._under_way -= 1
        if not self._under_way:
            self._empty.set()


@dataclass
class Reading:
    """One response of events: what was requested and received."""

    sink: ClientSink
    whole: bool
    """Whether the reader requested the stream from its beginning."""
    task: asyncio.Task[None]
    protocol: Protocol
    after: Message | None = None
    """The last message that the reader had before, where it resumed."""

    @property
    def incarnation(self) -> int | None:
        """The incarnation of the stream when the subscription was confirmed."""
        pushes = zip(self.sink.pushed, self.sink.incarnations, strict=True)
        return next(
            (incarnation for data, incarnation in pushes if self.protocol.opening in data), None
        )

    @property
    def messages(self) -> list[Message]:
        return [each for data in self.sink.pushed for each in self.protocol.messages(data)]

    @property
    def resumed(self) -> bool:
        return self.after is not None and not any(REJECTED in data for data in self.sink.pushed)


class Protocol:
    """How a protocol requests events, and what its events contain."""

    path = PATH
    opening = b""
    """Part of the frame that confirms the subscription."""
    incarnations: Sequence[int] = (1, 1, 2, 3)
    """How often the stream is created: one of these."""

    def request(self, whole: bool) -> Request:
        raise NotImplementedError

    def resume(self, _: ClientSink) -> Request | None:
        """A request that resumes after the last message of a response, if the protocol has one."""
        return None

    async def respond(self, application: Application, request: Request) -> Response | Streaming:
        raise NotImplementedError

    def body(self, message: Message, chance: random.Random) -> bytes:
        return json.dumps([*message, "x" * chance.choice((0, 0, 300))]).encode()

    def messages(self, data: bytes) -> list[Message]:
        raise NotImplementedError


class Sse(Protocol):
    def request(self, whole: bool) -> Request:
        offset = "-1" if whole else "now"
        return _at(f"live=sse&offset={offset}")

    async def respond(self, application: Application, request: Request) -> Response | Streaming:
        return await application.routes.respond(request)

    def body(self, message: Message, chance: random.Random) -> bytes:
        return b"[%b]" % super().body(message, chance)

    def messages(self, data: bytes) -> list[Message]:
        some = [json.loads(each.data) for each in parsed(data) if each.kind == "data"]
        return [(incarnation, number) for each in some for incarnation, number, _ in each]


class LongPoll(Sse):
    """One long-poll after the other. Offsets do not name an incarnation, so there is only one."""

    incarnations = (1,)

    async def respond(self, application: Application, request: Request) -> Response | Streaming:
        first = await application.routes.respond(_at(request.query.replace("live=sse", "")))
        if isinstance(first, Streaming) or first.status != 200:
            return first
        return Streaming(200, [], partial(self._poll, application, first))

    async def _poll(self, application: Application, response: Response, sink: Sink) -> None:
        while True:
            if response.status == 200 and not sink.push(response.body):
                await sink.drain()
            offset = dict(response.headers)[b"stream-next-offset"].decode()
            answer = await application.routes.respond(_at(f"live=long-poll&offset={offset}"))
            assert isinstance(answer, Response)
            response = answer

    def messages(self, data: bytes) -> list[Message]:
        return [(incarnation, number) for incarnation, number, _ in json.loads(data)]


class PlainLongPoll(LongPoll):
    """One long-poll after the other, without a task where the server can do that."""

    def __init__(self) -> None:
        self._lane = cache(Application.fast_lane)

    async def _poll(self, application: Application, response: Response, sink: Sink) -> None:
        begin = self._lane(application).begin_poll
        offset = dict(response.headers)[b"stream-next-offset"].decode()
        while True:
            if response.status == 200 and not sink.push(response.body):
                await sink.drain()
            query = f"live=long-poll&offset={offset}"
            client = PollClient()
            url = f"/v1/stream/{PATH}?{query}".encode()
            waits = None if begin is None else begin(url, [], client)
            try:
                rendered = await client.answered if waits is not None else None
            except asyncio.CancelledError:
                if waits is not None:
                    waits.leave()
                raise
            if rendered is not None:
                lines = [line.split(b": ") for line in rendered.headers.split(b"\r\n")[:-1]]
                headers = [(name, value) for name, value in lines]
                response = Response(rendered.status, headers, rendered.body)
            else:
                answer = await application.routes.respond(_at(query))
                assert isinstance(answer, Response)
                response = answer
            offset = dict(response.headers)[b"stream-next-offset"].decode()


class PollClient:
    """A request that waits for its answer; None: the general path has to give it."""

    def __init__(self) -> None:
        self.answered: asyncio.Future[Rendered | None] = asyncio.Future()

    def answer(self, answer: Rendered) -> None:
        self.answered.set_result(answer)

    def serve(self) -> None:
        self.answered.set_result(None)

    def push(self, data: bytes) -> bool:
        raise AssertionError(f"a long-poll has one answer, and no events: {data!r}")

    async def drain(self) -> None:
        raise AssertionError("a follower never waits for one reader")


class ManySse(Sse):
    """A read of the stream, of one that never exists, and of all that match a pattern."""

    def request(self, whole: bool) -> Request:
        return _many(f"live=sse&offset={'-1' if whole else 'now'}")

    def resume(self, sink: ClientSink) -> Request | None:
        ids = [field for data in sink.pushed for field in data.split(b"\n") if field[:3] == b"id:"]
        return _many("live=sse&offset=now", ids[-1][3:]) if ids else None

    async def respond(self, application: Application, request: Request) -> Response | Streaming:
        return await application.many.respond(request)

    def messages(self, data: bytes) -> list[Message]:
        some = [json.loads(each.data)["data"] for each in parsed(data) if each.kind == "data"]
        return [(incarnation, number) for each in some for incarnation, number, _ in each]


class ManyLongPoll(ManySse):
    """One long-poll after the other."""

    async def respond(self, application: Application, request: Request) -> Response | Streaming:
        first = await application.many.respond(_many(request.query.partition("live=sse")[2]))
        if isinstance(first, Streaming) or first.status != 200:
            return first
        return Streaming(200, [], partial(self._poll, application, first))

    async def _poll(self, application: Application, response: Response, sink: Sink) -> None:
        while True:
            if response.status == 200 and not sink.push(response.body):
                await sink.drain()
            offset = dict(response.headers)[b"stream-next-offset"].decode()
            answer = await application.many.respond(_many(f"live=long-poll&offset={offset}"))
            assert isinstance(answer, Response)
            response = answer

    def messages(self, data: bytes) -> list[Message]:
        some = [each.get("data", []) for each in json.loads(data)["streams"]]
        return [(incarnation, number) for each in some for incarnation, number, _ in each]


class Cable(Protocol):
    """`/events`: the follower and the queues are those of the WebSocket."""

    opening = b"event: confirm_subscription"

    def request(self, whole: bool) -> Request:
        history = "&history_since=1" if whole else ""
        return Request("GET", EVENTS, f"stream={PATH}&pi=0{history}", [], b"")

    def resume(self, sink: ClientSink) -> Request | None:
        ids = [field for data in sink.pushed for field in data.split(b"\n") if field[:3] == b"id:"]
        headers = [(b"last-event-id", each[4:]) for each in ids[-1:]]
        return Request("GET", EVENTS, f"stream={PATH}&pi=0", headers, b"") if headers else None

    async def respond(self, application: Application, request: Request) -> Response | Streaming:
        return await application.cable.respond(EVENTS, request)

    def body(self, message: Message, chance: random.Random) -> bytes:
        return b"[%b]" % super().body(message, chance)

    def messages(self, data: bytes) -> list[Message]:
        some = [json.loads(each.data) for each in parsed(_without_ids(data))]
        return [(each[0], each[1]) for each in some if isinstance(each, list)]


class Watch(Protocol):
    path = "aviso/prod"

    def request(self, whole: bool) -> Request:
        asked: dict[str, Any] = {"event_type": "product", "identifier": {}}
        if whole:
            asked["from_id"] = "1"
        return Request("POST", "/api/v1/watch", "", [], json.dumps(asked).encode())

    async def respond(self, application: Application, request: Request) -> Response | Streaming:
        assert application.aviso is not None
        return await application.aviso.respond(request)

    def messages(self, data: bytes) -> list[Message]:
        some = [each.data["data"]["payload"] for each in parse_frames(data) if "id" in each.data]
        return [(each[0], each[1]) for each in some]


def _at(query: str) -> Request:
    return Request("GET", f"/v1/stream/{PATH}", query, [], b"")


def _many(query: str, event_id: bytes | None = None) -> Request:
    headers = [] if event_id is None else [(b"last-event-id", event_id)]
    return Request("GET", MANY, f"stream={PATH}&stream=never&stream=x/*&{query}", headers, b"")


def _without_ids(data: bytes) -> bytes:
    return b"\n".join(line for line in data.split(b"\n") if not line.startswith(b"id: "))


PROTOCOLS = {
    "sse": Sse,
    "long-poll": LongPoll,
    "plain-long-poll": PlainLongPoll,
    "many-sse": ManySse,
    "many-long-poll": ManyLongPoll,
    "cable": Cable,
    "aviso": Watch,
}
STORES = ("sqlite", "dynamodb")


@dataclass
class Scenario:
    protocol: Protocol
    chance: random.Random
    applications: list[Application]
    incarnations: list[int] = field(default_factory=list)
    """How many messages each incarnation of the stream has."""
    readings: list[list[Reading]] = field(default_factory=list)
    """The answers of each reader, in order."""

    async def run(self) -> None:
        readers = [asyncio.ensure_future(self._read()) for _ in range(self.chance.randint(3, 6))]
        try:
            await self._write()
            await asyncio.sleep(CATCH_UP_SECONDS)
            for reader in readers:
                assert not reader.done(), reader.exception()
            for readings in self.readings:
                self._check(readings)
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)

    @property
    def _any(self) -> Application:
        return self.chance.choice(self.applications)

    async def _pause(self) -> None:
        await asyncio.sleep(self.chance.choice((0.0, 0.002, 0.05, 0.5)) * self.chance.random())

    # Writing

    async def _write(self) -> None:
        for incarnation in range(self.chance.choice(self.protocol.incarnations)):
            if incarnation:
                await self._any.streams.delete(self.protocol.path)
            await self._pause()
            self.incarnations.append(0)
            for _ in range(self.chance.randint(1, 25)):
                await self._append((incarnation, self.incarnations[-1]))
                self.incarnations[-1] += 1
                await self._pause()

    async def _append(self, message: Message) -> None:
        if isinstance(self.protocol, Watch):
            await self._notify(message)
            return
        body = self.protocol.body(message, self.chance)
        streams = self._any.streams
        try:
            await streams.append(self.protocol.path, Append(body, JSON))
        except StreamNotFound:
            await streams.create(self.protocol.path, Create(body, JSON))

    async def _notify(self, message: Message) -> None:
        sent = {"event_type": "product", "identifier": IDENTIFIER, "payload": message}
        routes = self._any.aviso
        assert routes is not None
        request = Request("POST", "/api/v1/notification", "", [], json.dumps(sent).encode())
        answer = await routes.respond(request)
        assert isinstance(answer, Response)
        assert answer.status == 200, answer.body

    # Reading

    async def _read(self) -> None:
        readings: list[Reading] = []
        self.readings.append(readings)
        await asyncio.sleep(self.chance.random() * 2)
        while True:
            whole = self.chance.random() < 0.6
            request, after = self.protocol.request(whole), None
            if readings and (resumed := self.protocol.resume(readings[-1].sink)) is not None:
                request, after, whole = resumed, readings[-1].messages[-1], False
            answer = await self.protocol.respond(self._any, request)
            if isinstance(answer, Response):
                # 410: it was deleted while it was read.
                assert answer.status in (404, 410), answer
                await asyncio.sleep(0.05)
                continue
            sink = ClientSink(self.chance, lambda: len(self.incarnations) - 1)
            task = asyncio.create_task(_run(answer, sink))
            readings.append(Reading(sink, whole, task, self.protocol, after))
            await self._attend(readings[-1])

    async def _attend(self, reading: Reading) -> None:
        """Read until the response ends, or the reader disconnects to resume."""
        leaves = isinstance(self.protocol, Cable) and self.chance.random() < 0.5
        seconds = self.chance.random() if leaves else None
        try:
            await asyncio.wait([reading.task], timeout=seconds)
        finally:
            reading.task.cancel()
            await asyncio.gather(reading.task, return_exceptions=True)

    # Checking

    def _check(self, readings: Sequence[Reading]) -> None:
        assert readings, "it never got a response"
        last = len(self.incarnations) - 1
        for reading in readings:
            messages = reading.messages
            began = last if reading.incarnation is None else reading.incarnation
            incarnations = [incarnation for incarnation, _ in groupby(messages, _incarnation)]
            assert incarnations == sorted(set(incarnations)), f"incarnations {incarnations}"
            for incarnation, some in groupby(messages, _incarnation):
                numbers = [number for _, number in some]
                steps = {after - before for before, after in pairwise(numbers)}
                assert steps <= {1}, f"incarnation {incarnation}: {numbers}"
                if incarnation > began or (reading.whole and incarnation == began):
                    assert numbers[0] == 0, f"incarnation {incarnation} begins with {numbers}"
            if reading.after is not None:
                incarnation, number = reading.after
                assert reading.resumed or incarnation < last, "the missed messages were not found"
                if reading.resumed and incarnations[:1] == [incarnation]:
                    assert messages[0][1] == number + 1, f"{messages[0]} after {reading.after}"
        reading = readings[-1]
        assert not reading.task.done(), "its response has ended"
        had = ([] if reading.after is None else [reading.after]) + reading.messages
        end = (last, self.incarnations[last] - 1)
        if had or reading.whole or began < last:
            assert had[-1:] == [end] or self._missed(reading), f"{had[-1:]}, but {end} is there"

    def _missed(self, reading: Reading) -> bool:
        """Whether nothing had to be sent: the reader resumed from another incarnation."""
        return not reading.messages and reading.after is not None and not reading.resumed


def _incarnation(message: Message) -> int:
    return message[0]


async def _run(answer: Streaming, sink: ClientSink) -> None:
    await answer.run(sink)


def run_scenario(protocol: str, store: str, seed: int, folder: Path) -> Scenario:
    """One run; `folder` is where the embedded store may have its files."""
    chance = random.Random(f"{protocol} {store} {seed}")

    async def main() -> Scenario:
        applications = [
            Application(settings, each) for settings, each in _stores(store, chance, folder)
        ]
        for application in applications:
            await application.start()
        scenario = Scenario(PROTOCOLS[protocol](), chance, applications)
        try:
            await scenario.run()
        finally:
            for application in applications:
                await application.stop()
        return scenario

    try:
        return run(seed, main, steps=STEPS)
    except Exception as error:
        raise AssertionError(f"{protocol} on {store}, seed {seed}: {error!r}") from error


def _stores(
    store: str, chance: random.Random, folder: Path
) -> Iterator[tuple[Settings, Store[Any]]]:
    given: dict[str, Any] = {
        "aviso_schema": str(SCHEMA),
        "events_path": EVENTS,
        "aviso_max_duration": 86_400,
        "chunk_bytes": 1024,
        "sse_lifetime": 86_400,
        "sweep_interval": 0,
        "compact_interval": 0,
        "open_streams": chance.choice((1, 100)),
    }
    if store == "sqlite":
        settings = Settings(data=str(folder), hot_bytes=chance.choice((0, 2000, 1 << 20)), **given)
        yield settings, SteppedSqlite(settings, chance)
        return
    table, bucket = MemoryTable(chance, name=TABLE), MemoryBucket(chance)
    for _ in range(2):
        settings = Settings(store="dynamodb", table=TABLE, **given)
        backend = Backend(table.connect(), bucket.connect())
        yield settings, DynamoStore(settings, backend=backend)
