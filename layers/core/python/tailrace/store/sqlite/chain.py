"""A stream that the embedded store holds open: tail, newest appends, and the waits for it."""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from typing import TYPE_CHECKING

from tailrace.log.slots import appends
from tailrace.log.state import Chunk, Entry, State, Stream

if TYPE_CHECKING:
    from tailrace.store.sqlite.writes import Put

OVERHEAD = 200
"""Bytes of memory an append takes beside its body."""


class Hot:
    """Appends of consecutive slots: bodies, slots, and the offset and size after each."""

    __slots__ = ("_bodies", "_gone", "_offsets", "_sizes", "_slots", "begin", "first")

    def __init__(self, first: int, size: int) -> None:
        self.first = first
        """The first slot of which all appends are here."""
        self.begin = size
        """The size at which it begins."""
        self._gone = 0
        self._bodies: list[bytes] = []
        self._slots = array("q")
        self._offsets = array("q")
        self._sizes = array("q")

    def append(self, slot: int, body: bytes, offset: int, size: int) -> None:
        self._bodies.append(body)
        self._slots.append(slot)
        self._offsets.append(offset)
        self._sizes.append(size)

    def drop_oldest(self) -> None:
        """Forget the first append; the lists are cut only when that is worth it."""
        index = self._gone
        if self._slots[index] >= self.first:
            # What is left of its slot, if anything, is not the whole of it.
            last = bisect_right(self._slots, self.first, index) - 1
            self.first += 1
            self.begin = self._sizes[last]
        self._bodies[index] = b""
        self._gone = index + 1
        if self._gone > 256 and self._gone * 2 > len(self._bodies):
            del self._bodies[: self._gone]
            del self._slots[: self._gone]
            del self._offsets[: self._gone]
            del self._sizes[: self._gone]
            self._gone = 0

    def read(self, slot: int, stop: int, chunk_bytes: int, after: int = 0) -> Chunk:
        """As `Store.read`, for slots from `first` on."""
        slots = self._slots
        begin = bisect_left(slots, slot, self._gone)
        size = self.begin if slot == self.first else self._sizes[begin - 1]
        boundary = (size // chunk_bytes + 1) * chunk_bytes
        end = bisect_left(slots, stop, begin)
        end = min(end, bisect_left(self._sizes, boundary, begin, end) + 1)
        end = bisect_right(slots, slots[end - 1], end - 1)
        if after:
            begin = max(begin, bisect_right(self._offsets, after, begin, bisect_right(slots, slot)))
        return Chunk(
            self._bodies[begin:end],
            slots[end - 1] + 1,
            self._offsets[end - 1],
            self._sizes[end - 1],
        )


class Budget:
    """Keeps all chains' hot entries together within a number of bytes, the oldest leaving first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._order: deque[tuple[Hot, int]] = deque()

    def append(self, hot: Hot, entry: Entry) -> None:
        """Add the appends of an entry, which has data."""
        slot, body, state, _, _, parts = entry
        assert body is not None
        if parts:
            for one, offset, size, _ in appends(body, parts, state):
                self._add(hot, slot, one, offset, size)
        else:
            self._add(hot, slot, body, state.offset, state.size)
        while self._used > self._limit:
            oldest, cost = self._order.popleft()
            oldest.drop_oldest()
            self._used -= cost

    def _add(self, hot: Hot, slot: int, body: bytes, offset: int, size: int) -> None:
        hot.append(slot, body, offset, size)
        cost = len(body) + OVERHEAD
        self._order.append((hot, cost))
        self._used += cost


class Chain:
    __slots__ = (
        "accessed",
        "committed",
        "earliest",
        "hot",
        "open_put",
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
        self.open_put: Put | None = None
        """The newest entry, which further appends may still join."""
        self.hot = Hot(state.slot, state.size)
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
