"""A segment: consecutive entries of one chain in one immutable object, as in `docs/segments.md`.

    data      the bodies back to back, as they are served: with a comma between two JSON bodies
    index     zlib of a JSON line that says which slots these are, and columns of numbers
    trailer   32 bytes: lengths and checksums of both, the version, and a magic word

A read from any slot is a read of the index, which is small and can be kept, and of one range of
the data.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise, repeat
from struct import Struct
from typing import Any, Final, NamedTuple

import orjson

from tailrace.log.content import Mode
from tailrace.log.state import Producer

VERSION: Final = 1
MAGIC: Final = b"tailrace-1\n"

LEVEL: Final = 6
"""Of zlib: steps between neighbours are mostly small, so that columns shrink to a tenth."""

_TRAILER: Final = Struct("<QIIIB11s")
TRAILER_BYTES: Final = _TRAILER.size
_SWAPPED: Final = sys.byteorder == "big"


class BadSegment(Exception):
    """An object that is no segment, or records that cannot be one."""


class Record(NamedTuple):
    """An entry on its way into a segment."""

    slot: int
    offset: int
    """The offset after it."""
    size: int
    """The size of the stream after it."""
    written_at: int
    """When it was written, in milliseconds."""
    body: bytes
    author: Producer | None = None
    """The producer request that wrote it, if one did."""


class Range(NamedTuple):
    """The bytes of a segment that answer a read, and where the next slot begins."""

    begin: int
    end: int
    slot: int
    offset: int
    size: int


class Parts(NamedTuple):
    """A segment taken apart: each column has a number for each slot."""

    chain: int
    mode: Mode
    first: int
    offset: int
    """Of the stream before the first slot, as the next."""
    size: int
    lengths: array[int]
    steps: array[int]
    pauses: array[int]
    authors: Sequence[tuple[str, int]]
    """Producers and epochs of whom slots are; when it is empty, the next two say nothing."""
    who: array[int]
    """The place of a slot's author among them, from 1 on; 0 when it has none."""
    seqs: array[int]
    data: bytes

    @property
    def stop(self) -> int:
        return self.first + len(self.lengths)

    @property
    def end(self) -> tuple[int, int]:
        """Offset and size after the last slot."""
        return self.offset + sum(self.steps), self.size + sum(self.lengths)

    def bodies(self) -> Iterator[bytes]:
        comma = 1 if self.mode is Mode.JSON else 0
        begin = 0
        for length in self.lengths:
            yield self.data[begin : begin + length]
            begin += length + comma

    def producers(self) -> Iterator[Producer | None]:
        """Iterate over the producer request that wrote each slot, or None."""
        if not self.authors:
            yield from repeat(None, len(self.lengths))
            return
        for author, seq in zip(self.who, self.seqs, strict=True):
            yield Producer(*self.authors[author - 1], seq) if author else None


class Authors:
    """Builds the list of producers and the two columns that say which of them wrote each slot."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, int], int] = {}
        self._who, self._seqs = array("Q"), array("Q")

    def add(self, author: Producer | None) -> None:
        place = 0
        if author is not None:
            producer = author.id, author.epoch
            place = self._places.setdefault(producer, len(self._places) + 1)
        self._who.append(place)
        self._seqs.append(0 if author is None else author.seq)

    def columns(self) -> tuple[Sequence[tuple[str, int]], array[int], array[int]]:
        return [*self._places], self._who, self._seqs


class Index:
    """Which slots a segment holds, and where."""

    __slots__ = ("_comma", "_offsets", "_sizes", "_times", "chain", "first", "mode", "stop")

    def __init__(
        self, chain: int, mode: Mode, first: int, sizes: Sequence[int], offsets: Sequence[int],
        times: Sequence[int],
    ) -> None:  # fmt: skip
        """`sizes` and `offsets` begin with those of the stream before the first slot."""
        self.chain = chain
        self.mode = mode
        self.first = first
        self.stop = first + len(times)
        self._sizes = sizes
        self._offsets = offsets
        self._times = times
        self._comma = 1 if mode is Mode.JSON else 0

    def start_of(self, slot: int) -> tuple[int, int]:
        """Offset and size at which `slot` begins; it may be the one after the last."""
        return self._offsets[slot - self.first], self._sizes[slot - self.first]

    def time(self, slot: int) -> int:
        """When `slot` was written, in milliseconds."""
        return self._times[slot - self.first]

    def range(self, slot: int, stop: int, boundary: int) -> Range:
        """The slots from `slot` up to `stop`, but none after the first that passes `boundary`."""
        sizes, begin = self._sizes, slot - self.first
        end = min(stop, self.stop) - self.first
        end = min(end, bisect_left(sizes, boundary, begin + 1, end))
        start = sizes[begin] - sizes[0] + self._comma * begin
        length = sizes[end] - sizes[begin] + self._comma * (end - begin - 1)
        return Range(start, start + length, self.first + end, self._offsets[end], sizes[end])

    def split(self, slot: int, stop: int, data: bytes) -> list[bytes]:
        """The bodies of the slots from `slot` up to `stop`, of which `data` are the bytes."""
        sizes = self._sizes[slot - self.first : stop - self.first + 1]
        starts = [size - sizes[0] + self._comma * i for i, size in enumerate(sizes)]
        return [data[a : b - self._comma] for a, b in pairwise(starts)]


class Trailer(NamedTuple):
    """The last bytes of a segment: the lengths and checksums of its parts."""

    data_bytes: int
    index_bytes: int
    data_checksum: int
    index_checksum: int

    @classmethod
    def read(cls, segment: bytes) -> Trailer:
        """From the end of a segment, or from the whole of it."""
        if len(segment) < TRAILER_BYTES:
            raise BadSegment("it is too short to be a segment")
        *values, version, magic = _TRAILER.unpack(segment[-TRAILER_BYTES:])
        if magic != MAGIC:
            raise BadSegment("it does not end like a segment")
        if version != VERSION:
            raise BadSegment(f"its version is {version}, but this Tailrace reads only {VERSION}")
        return cls(*values)

    @property
    def size(self) -> int:
        """Of the whole object."""
        return self.data_bytes + self.index_bytes + TRAILER_BYTES


def seal(chain: int, mode: Mode, start: tuple[int, int], records: Iterable[Record]) -> bytes:
    """The segment that holds the records: consecutive slots, at least one.

    `start`: offset and size of the stream before the first of them."""
    bodies: list[bytes] = []
    lengths, steps, pauses = array("Q"), array("Q"), array("Q")
    authors = Authors()
    first, written_at = -1, 0
    offset, size = start
    for record in records:
        if first < 0:
            first = record.slot
        size += len(record.body)
        follows = (record.slot, record.size) == (first + len(bodies), size)
        if not follows or record.offset < offset or record.written_at < written_at:
            raise BadSegment(
                f"slot {record.slot} of {chain:016x} does not follow the one before it"
            )
        bodies.append(record.body)
        lengths.append(len(record.body))
        steps.append(record.offset - offset)
        pauses.append(record.written_at - written_at)
        authors.add(record.author)
        offset, written_at = record.offset, record.written_at
    if not bodies:
        raise BadSegment("a segment has at least one slot")
    data = (b"," if mode is Mode.JSON else b"").join(bodies)
    return pack(
        Parts(
            chain, mode, first, start[0], start[1], lengths, steps, pauses, *authors.columns(), data
        )
    )


def pack(parts: Parts) -> bytes:
    """Return the bytes of a segment, without checking its parts."""
    columns = [parts.lengths, parts.steps, parts.pauses]
    about: list[Any] = [
        f"{parts.chain:016x}", parts.mode.value, parts.first, len(parts.lengths), parts.offset,
        parts.size,
    ]  # fmt: skip
    if parts.authors:
        about.append(parts.authors)
        columns += [parts.who, parts.seqs]
    index = zlib.compress(orjson.dumps(about) + b"\n" + b"".join(map(_pack_column, columns)), LEVEL)
    data = parts.data
    checksums = zlib.crc32(data), zlib.crc32(index)
    trailer = _TRAILER.pack(len(data), len(index), *checksums, VERSION, MAGIC)
    return b"".join((data, index, trailer))


def unpack(segment: bytes) -> Parts:
    """A whole segment taken apart; `BadSegment` when a byte of it is not as it was written."""
    trailer = Trailer.read(segment)
    if trailer.size != len(segment):
        raise BadSegment(f"it has {len(segment)} bytes, not {trailer.size}")
    data = segment[: trailer.data_bytes]
    if zlib.crc32(data) != trailer.data_checksum:
        raise BadSegment("its data is damaged")
    packed = segment[trailer.data_bytes : -TRAILER_BYTES]
    parts = _unpack_index(packed, trailer.index_checksum)._replace(data=data)
    commas = len(parts.lengths) - 1 if parts.mode is Mode.JSON else 0
    if sum(parts.lengths) + commas != len(data):
        raise BadSegment("its index does not fit its data")
    return parts


def read_index(packed: bytes, checksum: int) -> Index:
    """The index from its bytes in a segment."""
    parts = _unpack_index(packed, checksum)
    return Index(
        parts.chain,
        parts.mode,
        parts.first,
        array("Q", accumulate(parts.lengths, initial=parts.size)),
        array("Q", accumulate(parts.steps, initial=parts.offset)),
        array("Q", accumulate(parts.pauses)),
    )


def _unpack_index(packed: bytes, checksum: int) -> Parts:
    if zlib.crc32(packed) != checksum:
        raise BadSegment("its index is damaged")
    about, _, columns = zlib.decompress(packed).partition(b"\n")
    chain, mode, first, slots, offset, size, *rest = orjson.loads(about)
    authors = [(producer, epoch) for producer, epoch in rest[0]] if rest else []
    if len(columns) != 8 * slots * (5 if authors else 3):
        raise BadSegment("its index does not have as many numbers as slots")
    numbers = _unpack_column(columns)
    lengths, steps, pauses, who, seqs = (numbers[i * slots : (i + 1) * slots] for i in range(5))
    return Parts(
        int(chain, 16), Mode(mode), first, offset, size, lengths, steps, pauses, authors, who, seqs,
        b"",
    )  # fmt: skip


def _pack_column(column: array[int]) -> bytes:
    if _SWAPPED:
        column = column[:]
        column.byteswap()
    return column.tobytes()


def _unpack_column(packed: bytes) -> array[int]:
    column = array("Q", packed)
    if _SWAPPED:
        column.byteswap()
    return column
