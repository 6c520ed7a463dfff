"""The newest entries of a chain in memory, ready to send."""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_left
from collections import deque

from tailrace.log.state import Chunk, State, Stream


class Chain:
    __slots__ = (
        "accessed",
        "committed",
        "earliest",
        "hot",
        "soft_deleted",
        "stable",
        "state",
        "stored",
        "storing",
        "stream",
        "touched",
        "waiters",
        "watchers",
    )

    def __init__(self, stream: Stream, state: State, stored: int, *, soft: bool = False) -> None:
        self.stream = stream
        self.state = state
        self.committed = state
        self.soft_deleted = soft
        self.earliest = stream.config.earliest
        self.accessed = stored
        self.touched = False
        """Whether `accessed` was seen by this process, not concluded from the file."""
        self.stored = stored
        """The time of access that the file knows."""
        self.storing = stored
        """The newest time of access on its way to the file."""
        self.stable = True
        """False while the stream's creation or deletion is not committed yet."""
        self.hot = Hot(state.slot, state.offset, state.size)
        self.waiters: set[asyncio.Future[bool]] = set()
        self.watchers = 0
        """Waits that have not returned yet; some may have been woken already."""

    @property
    def watched(self) -> bool:
        return self.watchers > 0

    @property
    def idle(self) -> bool:
        """Whether nothing would be lost if the chain were read from the file again."""
        return (
            self.stable
            and self.state is self.committed
            and not self.watchers
            and (self.stored == self.accessed or not self.touched)
        )

    def wake(self) -> None:
        """End all waits; each counts as watching until its caller has resumed."""
        waiters, self.waiters = self.waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(True)


OVERHEAD = 200
"""Bytes of memory an entry takes beside its body."""


class Hot:
    """Consecutive slots: bodies, and the offset and size after each."""

    __slots__ = ("_bodies", "_gone", "_offsets", "_sizes", "first", "start")

    def __init__(self, first: int, offset: int, size: int) -> None:
        self.first = first
        self.start = (offset, size)
        self._gone = 0
        self._bodies: list[bytes] = []
        self._offsets = array("q")
        self._sizes = array("q")

    def append(self, body: bytes, offset: int, size: int) -> None:
        self._bodies.append(body)
        self._offsets.append(offset)
        self._sizes.append(size)

    def drop_oldest(self) -> None:
        """Forget the first slot; the lists are cut only when that is worth it."""
        index = self._gone
        self.start = (self._offsets[index], self._sizes[index])
        self._bodies[index] = b""
        self._gone = index + 1
        self.first += 1
        if self._gone > 256 and self._gone * 2 > len(self._bodies):
            del self._bodies[: self._gone]
            del self._offsets[: self._gone]
            del self._sizes[: self._gone]
            self._gone = 0

    def start_of(self, slot: int) -> tuple[int, int]:
        """Offset and size at which `slot` begins."""
        if slot == self.first:
            return self.start
        index = self._gone + slot - self.first - 1
        return self._offsets[index], self._sizes[index]

    def read(self, slot: int, stop: int, chunk_bytes: int) -> Chunk:
        begin = self._gone + slot - self.first
        end = self._gone + stop - self.first
        size = self.start_of(slot)[1]
        boundary = (size // chunk_bytes + 1) * chunk_bytes
        end = min(end, bisect_left(self._sizes, boundary, begin, end) + 1)
        return Chunk(
            self._bodies[begin:end],
            slot + end - begin,
            self._offsets[end - 1],
            self._sizes[end - 1],
        )


class Budget:
    """Keeps all chains' hot entries together within a number of bytes, the oldest leaving first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._order: deque[tuple[Hot, int]] = deque()

    def append(self, hot: Hot, body: bytes, offset: int, size: int) -> None:
        cost = len(body) + OVERHEAD
        hot.append(body, offset, size)
        self._order.append((hot, cost))
        self._used += cost
        while self._used > self._limit:
            oldest, cost = self._order.popleft()
            oldest.drop_oldest()
            self._used -= cost
