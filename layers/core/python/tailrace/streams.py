"""The streams: rules and store put together. Every protocol Tailrace speaks calls these.

The loop is always the same: read the tail, let the rules decide, fill the next slot; a request that
loses the race for the slot starts again.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, Protocol

from tailrace import metrics
from tailrace.clock import Clock, system_clock
from tailrace.errors import (
    InvalidJson,
    OffsetTrimmed,
    SlotTrimmed,
    StaleOffset,
    StoreUnavailable,
    StreamConflict,
    StreamGone,
    StreamNotFound,
    TailraceError,
)
from tailrace.limits import JSON_EVENT_LOOP_BYTES
from tailrace.log.append import Accepted, Append, decide
from tailrace.log.content import Mode, drop, length, mode
from tailrace.log.create import (
    Create,
    ForkFrom,
    ForkPoint,
    first_entries,
    fork_config,
    fork_lineage,
    fork_point,
    fork_slot,
    new_config,
    require_same,
)
from tailrace.log.expiry import expired, renewal_slack
from tailrace.log.json_mode import Flat, split
from tailrace.log.offsets import BEGINNING, Position, epoch_of, token
from tailrace.log.state import Config, Entry, Listed, SlotInfo, State, Stream
from tailrace.settings import Settings
from tailrace.store.base import Store, StoredDetails, Tail, Waiter

_APPENDED = ("appends_appended_total",)
_APPENDED_BYTES = ("appends_bytes_total",)

ATTEMPTS = 256
"""Races that a request may lose before it gives up; stores see to it that none loses as many."""

BRIEFEST_WAIT = 0.05
"""Seconds after which a reader that waits looks again at a stream that is about to expire."""


class Created(NamedTuple):
    stream: Stream
    state: State
    new: bool

    @property
    def next_offset(self) -> str:
        return self.state.next_offset(self.stream.config.epoch)


class Appended(NamedTuple):
    """An append that is committed, or was before."""

    slot: int
    """The slot to read next after it."""
    offset: int
    next_offset: str
    closed: bool
    new: bool
    """False if an earlier request did the same."""
    producer_seq: int | None
    """The highest sequence accepted from the request's producer."""
    is_end: bool
    """Whether the offset is the end of what was requested: if that was done before, it may be that
    of a later append."""


class Appending(Waiter):
    """An append that was decided, and waits for its slot."""

    __slots__ = ("epoch", "offset", "size")

    epoch: int
    """Of the stream."""
    offset: int
    """Of the stream after the append."""
    size: int
    """Bytes that it stores."""

    def count(self) -> None:
        """Count the append as stored."""
        metrics.counts[_APPENDED] += 1
        metrics.counts[_APPENDED_BYTES] += self.size


class View(NamedTuple):
    """A piece of a stream as a reader sees it."""

    tail: Tail
    bodies: Sequence[bytes]
    """Data, a body for each append."""
    end: int
    """The slot to read next."""
    offset: int
    """Of the stream after the data."""
    size: int
    """Of the stream after the data."""
    up_to_date: bool
    closed: bool
    """Whether the reader has everything there will ever be."""
    cold: bool = False
    """Whether all of it comes from segments, where it has been for a while."""

    @property
    def next_offset(self) -> str:
        return token(self.end, self.offset, self.tail.stream.config.epoch)

    @property
    def start_size(self) -> int:
        """The size of the stream before the data."""
        return self.size - sum(map(len, self.bodies))

    def start_offset(self) -> int:
        """Count how much data lies before the piece; in JSON mode that reads all of its bodies."""
        return self.offset - _steps(self.tail.stream.config.mode, self.bodies)

    def messages(self, start: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Iterate over JSON messages, each with the offset after it. `start`: that before the first
        of them, if it is known."""
        offset = self.start_offset() if start is None else start
        each_is_one = self.offset - offset == len(self.bodies)
        for body in self.bodies:
            for message in (body,) if each_is_one else split(body):
                offset += 1
                yield offset, message


class Checker(Protocol):
    """Flattens large JSON bodies without holding up the event loop."""

    async def flatten(self, body: bytes) -> Flat | InvalidJson: ...


class StreamObserver(Protocol):
    """Is told what this process has done to streams; it must not raise."""

    def appended(self, stream: Stream, state: State) -> None: ...

    def created(self, path: str) -> None: ...

    def deleted(self, stream: int) -> None: ...


class Streams:
    def __init__(self, store: Store[Any], settings: Settings, clock: Clock = system_clock) -> None:
        self.store = store
        self.clock = clock
        self.draining = False
        """Set when the server stops: live readers get what there is, and are not kept waiting."""
        self.checker: Checker | None = None
        """Where many requests share a process; else the rules flatten every body themselves."""
        self._observer: StreamObserver | None = None
        self._watchers: dict[str, set[asyncio.Event]] = {}
        self._chunk_bytes = settings.chunk_bytes
        self._read_only = settings.read_only
        self._renews = settings.read_only_renews or not settings.read_only

    def observe(self, observer: StreamObserver) -> None:
        self._observer = observer
        self.store.observer = observer.appended

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
                if await self.store.confirm(tail):
                    require_same(tail.stream.config, tail.committed, request)
                    return Created(tail.stream, tail.committed, new=False)
            await _back_off(attempt)
        raise _too_busy(path)

    async def append(self, path: str, request: Append) -> Appended:
        if len(request.body) > JSON_EVENT_LOOP_BYTES and self.checker and _is_json(request):
            # Only if the stream exists, since the work would be wasted otherwise.
            await self.find(path)
            request = request._replace(flat=await self.checker.flatten(request.body))
        return await self._append(path, request)

    def begin_append(self, path: str, request: Append, appending: Appending) -> bool:
        """Begin an append to a stream that is at hand; returns False where `append` has to do it:
        it may have to ask the store, to wait, or to refuse."""
        tail = self.store.held(path)
        if tail is None or tail.soft_deleted:
            return False
        config, state = tail.stream.config, tail.state
        if config.ttl is not None or config.expires_at is not None:
            return False
        try:
            accepted = decide(config, state, request, self.clock())
        except TailraceError:
            return False
        entry = accepted.entry
        if entry is None:
            return False
        appending.epoch, appending.offset = config.epoch, accepted.state.offset
        appending.size = accepted.state.size - state.size
        self.store.put_then(tail, state, entry, appending)
        return True

    async def delete(self, path: str) -> None:
        for attempt in range(ATTEMPTS):
            tail = await self.find(path)
            if await self.store.drop(tail):
                self._deleted(tail)
                return
            await _back_off(attempt)
        raise _too_busy(path)

    # Reading

    async def find(self, path: str) -> Tail:
        """Return the live stream at a path; one that has expired is deleted first."""
        while True:
            tail: Tail | None = await self.store.tail(path)
            if tail is None:
                raise StreamNotFound(path)
            if await self._lives(tail):
                return tail

    async def access(self, path: str) -> Tail:
        """Return the live stream at a path for a read, which restarts its idle window."""
        tail = await self.find(path)
        await self._renew(tail)
        return tail

    async def read(self, path: str, position: Position, chunk_bytes: int | None = None) -> View:
        """Return the data from a client's position on, up to the end of its chunk.

        `chunk_bytes`: another size of chunks than that of the settings. Raises `StaleOffset` when
        no stream at this path can have given the position."""
        slot, offset, epoch = position
        try:
            view = await self.view(path, slot, offset, chunk_bytes)
        except OffsetTrimmed:
            self._check_epoch(await self.find(path), epoch)
            raise
        self._check_epoch(view.tail, epoch)
        if slot > view.end:
            raise StaleOffset("the offset lies beyond the end of the stream")
        return view

    async def read_last(self, path: str, count: int, chunk_bytes: int | None = None) -> View:
        """Return the last messages of a stream, or its last bytes if it is not JSON, up to the end
        of the first chunk."""
        while True:
            position = await self.last(path, count)
            # Retention may have moved the beginning of the stream meanwhile, or another stream have
            # taken its path.
            with suppress(OffsetTrimmed, StaleOffset):
                view = await self.read(path, position, chunk_bytes)
                break
        if sum(map(len, view.bodies)) > JSON_EVENT_LOOP_BYTES:
            return await asyncio.to_thread(_cut, view, position.offset)
        return _cut(view, position.offset)

    async def read_since(self, path: str, instant: int, chunk_bytes: int | None = None) -> View:
        """Return what was appended at an instant (milliseconds) or later, up to the end of the
        first chunk."""
        while True:
            position = await self.since(path, instant)
            with suppress(OffsetTrimmed, StaleOffset):
                return await self.read(path, position, chunk_bytes)

    async def last(self, path: str, count: int) -> Position:
        """Return where the last messages or bytes of a stream begin, which may be in an append."""
        tail = await self.find(path)
        offset = max(0, tail.committed.offset - count)
        return Position(await self.slot_after(tail, offset), offset, tail.stream.config.epoch)

    async def since(self, path: str, instant: int) -> Position:
        """Return where the appends of an instant (milliseconds) or later begin."""
        tail = await self.find(path)
        return Position(await self.slot_since(tail, instant), 0, tail.stream.config.epoch)

    async def view(
        self, path: str, slot: int, after: int = 0, chunk_bytes: int | None = None
    ) -> View:
        """Return the data from a slot on, up to the end of its chunk; this counts as an access.

        `after`: the appends of the slot that end at this offset or before are left out."""
        beginning = slot == BEGINNING
        while True:
            try:
                result = await self.store.read_at(
                    path, slot, chunk_bytes or self._chunk_bytes, after
                )
            except SlotTrimmed as error:
                if beginning:
                    slot = max(slot + 1, error.earliest)
                    continue
                raise await self._trimmed(await self.access(path), error.earliest) from None
            if result is None:
                raise StreamNotFound(path)
            tail, chunk, end = result
            if not await self._lives(tail):
                continue
            if end is None and not chunk.bodies:
                # The reader has all appends of the slot, so it goes on at the next one.
                slot, after = chunk.slot, 0
                continue
            await self._renew(tail)
            closed = end is not None and end.closed
            return View(
                tail, chunk.bodies, chunk.slot, chunk.offset, chunk.size, end is not None, closed,
                chunk.cold,
            )  # fmt: skip

    async def follow(self, tail: Tail, slot: int, seconds: float) -> View:
        """Return the data from `slot` on, waiting for it if there is none yet."""
        path, incarnation = tail.stream.path, tail.stream.id
        now = asyncio.get_running_loop().time
        end = now() + seconds
        while True:
            left = end - now()
            if left > 0 and not self.draining:
                await self.wait(tail, slot, left)
            view = await self.view(path, slot)
            tail = view.tail
            if tail.stream.id != incarnation:
                raise StreamNotFound(path)
            if view.bodies or view.closed or self.draining or now() >= end:
                return view

    async def wait(self, tail: Tail, slot: int, seconds: float) -> None:
        """Wait for `slot`, or until the stream expires; a waiting reader keeps its TTL alive."""
        ttl, expires_at = tail.stream.config.ttl, tail.stream.config.expires_at
        if expires_at is not None:
            seconds = min(seconds, max(BRIEFEST_WAIT, (expires_at - self.clock()) / 1000))
        if ttl is None:
            await self.store.wait(tail, slot, seconds)
            return
        now = asyncio.get_running_loop().time
        end = now() + seconds
        pause = max(renewal_slack(ttl) / 1000, BRIEFEST_WAIT)
        while (left := end - now()) > 0:
            happened = await self.store.wait(tail, slot, min(left, pause))
            await self._renew(tail)
            if happened or self.draining:
                return

    async def start_of(self, tail: Tail, slot: int) -> tuple[int, int]:
        """Return offset and size at which a slot begins, own or inherited.

        Raises `SlotTrimmed` when it is not kept."""
        if not slot:
            return 0, 0
        chain = fork_lineage(tail.stream, slot)[-1].id
        try:
            return await self.store.start_of(chain, slot)
        except SlotTrimmed:
            _, offset, size = await self._start_of(tail, slot)
            return offset, size

    async def earliest_offset(self, tail: Tail) -> str:
        """Return the token of the first data that is retained."""
        while True:
            slot = tail.earliest
            try:
                offset, _ = await self.start_of(tail, slot)
            except SlotTrimmed:
                tail = await self.find(tail.stream.path)
            else:
                return token(slot, offset, tail.stream.config.epoch)

    async def slot_after(self, tail: Tail, offset: int) -> int:
        """Return the first slot that leads past an offset, or the tail."""
        if tail.committed.offset <= offset:
            return tail.committed.tail
        # Where each append is one message, the slot has the number of the message.
        return await self._first(tail, lambda info: info.offset > offset, offset)

    async def slot_since(self, tail: Tail, instant: int) -> int:
        """Return the first slot filled at an instant (milliseconds) or later, or the tail."""
        if tail.committed.written_at < instant:
            return tail.committed.tail
        return await self._first(tail, lambda info: info.written_at >= instant, tail.committed.tail)

    @contextmanager
    def watching(self, path: str) -> Iterator[asyncio.Event]:
        """Give an event that is set when this process creates or deletes a stream at a path, or
        stops: nothing follows a closed stream that could notice its deletion."""
        event = asyncio.Event()
        watchers = self._watchers.setdefault(path, set())
        watchers.add(event)
        try:
            yield event
        finally:
            watchers.discard(event)
            if not watchers:
                self._watchers.pop(path, None)

    async def list(self, prefix: str, after: str, limit: int) -> Sequence[Listed]:
        return await self.store.list(prefix, after, limit, self.clock())

    async def details(self, path: str, limit: int) -> tuple[Tail, StoredDetails, int]:
        """Return a stream, how it is stored, and how many of its bytes are in no segment; this is
        no access that would renew its TTL."""
        tail = await self.find(path)
        stored = await self.store.details(tail, limit)
        first = max(stored.hot_from, tail.earliest, tail.stream.config.base[0])
        _, size = await self.start_of(tail, first)
        return tail, stored, tail.committed.size - size

    # Maintenance

    async def sweep(self) -> None:
        """Delete expired streams, and remove for good what deleted ones left behind."""
        for path in await self.store.expiring(self.clock()):
            try:
                await self.find(path)
            except (StreamNotFound, StreamGone):
                continue
        await self.store.sweep()

    def drain(self) -> None:
        self.draining = True
        self.store.wake()
        for path in self._watchers:
            self._notify(path)

    # Inside

    async def _append(self, path: str, request: Append) -> Appended:
        for _ in range(ATTEMPTS):
            tail = self.store.held(path)
            if tail is None or self._needs_refresh(tail):
                tail = await self.find(path)
            await self._renew(tail)
            state = tail.state
            spilled = None
            producer = request.producer
            if producer is not None and state.spilled and producer.id not in state.producers:
                if state.spilled != tail.committed.spilled:
                    # What is about to be spilled cannot be read yet, and may never be.
                    await self.store.confirm(tail)
                    continue
                spilled = await self.store.producer(tail, producer.id)
                if tail.state.spilled != state.spilled:
                    continue
                state = tail.state
            try:
                accepted = decide(tail.stream.config, state, request, self.clock(), spilled)
            except TailraceError as error:
                # The state that the answer rests on must be true, and stay true after a crash.
                if await self.store.confirm(tail):
                    metrics.count("appends_refused_total", error.code)
                    raise
                continue
            if accepted.entry is None:
                if await self.store.confirm(tail):
                    return _appended(tail, accepted, accepted.state.tail)
                continue
            slot = await self.store.put(tail, state, accepted.entry)
            if slot is not None:
                return _appended(tail, accepted, slot)
        raise _too_busy(path)

    @staticmethod
    def _check_epoch(tail: Tail, epoch: int) -> None:
        if epoch not in (0, tail.stream.config.epoch):
            raise StaleOffset("the offset is of an earlier stream at this path")

    def _notify(self, path: str) -> None:
        for event in self._watchers.get(path, ()):
            event.set()

    def _deleted(self, tail: Tail) -> None:
        self._notify(tail.stream.path)
        if self._observer is not None:
            self._observer.deleted(tail.stream.id)

    def _needs_refresh(self, tail: Tail) -> bool:
        """Whether a stream seems to be deleted or expired, which only the store can confirm."""
        return tail.soft_deleted or expired(tail.stream.config, tail.accessed, self.clock())

    async def _create(self, path: str, request: Create) -> Created | None:
        now = self.clock()
        point = None
        incarnation = secrets.randbits(62)
        if request.fork is None:
            config = new_config(request, now, epoch_of(incarnation))
        else:
            config, point = await self._fork(request, now)
        entries = await self._first_entries(config, request, point)
        stream = Stream(path, incarnation, config)
        if await self.store.create(stream, entries) is None:
            return None
        self._notify(path)
        if self._observer is not None:
            self._observer.created(path)
        return Created(stream, _state_after(config, entries), new=True)

    async def _first_entries(
        self, config: Config, request: Create, point: ForkPoint | None
    ) -> Sequence[Entry]:
        if len(request.body) > JSON_EVENT_LOOP_BYTES and config.mode is Mode.JSON and self.checker:
            request = request._replace(flat=await self.checker.flatten(request.body))
        if point is not None and sum(map(len, point.bodies)) > JSON_EVENT_LOOP_BYTES:
            return await asyncio.to_thread(first_entries, config, request, point)
        return first_entries(config, request, point)

    async def _fork(self, request: Create, now: int) -> tuple[Config, ForkPoint]:
        fork = request.fork
        assert fork is not None
        try:
            source = await self.find(fork.source)
        except StreamGone:
            raise StreamConflict(f"the source '{fork.source}' was deleted") from None
        await self.store.confirm(source)
        # Read once: the store refuses the fork if retention has advanced meanwhile.
        slot = fork_slot(source.stream.config, source.committed, fork)
        earliest = source.earliest
        if slot < earliest:
            raise await self._trimmed(source, earliest)
        try:
            point = await self._fork_point(source, slot, fork)
        except SlotTrimmed:
            raise await self._trimmed(source, slot) from None
        # Times of a chain never decrease, even if the clock was set back since the last entry.
        created = max(now, source.committed.written_at)
        return fork_config(request, source.stream, point, created, earliest), point

    async def _fork_point(self, source: Tail, slot: int, fork: ForkFrom) -> ForkPoint:
        start = await self.start_of(source, slot)
        inside = fork.offset if fork.slot is not None else 0
        if inside <= start[0] and not fork.sub_offset:
            return ForkPoint(slot, *start)
        result = await self.store.read_at(source.stream.path, slot, 1)
        bodies = result.chunk.bodies if result else ()
        mode = source.stream.config.mode
        if sum(map(len, bodies)) > JSON_EVENT_LOOP_BYTES:
            point = await asyncio.to_thread(fork_point, mode, slot, start, bodies, inside)
        else:
            point = fork_point(mode, slot, start, bodies, inside)
        if point.slot != slot and fork.sub_offset:
            return await self._fork_point(source, point.slot, fork._replace(offset=0))
        copies = point.kept or (fork.sub_offset and point.body)
        if not copies:
            return point
        info = await self.store.slot_info(_chain_of(source.stream, slot), slot)
        return point._replace(written_at=info.written_at)

    async def _trimmed(self, tail: Tail, slot: int) -> OffsetTrimmed:
        """Build the error for a read before the earliest retained slot."""
        while True:
            try:
                first, offset, _ = await self._start_of(tail, slot)
                return OffsetTrimmed(token(first, offset, tail.stream.config.epoch))
            except SlotTrimmed as error:
                slot = max(slot + 1, error.earliest)

    async def _start_of(self, tail: Tail, slot: int) -> tuple[int, int, int]:
        """Return a slot, or the tail if that is before it, and the offset and size where it begins.

        They are computed from the slot itself: the one before it is no longer kept."""
        result = await self.store.read_at(tail.stream.path, slot, 1)
        if result is None:
            raise StreamNotFound(tail.stream.path)
        chunk, kind = result.chunk, tail.stream.config.mode
        size = sum(map(len, chunk.bodies))
        if size > JSON_EVENT_LOOP_BYTES:
            moved = await asyncio.to_thread(_steps, kind, chunk.bodies)
        else:
            moved = _steps(kind, chunk.bodies)
        return slot if chunk.bodies else chunk.slot, chunk.offset - moved, chunk.size - size

    async def _first(self, tail: Tail, is_past: Callable[[SlotInfo], bool], guess: int) -> int:
        """Find the first slot that `is_past`: in doubling steps from a guess, then by halves."""
        low, high = tail.earliest, tail.committed.tail
        probe, step = guess, 1
        outcomes: set[bool] = set()
        while low < high:
            probe = min(max(probe, low), high - 1)
            try:
                past = is_past(await self.store.slot_info(_chain_of(tail.stream, probe), probe))
            except SlotTrimmed as error:
                low = max(probe + 1, error.earliest)
                continue
            if past:
                high = probe
            else:
                low = probe + 1
            outcomes.add(past)
            if len(outcomes) == 2:
                probe = (low + high) // 2
            else:
                probe += -step if past else step
                step *= 2
        return low

    async def _lives(self, tail: Tail) -> bool:
        """Whether a stream is live; one that has expired is deleted now."""
        if tail.soft_deleted:
            raise StreamGone(tail.stream.path)
        config = tail.stream.config
        if config.ttl is None and config.expires_at is None:
            return True
        if config.ttl and tail.watched:
            await self._renew(tail)
        if not expired(config, tail.accessed, self.clock()):
            return True
        if self._read_only:
            raise StreamNotFound(tail.stream.path)
        await self.store.drop(tail)
        self._deleted(tail)
        return False

    async def _renew(self, tail: Tail) -> None:
        if tail.stream.config.ttl is not None and self._renews:
            await self.store.touch(tail, self.clock())


def _appended(tail: Tail, accepted: Accepted, slot: int) -> Appended:
    state = accepted.state
    next_offset = token(slot, state.offset, tail.stream.config.epoch)
    entry = accepted.entry
    new = entry is not None
    if entry is None:
        metrics.count("appends_duplicates_total")
    else:
        metrics.counts[_APPENDED] += 1
        metrics.counts[_APPENDED_BYTES] += len(entry.body or b"")
    return Appended(
        slot, state.offset, next_offset, state.closed, new, accepted.producer_seq, accepted.is_end
    )


def _cut(view: View, offset: int) -> View:
    """Return a view that begins at an offset, which may lie inside of its first append."""
    excess = offset - view.start_offset() if view.bodies else 0
    if excess <= 0:
        return view
    first, *rest = view.bodies
    return view._replace(bodies=[drop(view.tail.stream.config.mode, first, excess), *rest])


def _steps(mode: Mode, bodies: Sequence[bytes]) -> int:
    return sum(length(mode, body) for body in bodies)


def _is_json(request: Append) -> bool:
    return request.content_type is not None and mode(request.content_type) is Mode.JSON


def _chain_of(stream: Stream, slot: int) -> int:
    """Return the chain that has `slot` of a stream: the first slots of a fork are its source's."""
    if slot < stream.config.base[0] and stream.config.fork is not None:
        return next(each.id for each in stream.config.fork.lineage if slot < each.until)
    return stream.id


def _state_after(config: Config, entries: Sequence[Entry]) -> State:
    return entries[-1].state if entries else config.initial_state()


async def _back_off(attempt: int) -> None:
    await asyncio.sleep(random.uniform(0, min(0.001 * 2**attempt, 0.1)))  # noqa: S311 - no secret


def _too_busy(path: str) -> StoreUnavailable:
    return StoreUnavailable(f"'{path}' changed too often to write to it; try again")
