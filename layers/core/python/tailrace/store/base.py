"""The verbs of every store. The rules are in `tailrace.log`, the loops in `tailrace.streams`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

from tailrace.log.slots import Chunk, SlotInfo
from tailrace.log.state import Entry, Listed, State, Stream


class Tail(Protocol):
    """A stream as a store holds it open."""

    stream: Stream

    @property
    def state(self) -> State:
        """What a writer builds on; may be ahead of what is committed, or behind it."""

    @property
    def committed(self) -> State:
        """What is committed, as far as the store has seen: all that a reader may see."""

    @property
    def soft_deleted(self) -> bool:
        """Deleted, but kept for its forks."""

    @property
    def earliest(self) -> int:
        """The first slot that can be read, be it inherited: retention let go of those before."""

    @property
    def accessed(self) -> int:
        """The last read or write that reached the stream, in milliseconds."""

    @property
    def watched(self) -> bool:
        """Whether somebody waits for the next slot; such a stream does not expire."""


class ReadResult(NamedTuple):
    """A stream and its data from a slot on, as they were at one moment."""

    tail: Tail
    chunk: Chunk
    end: State | None
    """The stream's state, if the chunk reaches its end."""


class Store(Protocol):
    async def open(self) -> None: ...

    async def close(self) -> None: ...

    # For writers

    async def tail(self, path: str) -> Tail | None:
        """The stream at a path, strongly consistent; None when there is none."""

    def held(self, path: str) -> Tail | None:
        """The stream at a path as far as it is known without asking.

        It may be outdated: filling a slot tells, and so does `settle`."""

    def append_lock(self, path: str) -> AbstractAsyncContextManager[None] | None:
        """Whose turn it is to append, where writers of one process would only disturb each other.

        None where they do not."""

    def put(self, tail: Tail, entry: Entry) -> Awaitable[bool]:
        """Fill the entry's slot, durably. False when it was filled already; `tail` knows then."""

    async def confirm(self, tail: Tail) -> bool:
        """Wait until what `tail.state` says is committed and current.

        False when it is not: whatever was concluded from it has to be concluded again."""

    async def producer(self, tail: Tail, producer: str) -> tuple[int, int] | None:
        """What was spilled about a producer."""

    async def create(self, stream: Stream, entries: Sequence[Entry]) -> Tail | None:
        """Claim the name for a new chain. None when name or fork source changed meanwhile."""

    async def drop(self, tail: Tail) -> bool:
        """Delete: free the name, or keep it soft-deleted while forks need the data.

        False when the stream changed meanwhile and nothing was done."""

    async def touch(self, tail: Tail, now: int) -> None:
        """Note an access; stored with the lag that `log.expiry` allows."""

    # For readers

    async def read_at(self, path: str, slot: int, chunk_bytes: int) -> ReadResult | None:
        """The stream at a path and its data from `slot` on, strongly consistent.

        `slot` may be `offsets.NOW` for the tail, or `offsets.BEGINNING` for the first slot that is
        kept; it may lie in what a fork inherits. The chunk ends at the first multiple of
        `chunk_bytes` passed; it is empty at the tail and beyond. `SlotTrimmed` when `slot` is no
        longer kept."""

    async def read(self, chain: int, slot: int, stop: int, chunk_bytes: int) -> Chunk:
        """Slots of one chain from `slot` up to `stop`, ending as in `look`."""

    async def position(self, chain: int, slot: int) -> tuple[int, int]:
        """Offset and size at which `slot` of a chain begins."""

    async def slot_info(self, chain: int, slot: int) -> SlotInfo:
        """The offset after `slot` of a chain, and its time; `SlotTrimmed` when it is not kept."""

    async def wait(self, tail: Tail, slot: int, seconds: float) -> bool:
        """Until `slot` is filled, the stream ends or changes hands; False when time is up."""

    def wake(self) -> None:
        """End every wait now."""

    async def list(self, prefix: str, after: str, limit: int, now: int) -> Sequence[Listed]:
        """Streams whose path begins with `prefix` and sorts after `after`, in order."""

    # Care

    async def expiring(self, now: int) -> Sequence[str]:
        """Paths whose stored clock says that they expired."""

    async def sweep(self) -> None:
        """Remove for good what deleted streams and lost races left behind."""


@dataclass(slots=True)
class Compacted:
    """What a compaction has moved so far."""

    streams: int = 0
    segments: int = 0
    entries: int = 0
    bytes: int = 0
    failed: list[str] = field(default_factory=list)
    """A sentence for each stream whose entries do not follow each other: those stay."""


@runtime_checkable
class Compacting(Protocol):
    """A store that moves its older entries to history itself."""

    async def compact(self, progress: Callable[[Compacted], None] | None = None) -> Compacted:
        """Move what fills segments; `progress` is called after each."""


Read = Callable[[int, int, int, int], Awaitable[Chunk]]


async def read_through(read: Read, stream: Stream, slot: int, stop: int, chunk_bytes: int) -> Chunk:
    """One chunk: for a fork inherited data, then its own, as if it were one chain."""
    if slot >= stream.config.base[0]:
        return await read(stream.id, slot, stop, chunk_bytes)
    lineage = stream.config.fork.lineage if stream.config.fork else ()
    bodies: list[bytes] = []
    chunk = Chunk((), slot, 0, 0)
    boundary = 0
    cold = True
    for chain, until in [*lineage, (stream.id, stop)]:
        if chunk.slot >= until:
            continue
        chunk = await read(chain, chunk.slot, until, chunk_bytes)
        if not bodies:
            begin = chunk.size - sum(map(len, chunk.bodies))
            boundary = (begin // chunk_bytes + 1) * chunk_bytes
        bodies += chunk.bodies
        cold = cold and chunk.cold
        if chunk.slot < until or chunk.size >= boundary:
            break
    return chunk._replace(bodies=bodies, cold=cold)
