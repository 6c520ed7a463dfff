"""The index of a segment: where the bytes of its slots and appends are, and what is known of them.

Appends are numbered from 0, which is the first of the segment.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from tailrace.log.content import Mode


class Range(NamedTuple):
    """The bytes of a segment that answer a read, and where the next slot begins."""

    begin: int
    end: int
    slot: int
    offset: int
    size: int
    append: int
    """The number of the first append."""


class Index:
    """Which slots and appends a segment holds, and where."""

    __slots__ = (
        "_comma", "_offsets", "_sizes", "_starts", "_times", "chain", "checksums", "first", "mode",
        "stop",
    )  # fmt: skip

    def __init__(
        self, chain: int, mode: Mode, first: int, starts: Sequence[int], sizes: Sequence[int],
        offsets: Sequence[int], times: Sequence[int], checksums: Sequence[int],
    ) -> None:  # fmt: skip
        """`starts` has the first append of each slot, `sizes` and `offsets` those of the stream
        before each append; and each of them has one more, after the last."""
        self.chain = chain
        self.mode = mode
        self.first = first
        self.stop = first + len(times)
        self.checksums = checksums
        """Of each block of the data; version 1 does not have them."""
        self._starts = starts
        self._sizes = sizes
        self._offsets = offsets
        self._times = times
        self._comma = 1 if mode is Mode.JSON else 0

    @property
    def weight(self) -> int:
        """How many appends and blocks it has: roughly, what it takes in memory."""
        return len(self._sizes) - 1 + len(self.checksums)

    def start_of(self, slot: int) -> tuple[int, int]:
        """Offset and size at which `slot` begins; it may be the one after the last."""
        append = self._starts[slot - self.first]
        return self._offsets[append], self._sizes[append]

    def time(self, slot: int) -> int:
        """When `slot` was written, in milliseconds."""
        return self._times[slot - self.first]

    def range(self, slot: int, stop: int, boundary: int, after: int = 0) -> Range:
        """The slots from `slot` up to `stop`, but none after the first that passes `boundary`.

        Appends of `slot` that end at the offset `after` or before it are left out. If all do, the
        range begins with the next slot; it is empty if that is `stop`, or not in the segment, or
        if `slot` passes the boundary."""
        starts, sizes, offsets = self._starts, self._sizes, self._offsets
        place, limit = slot - self.first, min(stop, self.stop) - self.first
        append = starts[place]
        if after > offsets[append]:
            append = bisect_right(offsets, after, append + 1, starts[place + 1] + 1) - 1
        place = bisect_left(starts, boundary, place + 1, limit, key=sizes.__getitem__)
        end = starts[place]
        begin_byte, end_byte = self._position(append), self._position(end)
        return Range(
            begin_byte, max(begin_byte, end_byte - self._comma), self.first + place, offsets[end],
            sizes[end], append,
        )  # fmt: skip

    def split(self, part: Range, data: bytes, begin: int) -> list[bytes]:
        """The bodies of the appends of a range; `data` are the bytes of the segment from `begin`
        on, at least up to its end."""
        first, end = part.append, self._starts[part.slot - self.first]
        origin, comma = self._sizes[0] + begin, self._comma
        cuts = [
            size - origin + comma * append
            for append, size in enumerate(self._sizes[first : end + 1], first)
        ]
        return [data[a : b - comma] for a, b in pairwise(cuts)]

    def _position(self, append: int) -> int:
        """Where an append begins in the data."""
        return self._sizes[append] - self._sizes[0] + self._comma * append
