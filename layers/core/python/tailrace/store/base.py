"""The verbs of every store. The rules are in `tailrace.log`, the loops in `tailrace.streams`."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import NamedTuple, Protocol

from tailrace.log.state import Entry, State, Stream


class Tail(Protocol):
    """A stream as a store holds it open."""

    stream: Stream
    state: State
    """What a writer builds on; may be ahead of what is committed."""
    settled: State
    """What is committed: all that a reader may see."""
    soft: bool
    """Deleted, but kept for its forks."""
    accessed: int
    """The last read or write that reached the stream, in milliseconds."""

    @property
    def watched(self) -> bool:
        """Whether somebody waits for the next slot; such a stream does not expire."""


class Chunk(NamedTuple):
    """Consecutive bodies of a chain, and where the next slot begins."""

    bodies: Sequence[bytes]
    n: int
    offset: int
    size: int


class Listed(NamedTuple):
    """A stream in a listing."""

    stream: Stream
    state: State


class Store(Protocol):
    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def tail(self, path: str) -> Tail | None:
        """The stream at a path, strongly consistent; None when there is none."""

    def held(self, path: str) -> Tail | None:
        """The stream at a path if that can be told without waiting."""

    def put(self, tail: Tail, entry: Entry) -> Awaitable[bool]:
        """Fill the entry's slot, durably. False when it was filled already; `tail` knows then."""

    async def settle(self, tail: Tail) -> None:
        """Wait until all that `tail.state` says is committed."""

    async def producer(self, tail: Tail, producer: str) -> tuple[int, int] | None:
        """What was spilled about a producer."""

    async def create(self, stream: Stream, entries: Sequence[Entry]) -> Tail | None:
        """Claim the name for a new chain. None when name or fork source changed meanwhile."""

    async def drop(self, tail: Tail) -> bool:
        """Delete: free the name, or keep it soft-deleted while forks need the data.

        False when the stream changed meanwhile and nothing was done."""

    def touch(self, tail: Tail, now: int) -> None:
        """Note an access; stored with the lag that `log.expiry` allows."""

    async def read(self, chain: int, n: int, stop: int, chunk_bytes: int) -> Chunk:
        """Slots from `n` up to `stop`, ending at the first multiple of `chunk_bytes` passed.

        `SlotTrimmed` when slot `n` is no longer kept."""

    async def position(self, chain: int, n: int) -> tuple[int, int]:
        """Offset and size at which slot `n` of a chain begins."""

    async def wait(self, tail: Tail, n: int, seconds: float) -> None:
        """Until slot `n` is filled, the stream ends or changes hands, or time is up."""

    def wake(self) -> None:
        """End every wait now."""

    async def list(self, prefix: str, after: str, limit: int, now: int) -> Sequence[Listed]:
        """Streams whose path begins with `prefix` and sorts after `after`, in order."""

    async def expiring(self, now: int) -> Sequence[str]:
        """Paths whose stored clock says that they expired."""

    async def sweep(self) -> None:
        """Remove for good what deleted streams and lost races left behind."""
