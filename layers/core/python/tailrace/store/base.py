"""The interface of a store. The rules are in `tailrace.log`, the loops in `tailrace.streams`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

from tailrace.errors import StoreUnavailable
from tailrace.log.state import Chunk, Entry, Listed, Producer, SlotInfo, State, Stream


class Tail(Protocol):
    """A stream as a store holds it open."""

    stream: Stream

    @property
    def state(self) -> State:
        """The state that a writer builds on; it may be ahead of what is committed, or behind."""

    @property
    def committed(self) -> State:
        """The newest committed state that the store has seen: all that a reader may see."""

    @property
    def soft_deleted(self) -> bool:
        """Whether the stream was deleted, but is kept for its forks."""

    @property
    def earliest(self) -> int:
        """The first slot that can be read, inherited or its own: retention removed those before."""

    @property
    def accessed(self) -> int:
        """The last read or write that reached the stream, in milliseconds."""

    @property
    def watched(self) -> bool:
        """Whether a reader waits for the next slot; such a stream does not expire."""


T = TypeVar("T", bound=Tail)
R = TypeVar("R")


class ReadResult(NamedTuple):
    """A stream and its data from a slot on, as they were at one moment."""

    tail: Tail
    chunk: Chunk
    end: State | None
    """The stream's state, if the chunk reaches its end."""


class SegmentInfo(NamedTuple):
    """A segment: slots `first` to `stop` of a stream."""

    first: int
    stop: int
    bytes: int
    committed_at: int
    """When it was written, in milliseconds."""


class StoredDetails(NamedTuple):
    """How a stream is stored, beside its state."""

    hot_from: int
    """The first slot after those in segments; 0: there is no segment."""
    cold_bytes: int
    """Bytes of data in segments."""
    segments: Sequence[SegmentInfo]
    """The newest segments, the newest first."""
    forks: int
    fork_paths: Sequence[str]
    """Forks that the store can name, in order."""
    producers: Sequence[Producer]
    """Producers that are no longer part of the state."""


class Probed(Protocol):
    async def probe(self) -> None:
        """Check that the storage does its part: that it can be read and, by one that writes,
        written. Raises `StoreUnavailable`."""


class Waiter(Protocol):
    """Is told what became of a `put`: a future, or what answers at once."""

    def done(self) -> bool:
        """Whether nobody waits any more."""

    def set_result(self, slot: int | None, /) -> None:
        """Take the result. May begin other puts."""

    def set_exception(self, error: Exception, /) -> None:
        """Take the reason of a failure. May not call the store: other puts have yet to fail."""


class Store(Probed, Protocol[T]):
    """A place where streams are kept; `T` is its own kind of tail.

    Every method except `held` and `wake` raises `StoreUnavailable` when the storage
    behind it does not do its part. On DynamoDB it also raises `StreamTooHot` when one key is used
    more often than DynamoDB allows, and a write whose answer was lost raises `OutcomeUnknown`. The
    docstrings below name only the errors beside these. A read raises `DamagedData` when what it
    asks for is not there as it was written."""

    observer: Callable[[Stream, State], None] | None
    """Is told the stream and its state after each entry that this process has committed, in its
    event loop."""

    @property
    def damaged(self) -> int:
        """How many files or objects this process has found damaged."""

    async def open(self) -> None:
        """Connect to the storage.

        Raises `UnreadableData`, `DataDirectoryInUse` or `BadSetting` when it cannot be used."""

    async def close(self) -> None:
        """Commit what was accepted, end every wait, and release the storage."""

    # For writers

    async def tail(self, path: str) -> T | None:
        """Return the stream at a path, strongly consistent; None when there is none."""

    def held(self, path: str) -> T | None:
        """Return the stream at a path if it is in memory, without asking the storage.

        It may be outdated: filling a slot shows that, and so does `confirm`."""

    def put(self, tail: T, before: State, entry: Entry) -> asyncio.Future[int | None]:
        """Fill the next slot with an entry that was decided on `before`, durably.

        Entries that wait for the same write may share a slot: the entry's own number of it is then
        one too high. Returns the slot to read next after the entry; None when another writer was
        faster or `before` is not the state of `tail`: it is up to date then. The entry stays on its
        way if the caller is cancelled. Raises `BodyTooLarge` when the body fits neither the table
        nor, without a bucket, anything else, and `StreamTooHot` when too many entries wait."""

    def put_then(self, tail: T, before: State, entry: Entry, waiter: Waiter) -> None:
        """Fill the next slot as `put` does, and tell `waiter`."""

    async def confirm(self, tail: T) -> bool:
        """Wait until what `tail.state` says is committed and current.

        Returns False when it is not: a conclusion that was drawn from it has to be drawn again."""

    async def producer(self, tail: T, producer: str) -> tuple[int, int] | None:
        """Return epoch and last sequence of a producer that was spilled from a committed state."""

    async def create(self, stream: Stream, entries: Sequence[Entry]) -> T | None:
        """Create a chain with its first entries, under a free name.

        Returns None when the name or the fork's source changed meanwhile. Raises `BodyTooLarge` as
        `put` does."""

    async def drop(self, tail: T) -> bool:
        """Delete a stream: free its name, or soft-delete it while forks need its data.

        Returns False when the stream changed meanwhile and nothing was done."""

    async def touch(self, tail: T, now: int) -> None:
        """Note an access; it is stored with the lag that `log.expiry` allows.

        Raises nothing: an access that could not be stored is stored by a later one."""

    # For readers

    async def read_at(
        self, path: str, slot: int, chunk_bytes: int, after: int = 0
    ) -> ReadResult | None:
        """Return the stream at a path and its data from `slot` on, strongly consistent.

        `slot` may be `offsets.NOW` for the tail, or `offsets.BEGINNING` for the first slot that is
        kept; it may lie in what a fork inherits. The chunk ends after the slot that passes the
        first multiple of `chunk_bytes` from the beginning of `slot` on; it is empty at the tail and
        beyond. The appends of `slot` that end at the offset `after` or before are left out. Returns
        None when there is no such stream. Raises `SlotTrimmed` when `slot` is no longer kept."""

    async def read(
        self, chain: int, slot: int, stop: int, chunk_bytes: int, after: int = 0
    ) -> Chunk:
        """Return slots of one chain from `slot` up to `stop`, ending as in `read_at`.

        Raises `SlotTrimmed` when `slot` is not kept."""

    async def start_of(self, chain: int, slot: int) -> tuple[int, int]:
        """Return offset and size at which `slot` of a chain begins.

        Raises `SlotTrimmed` when the slot before it, which says so, is not kept."""

    async def slot_info(self, chain: int, slot: int) -> SlotInfo:
        """Return the offset after `slot` of a chain, and when it was filled.

        Raises `SlotTrimmed` when it is not kept."""

    async def wait(self, tail: T, slot: int, seconds: float) -> bool:
        """Wait until `slot` is filled, or the stream ends or is replaced.

        Returns False when the time is up. Raises nothing: the read that follows does."""

    def wake(self) -> None:
        """End every wait now."""

    async def list(self, prefix: str, after: str, limit: int, now: int) -> Sequence[Listed]:
        """Return streams whose path begins with `prefix` and sorts after `after`, in order."""

    async def details(self, tail: T, limit: int) -> StoredDetails:
        """Return how a stream is stored, with at most `limit` segments, forks and producers."""

    # Maintenance

    async def expiring(self, now: int) -> Sequence[str]:
        """Return paths of streams that expired by their stored time of access."""

    async def sweep(self) -> None:
        """Remove for good what deleted streams and lost races left behind."""


@dataclass(slots=True)
class Compacted:
    """Progress of a compaction: what was moved so far."""

    streams: int = 0
    segments: int = 0
    entries: int = 0
    bytes: int = 0
    failed: list[str] = field(default_factory=list)
    """A message for each stream whose entries do not follow each other; they stay in the table."""


@runtime_checkable
class Compacting(Protocol):
    """A store that moves its older entries into segments itself."""

    async def compact(self, progress: Callable[[Compacted], None] | None = None) -> Compacted:
        """Move entries that fill a segment; `progress` is called after each segment."""


class Read(Protocol):
    """`Store.read`."""

    def __call__(
        self, chain: int, slot: int, stop: int, chunk_bytes: int, after: int
    ) -> Awaitable[Chunk]: ...


async def read_through(
    read: Read, stream: Stream, slot: int, stop: int, chunk_bytes: int, after: int = 0
) -> Chunk:
    """Read one chunk of a stream: inherited data of a fork, then its own, as if in one chain."""
    if slot >= stream.config.base[0]:
        return await read(stream.id, slot, stop, chunk_bytes, after)
    lineage = stream.config.fork.lineage if stream.config.fork else ()
    bodies: list[bytes] = []
    chunk = Chunk((), slot, 0, 0)
    boundary = None
    cold = True
    for chain, until in [*lineage, (stream.id, stop)]:
        if chunk.slot >= until:
            continue
        # Where the first slot begins, all of it tells.
        whole = await read(chain, slot, slot + 1, chunk_bytes, 0) if after else None
        chunk = await read(chain, chunk.slot, until, chunk_bytes, after)
        after = 0
        if boundary is None:
            first = whole or chunk
            begin = first.size - sum(map(len, first.bodies))
            boundary = (begin // chunk_bytes + 1) * chunk_bytes
        bodies += chunk.bodies
        cold = cold and chunk.cold
        if chunk.slot < until or chunk.size >= boundary:
            break
    return chunk._replace(bodies=bodies, cold=cold)


def resolve(future: asyncio.Future[R], result: R, error: StoreUnavailable | None = None) -> None:
    """End a wait, unless its caller was cancelled."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def pass_on(waiter: Waiter, done: asyncio.Future[int | None]) -> None:
    """Tell a waiter the outcome of a future."""
    try:
        slot = done.result()
    except Exception as error:  # noqa: BLE001 - the waiter takes any
        waiter.set_exception(error)
    else:
        waiter.set_result(slot)
