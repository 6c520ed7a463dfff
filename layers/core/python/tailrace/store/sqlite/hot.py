"""The newest entries of a chain in memory, ready to send."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque

from tailrace.log.state import Chunk

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
