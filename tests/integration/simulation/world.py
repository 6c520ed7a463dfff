"""A world of processes that share one table and one bucket; a seed decides all the rest.

What its actors do to streams becomes events of the history. What really happened, the table knows:
see `truth`.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import random
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from devtools.dynamodb_simulator.bucket import MemoryBucket
from devtools.dynamodb_simulator.engine import PAGE_BYTES
from devtools.dynamodb_simulator.network import CALM, Faults
from devtools.dynamodb_simulator.table import LATENCY, MemoryTable
from devtools.linearizability import checker as happened
from devtools.linearizability.checker import (
    Acknowledged,
    Duplicate,
    History,
    Outcome,
    Rejected,
    Unknown,
)
from tailrace.clock import system_clock
from tailrace.errors import (
    OffsetMismatch,
    OffsetTrimmed,
    OutcomeUnknown,
    StaleOffset,
    StoreUnavailable,
    StreamClosed,
    StreamGone,
    StreamNotFound,
    StreamTooHot,
    TailraceError,
)
from tailrace.limits import UPLOAD_INTENT_SECONDS
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.log.offsets import NOW, START, Position, parse, token
from tailrace.log.state import Listed, Producer
from tailrace.settings import Settings
from tailrace.store.dynamodb.provision import Backend
from tailrace.store.dynamodb.store import DynamoStore
from tailrace.streams import Created, Streams, View
from tailrace.web.statuses import status_of

T = TypeVar("T")

TEXT = "text/plain"
TABLE = "tailrace"
GRACE = 120
INLINE_BYTES = 1024
CHUNK_BYTES = 1024
SLOT_APPENDS = 4
SLOT_BYTES = 700
RIVAL_SLOT_BYTES = 100
BEGIN = Position(0)
QUIET = 30.0
"""Seconds after which nothing is on its way any more."""
NOT_NOW = (Rejected(StoreUnavailable.code), Rejected(StreamTooHot.code))

Actor = Callable[["Client"], Coroutine[Any, Any, None]]
Make = Callable[..., DynamoStore]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """The kind of the world."""

    cast: Sequence[tuple[Actor, int]]
    """The actors, and how many of each."""
    paths: Mapping[str, Mapping[str, Any]]
    """The streams, and what each is created with."""
    faults: Faults = CALM
    impatience: float = 0.0
    """How many of the callers leave before they have an answer."""
    pauses: Sequence[float] = (0.02, 0.1, 0.5)
    """How long, at most, an actor waits before its next call, in seconds: any of these."""
    large: float = 0.05
    """How many of the bodies are too large for an item."""
    latency: tuple[float, float] = LATENCY
    page_bytes: int = PAGE_BYTES
    retention: bool = False
    """Whether archivists let go of data for good, too."""


class ClosedWithoutResponse(Exception):
    """The process was killed before it answered, or the caller left."""


class Call(NamedTuple):
    """A call about a path, and its outcome: `fine`, `unheard`, or an error's code."""

    path: str
    verb: str
    invoked: float
    returned: float
    outcome: str

    @property
    def fine(self) -> bool:
        return self.outcome == "fine"

    @property
    def clear(self) -> bool:
        """Whether the caller knows what came of it."""
        return self.outcome not in ("unheard", OutcomeUnknown.code)


class Forked(NamedTuple):
    """A fork at the tail of its source: it has to have all that was acknowledged before."""

    id: int
    invoked: float


class Trimmed(NamedTuple):
    """A reader was told that a slot is no longer there, and what is."""

    path: str
    slot: int
    earliest: str
    returned: float


class Stale(NamedTuple):
    """A reader was told that its position is not one of the stream."""

    path: str
    position: Position
    invoked: float
    returned: float


class Objects(dict[str, bytes]):
    """The objects of a bucket, and all there ever were."""

    def __init__(self) -> None:
        super().__init__()
        self.ever: dict[str, bytes] = {}
        self.gone: dict[str, float] = {}
        """When each went."""

    def __setitem__(self, key: str, body: bytes) -> None:
        super().__setitem__(key, body)
        self.ever[key] = body

    def pop(self, key: str, *default: Any) -> Any:
        if key in self:
            self.gone[key] = now()
        return super().pop(key, *default)


class Process:
    """One of those that serve the streams: it remembers what it likes, and can be killed."""

    def __init__(self, world: World, **more: Any) -> None:
        settings = Settings(
            table=TABLE,
            inline_bytes=INLINE_BYTES,
            chunk_bytes=CHUNK_BYTES,
            trim_grace=GRACE,
            **more,
        )
        self.client = world.table.connect()
        self._bucket = world.bucket.connect()
        self.store = world.make(settings, backend=Backend(self.client, self._bucket))
        self.streams = Streams(self.store, settings)
        self.death: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def kill(self) -> None:
        self.client.cut()
        self._bucket.cut()
        self.death.set_result(None)


class World:
    def __init__(self, mix: Mix, seed: int, make: Make = DynamoStore) -> None:
        self.mix = mix
        self.make = make
        self.chance = random.Random(f"world {seed}")
        self.table = MemoryTable(
            self.chance,
            latency=mix.latency,
            page_bytes=mix.page_bytes,
            faults=mix.faults,
            name=TABLE,
        )
        self.bucket = MemoryBucket(self.chance, faults=mix.faults)
        self.objects = self.bucket.objects = Objects()
        self.processes: list[Process] = []
        self.history = History()
        self.calls: list[Call] = []
        self.forked: list[Forked] = []
        self.archived = False
        """Whether entries are moved to segments."""
        self.trimmed: list[Trimmed] = []
        self.stale: list[Stale] = []
        self.epochs = itertools.count()
        self.sequences: dict[bytes, str] = {}
        """The Stream-Seq that each body came with."""
        self.expected: dict[bytes, Position] = {}
        """Where the stream had to end for each body that came with that."""
        self.offsets = defaultdict[str, list[str]](lambda: [START])
        """The offsets that writers were told for each path."""
        self.listed: Sequence[Listed] = ()
        self.ended = math.inf
        """When the actors had left."""

    async def run(self) -> None:
        """All that the actors do, until nothing is under way any more."""
        for _ in range(3):
            await self.start()
        names = itertools.count()
        async with asyncio.TaskGroup() as group:
            for actor, count in self.mix.cast:
                for _ in range(count):
                    group.create_task(actor(Client(self, f"{next(names)}")))
        self.ended = now()
        self.table.faults = self.bucket.network.faults = CALM
        await asyncio.sleep(QUIET)
        await self.start()
        # What warm processes remember has to be as good as what the fresh one finds.
        for process in self.processes:
            client = Client(self, "last", [process])
            for path in self.mix.paths:
                await client.read_all(path)
        self.listed = await self.processes[-1].streams.list("", "", len(self.mix.paths) + 1)

    async def start(self, **settings: Any) -> Process:
        """Another process; some remember hardly anything."""
        process = Process(self, **{"open_streams": self.chance.choice((1, 100)), **settings})
        await process.store.open()
        self.processes.append(process)
        return process

    async def kill(self) -> None:
        self.processes.pop(self.chance.randrange(len(self.processes))).kill()
        await self.start()

    async def tidy(self) -> None:
        """Once this has returned, everything that is to go has gone."""
        for seconds in (UPLOAD_INTENT_SECONDS, GRACE):
            await asyncio.sleep(seconds + QUIET)
            done = -1
            while done < len(self.table.changes):
                done = len(self.table.changes)
                await self.processes[-1].streams.sweep()


class Client:
    """Somebody whose calls become events; each call goes to any of the processes."""

    def __init__(self, world: World, name: str, processes: Sequence[Process] | None = None) -> None:
        self.world = world
        self.name = name
        self.chance = world.chance
        self._processes = world.processes if processes is None else processes
        self._bodies = itertools.count()

    async def pause(self) -> None:
        await asyncio.sleep(self.chance.random() * self.chance.choice(self.world.mix.pauses))

    def path(self) -> str:
        return self.chance.choice([*self.world.mix.paths])

    def body(self) -> bytes:
        """Unlike any other, and mostly small."""
        large = self.chance.random() < self.world.mix.large
        size = INLINE_BYTES if large else self.chance.choice((0, 10, 20, 300))
        return f"<{self.name}.{next(self._bodies)}{'.' * size}>".encode()

    # Writing

    async def create(self, path: str, **more: Any) -> Created | None:
        more = {"content_type": TEXT, **self.world.mix.paths[path], **more}
        if "lifetime" in more:
            more["expires_at"] = system_clock() + more.pop("lifetime")
        request = Create(**more)
        invoked = now()
        created: Created | None = None
        try:
            created = await self._ask(path, "create", lambda s: s.create(path, request))
        except StreamNotFound:
            assert request.fork is not None
            self._missing(request.fork.source, invoked)
        except (ClosedWithoutResponse, TailraceError):
            pass
        # Whatever the answer was: an attempt that was given up may be carried out later.
        outcomes: list[Outcome] = [Unknown()]
        if created is not None:
            life = {"incarnation": created.stream.id, "new": created.new}
            self._record(happened.Create, path, invoked, **life)
            if created.new:
                outcomes.append(Acknowledged(created.next_offset))
                if request.fork is not None and request.fork.slot is None:
                    self.world.forked.append(Forked(created.stream.id, invoked))
        for outcome in outcomes:
            if request.body:
                sent = {"body": request.body, "close": request.closed}
                self._record(happened.Append, path, invoked, outcome=outcome, **sent)
            elif request.closed:
                self._record(happened.Close, path, invoked, outcome=outcome)
        return created

    async def append(
        self,
        path: str,
        body: bytes,
        producer: Producer | None = None,
        *,
        seq: str | None = None,
        expected: Position | None = None,
        close: bool = False,
    ) -> Outcome:
        invoked = now()
        if seq is not None:
            self.world.sequences[body] = seq
        if expected is not None:
            self.world.expected[body] = expected
        request = Append(body, TEXT, close, seq, producer, expected=expected)
        outcome = await self._send(path, request)
        sent = {"body": body, "producer": producer, "close": close}
        self._record(happened.Append, path, invoked, outcome=outcome, **sent)
        return outcome

    async def close(self, path: str) -> Outcome:
        invoked = now()
        outcome = await self._send(path, Append(b"", close=True))
        self._record(happened.Close, path, invoked, outcome=outcome)
        return outcome

    async def delete(self, path: str) -> None:
        """Which incarnation it was, the table will tell."""
        invoked = now()
        try:
            await self._ask(path, "delete", lambda s: s.delete(path))
        except (StreamNotFound, StreamGone):
            self._missing(path, invoked)
        except (ClosedWithoutResponse, StoreUnavailable, StreamTooHot):
            return

    # Reading

    async def find(self, path: str) -> None:
        invoked = now()

        async def find(streams: Streams) -> View:
            tail = await streams.find(path)
            # At once: a tail goes on to change.
            end = tail.committed
            return View(tail, (), end.tail, end.offset, end.size, True, end.closed)

        try:
            view = await self._ask(path, "find", find)
        except (StreamNotFound, StreamGone):
            self._missing(path, invoked)
        except (ClosedWithoutResponse, StoreUnavailable, StreamTooHot):
            return
        else:
            self._seen(path, invoked, parse(view.next_offset), view)

    async def read(self, path: str, position: Position, seconds: float = 0.0) -> View | None:
        """Read the data, waiting for it for so many seconds."""
        invoked = now()

        async def read(streams: Streams) -> tuple[Position, View]:
            view = await streams.read(path, position)
            end = parse(view.next_offset)
            if seconds and not view.bodies and not view.closed:
                return end, await streams.follow(view.tail, view.end, seconds)
            return (end if position.slot == NOW else position), view

        try:
            start, view = await self._ask(path, "read", read)
        except (StreamNotFound, StreamGone):
            self._missing(path, invoked)
            return None
        except OffsetTrimmed as error:
            trimmed = Trimmed(path, position.slot, error.earliest, now())
            self.world.trimmed.append(trimmed)
            return None
        except StaleOffset:
            self.world.stale.append(Stale(path, position, invoked, now()))
            return None
        except (ClosedWithoutResponse, StoreUnavailable, StreamTooHot):
            return None
        self._seen(path, invoked, start, view)
        return view

    async def read_all(self, path: str, position: Position = BEGIN) -> None:
        view = await self.read(path, position)
        while view is not None and not view.up_to_date:
            view = await self.read(path, parse(view.next_offset))

    # Care

    async def sweep(self) -> None:
        try:
            await self._ask("", "sweep", lambda s: s.sweep())
        except (ClosedWithoutResponse, StoreUnavailable, StreamTooHot):
            return

    # Inside

    async def _send(self, path: str, request: Append) -> Outcome:
        try:
            accepted = await self._ask(path, "append", lambda s: s.append(path, request))
        except (ClosedWithoutResponse, OutcomeUnknown):
            return Unknown()
        except TailraceError as error:
            if isinstance(error, StreamClosed | OffsetMismatch):
                self.world.offsets[path].append(error.next_offset)
            return Rejected(error.code)
        offset = accepted.next_offset
        self.world.offsets[path].append(offset)
        return Acknowledged(offset) if accepted.new else Duplicate(offset)

    async def _ask(
        self, path: str, verb: str, work: Callable[[Streams], Coroutine[Any, Any, T]]
    ) -> T:
        process = self.chance.choice(self._processes)
        invoked = now()
        outcome = "unheard"
        try:
            result = await self._hear(process, work(process.streams))
            outcome = "fine"
        except TailraceError as error:
            outcome = error.code
            if status_of(error) == 500:
                raise AssertionError(f"{verb} of '{path}' failed") from error
            raise
        finally:
            self.world.calls.append(Call(path, verb, invoked, now(), outcome))
        return result

    async def _hear(self, process: Process, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.ensure_future(work)
        task.add_done_callback(_heard)
        leaves = self.chance.random() < self.world.mix.impatience
        patience = self.chance.random() * 0.1 if leaves else None
        first = asyncio.FIRST_COMPLETED
        await asyncio.wait((task, process.death), timeout=patience, return_when=first)
        if task.done():
            return task.result()
        if not process.death.done():
            task.cancel()
        raise ClosedWithoutResponse

    def _seen(self, path: str, invoked: float, start: Position, view: View) -> None:
        self._record(
            happened.Read,
            path,
            invoked,
            start=token(*start),
            bodies=tuple(view.bodies),
            next_offset=view.next_offset,
            up_to_date=view.up_to_date,
            closed=view.closed,
            incarnation=view.tail.stream.id,
        )

    def _missing(self, path: str, invoked: float) -> None:
        self._record(happened.Missing, path, invoked)

    def _record(
        self, kind: Callable[..., happened.Event], path: str, invoked: float, **more: Any
    ) -> None:
        self.world.history.record(kind(stream=path, invoked=invoked, returned=now(), **more))


def now() -> float:
    """Virtual time orders events: what happens at the same moment counts as concurrent."""
    return asyncio.get_running_loop().time()


def _heard(task: asyncio.Task[Any]) -> None:
    """Retrieve the outcome of a call whose caller was cancelled."""
    if not task.cancelled():
        task.exception()
