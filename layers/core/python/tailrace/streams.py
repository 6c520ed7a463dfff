"""The streams: rules and store put together. Every protocol Tailrace speaks calls these.

The loop is always the same: look at the tail, let the rules decide, fill the next slot; whoever
lost the race looks again.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tailrace.errors import (
    OffsetTrimmed,
    SlotTrimmed,
    StoreUnavailable,
    StreamConflict,
    StreamGone,
    StreamNotFound,
    TailraceError,
)
from tailrace.log.append import Accepted, Append, decide
from tailrace.log.content import length
from tailrace.log.create import (
    Create,
    ForkPoint,
    first_entries,
    fork_config,
    fork_lineage,
    fork_slot,
    new_config,
    require_same,
)
from tailrace.log.expiry import expired
from tailrace.log.offsets import NOW, token
from tailrace.log.state import Config, Entry, State, Stream
from tailrace.settings import Settings
from tailrace.store.base import Chunk, Listed, Store, Tail

ATTEMPTS = 64
"""Races that a request may lose before it gives up; with back-off, far more than ever seen."""

Clock = Callable[[], int]


def system_clock() -> int:
    return time.time_ns() // 1_000_000


class Created(NamedTuple):
    stream: Stream
    state: State
    new: bool


class View(NamedTuple):
    """A piece of a stream as a reader sees it."""

    tail: Tail
    bodies: Sequence[bytes]
    start: int
    """The first slot that was asked for."""
    end: int
    """The slot to read next."""
    next_offset: str
    up_to_date: bool
    closed: bool
    """Whether the reader has everything there will ever be."""


class Streams:
    def __init__(self, store: Store, settings: Settings, clock: Clock = system_clock) -> None:
        self.store = store
        self.clock = clock
        self.draining = False
        """Set when the server stops: live readers get what there is and go."""
        self._chunk_bytes = settings.chunk_bytes

    # Writing

    async def create(self, path: str, request: Create) -> Created:
        for attempt in range(ATTEMPTS):
            try:
                tail = await self.find(path)
            except StreamNotFound:
                created = await self._create(path, request)
                if created is not None:
                    return created
            except StreamGone:
                raise StreamConflict(f"'{path}' was deleted, but its forks still need it") from None
            else:
                await self.store.settle(tail)
                require_same(tail.stream.config, tail.settled, request)
                return Created(tail.stream, tail.settled, new=False)
            await _back_off(attempt)
        raise _too_busy(path)

    async def append(self, path: str, request: Append) -> Accepted:
        for attempt in range(ATTEMPTS):
            tail = await self.find(path)
            now = self._renew(tail)
            state = tail.state
            spilled = None
            producer = request.producer
            if producer is not None and state.spilled and producer.id not in state.producers:
                spilled = await self.store.producer(tail, producer.id)
                if tail.state.spilled != state.spilled:
                    continue
            try:
                accepted = decide(tail.stream.config, tail.state, request, now, spilled)
            except TailraceError:
                # What the answer is based on has to be true after a crash, too.
                await self.store.settle(tail)
                raise
            if accepted.entry is None:
                await self.store.settle(tail)
                return accepted
            if await self.store.put(tail, accepted.entry):
                return accepted
            await _back_off(attempt)
        raise _too_busy(path)

    async def delete(self, path: str) -> None:
        for attempt in range(ATTEMPTS):
            if await self.store.drop(await self.find(path)):
                return
            await _back_off(attempt)
        raise _too_busy(path)

    # Reading

    async def find(self, path: str) -> Tail:
        """The live stream at a path. One that expired is deleted by whoever notices first."""
        while True:
            tail = self.store.held(path) or await self.store.tail(path)
            if tail is None:
                raise StreamNotFound(path)
            if tail.soft:
                raise StreamGone(path)
            if not self._expired(tail):
                return tail
            await self.store.drop(tail)

    async def access(self, path: str) -> Tail:
        """The live stream at a path, for a read: its idle window begins anew."""
        tail = await self.find(path)
        self._renew(tail)
        return tail

    async def follow(self, tail: Tail, n: int, seconds: float) -> View:
        """What is at slot `n`, waiting for it if there is nothing yet."""
        path, incarnation = tail.stream.path, tail.stream.id
        end = time.monotonic() + seconds
        while True:
            left = end - time.monotonic()
            if left > 0 and not self.draining:
                await self.store.wait(tail, n, left)
                # Who waited was there all the time.
                self._renew(tail)
            tail = await self.find(path)
            if tail.stream.id != incarnation:
                raise StreamNotFound(path)
            self._renew(tail)
            view = await self.view(tail, n)
            if view.bodies or view.closed or left <= 0 or self.draining:
                return view

    async def view(self, tail: Tail, position: int) -> View:
        """The data from a slot on, up to the end of its chunk."""
        state = tail.settled
        stop = state.tail
        if position == NOW or position >= stop:
            return View(tail, (), stop, stop, state.next_offset, True, state.closed)
        try:
            chunk = await self._read(tail, position, stop)
        except SlotTrimmed as error:
            raise OffsetTrimmed(await self._offset_of(tail, error.earliest)) from None
        done = chunk.n >= stop
        next_offset = token(chunk.n, chunk.offset)
        return View(tail, chunk.bodies, position, chunk.n, next_offset, done, done and state.closed)

    async def list(self, prefix: str, after: str, limit: int) -> Sequence[Listed]:
        return await self.store.list(prefix, after, limit, self.clock())

    # Care

    async def sweep(self) -> None:
        """Delete what expired, and remove what deleted streams left behind."""
        for path in await self.store.expiring(self.clock()):
            try:
                await self.find(path)
            except (StreamNotFound, StreamGone):
                continue
        await self.store.sweep()

    def drain(self) -> None:
        self.draining = True
        self.store.wake()

    # Inside

    async def _create(self, path: str, request: Create) -> Created | None:
        now = self.clock()
        point = None
        if request.fork is None:
            config = new_config(request, now)
        else:
            config, point = await self._fork(request, now)
        entries = first_entries(config, request, point)
        stream = Stream(path, secrets.randbits(62), config)
        if await self.store.create(stream, entries) is None:
            return None
        return Created(stream, _state_after(config, entries), new=True)

    async def _fork(self, request: Create, now: int) -> tuple[Config, ForkPoint]:
        asked = request.fork
        assert asked is not None
        try:
            source = await self.find(asked.source)
        except StreamGone:
            raise StreamConflict(f"the source '{asked.source}' was deleted") from None
        await self.store.settle(source)
        slot = fork_slot(source.settled, asked)
        offset = size = 0
        if slot:
            offset, size = await self.store.position(fork_lineage(source.stream, slot)[-1].id, slot)
        body = None
        if asked.sub_offset:
            view = await self.view(source, slot)
            body = view.bodies[0] if view.bodies else None
        point = ForkPoint(slot, offset, size, body)
        # A fork goes on where its source was, even if the clock was set back since.
        created = max(now, source.settled.at)
        return fork_config(request, source.stream, point, created), point

    async def _read(self, tail: Tail, n: int, stop: int) -> Chunk:
        """One chunk: for a fork inherited data, then its own, as if it were one chain."""
        stream = tail.stream
        if n >= stream.config.base[0]:
            return await self.store.read(stream.id, n, stop, self._chunk_bytes)
        lineage = stream.config.fork.lineage if stream.config.fork else ()
        bodies: list[bytes] = []
        chunk = Chunk((), n, 0, 0)
        boundary = 0
        for chain, until in [*lineage, (stream.id, stop)]:
            if chunk.n >= until:
                continue
            chunk = await self.store.read(chain, chunk.n, until, self._chunk_bytes)
            if not bodies:
                begin = chunk.size - sum(map(len, chunk.bodies))
                boundary = (begin // self._chunk_bytes + 1) * self._chunk_bytes
            bodies += chunk.bodies
            if chunk.n < until or chunk.size >= boundary:
                break
        return chunk._replace(bodies=bodies)

    async def _offset_of(self, tail: Tail, slot: int) -> str:
        """The offset at which a slot begins when the one before it is no longer there to tell."""
        state = tail.settled
        if slot >= state.tail:
            return state.next_offset
        chunk = await self._read(tail, slot, slot + 1)
        return token(slot, chunk.offset - length(tail.stream.config.mode, chunk.bodies[0]))

    def _expired(self, tail: Tail) -> bool:
        config = tail.stream.config
        if config.ttl is None and config.expires_at is None:
            return False
        if config.ttl and tail.watched:
            self._renew(tail)
        return expired(config, tail.accessed, self.clock())

    def _renew(self, tail: Tail) -> int:
        now = self.clock()
        if tail.stream.config.ttl is not None:
            self.store.touch(tail, now)
        return now


def _state_after(config: Config, entries: Sequence[Entry]) -> State:
    return entries[-1].state if entries else config.initial_state()


async def _back_off(attempt: int) -> None:
    await asyncio.sleep(random.uniform(0, min(0.001 * 2**attempt, 0.1)))  # noqa: S311 - no secret


def _too_busy(path: str) -> StoreUnavailable:
    return StoreUnavailable(f"'{path}' changed too often to write to it; try again")
