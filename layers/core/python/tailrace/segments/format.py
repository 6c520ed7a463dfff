"""A segment: consecutive entries of one chain in one immutable object, as in `docs/segments.md`.

    data      the bodies back to back, as they are served: with a comma between two JSON bodies
    index     zlib of a JSON line that says which slots these are, columns of numbers, and checksums
              of the blocks of the data
    trailer   32 bytes: lengths and checksums of both, the version, and a magic word

A slot holds one or more appends, which were committed together. A read from any of them is a read
of the index, which is small and can be kept, and of one range of the data.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise, repeat
from struct import Struct
from typing import Any, Final, NamedTuple

import orjson

from tailrace.log.content import Mode
from tailrace.log.state import Producer
from tailrace.segments.index import Index

VERSION: Final = 2
"""The version that is written; version 1, with one append per slot and no blocks, is read too."""

MAGIC: Final = b"tailrace-1\n"

BLOCK_BYTES: Final = 1 << 14
"""Of data under one checksum: a read of a few bytes reads as many, and the checksums of a full
segment take 10 KB of its index."""

_PIECE_BYTES: Final = 1 << 12
"""Of a block at a time. From 5 KiB on zlib releases the interpreter's lock for a few microseconds,
and may wait milliseconds until a busy thread returns it."""

LEVEL: Final = 6
"""Of zlib: steps between neighbours are mostly small, so that columns shrink to a tenth."""

_TRAILER: Final = Struct("<QIIIB11s")
TRAILER_BYTES: Final = _TRAILER.size
_SWAPPED: Final = sys.byteorder == "big"


class BadSegment(Exception):
    """An object that is no segment, or records that cannot be one."""


class Record(NamedTuple):
    """An append on its way into a segment; those of one slot follow each other."""

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


class Parts(NamedTuple):
    """A segment taken apart: columns with a number for each append, or for each slot."""

    chain: int
    mode: Mode
    first: int
    offset: int
    """Of the stream before the first slot, as the next."""
    size: int
    lengths: array[int]
    steps: array[int]
    pauses: array[int]
    """Between slots; the first is the time since 1970."""
    authors: Sequence[tuple[str, int]]
    """Producers and epochs of whom appends are; when it is empty, the next two say nothing."""
    who: array[int]
    """The place of an append's author among them, from 1 on; 0 when it has none."""
    seqs: array[int]
    data: bytes
    counts: Sequence[int] = ()
    """How many appends each slot holds; may be empty when that is one each."""

    @property
    def stop(self) -> int:
        return self.first + len(self.pauses)

    @property
    def end(self) -> tuple[int, int]:
        """Offset and size after the last slot."""
        return self.offset + sum(self.steps), self.size + sum(self.lengths)

    @property
    def data_bytes(self) -> int:
        """The length of the data, by those of the bodies."""
        commas = len(self.lengths) - 1 if self.mode is Mode.JSON else 0
        return sum(self.lengths) + commas

    def bodies(self) -> Iterator[bytes]:
        comma = 1 if self.mode is Mode.JSON else 0
        begin = 0
        for length in self.lengths:
            yield self.data[begin : begin + length]
            begin += length + comma

    def producers(self) -> Iterator[Producer | None]:
        """Iterate over the producer request that wrote each append, or None."""
        if not self.authors:
            yield from repeat(None, len(self.lengths))
            return
        for author, seq in zip(self.who, self.seqs, strict=True):
            yield Producer(*self.authors[author - 1], seq) if author else None


class Authors:
    """Builds the list of producers and the two columns that say which of them wrote each append."""

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
        _check_version(version)
        return cls(*values)

    @property
    def size(self) -> int:
        """Of the whole object."""
        return self.data_bytes + self.index_bytes + TRAILER_BYTES


def seal(chain: int, mode: Mode, start: tuple[int, int], records: Iterable[Record]) -> bytes:
    """The segment that holds the records: all appends of consecutive slots, at least one.

    `start`: offset and size of the stream before the first of them."""
    bodies: list[bytes] = []
    lengths, steps, pauses, counts = array("Q"), array("Q"), array("Q"), array("Q")
    authors = Authors()
    slot = written_at = 0
    offset, size = start
    for record in records:
        size += len(record.body)
        pause = record.written_at - written_at
        begins = not bodies or record.slot == slot + 1
        follows = (begins and pause >= 0) or (record.slot == slot and pause == 0)
        if not follows or record.size != size or record.offset < offset:
            raise BadSegment(
                f"slot {record.slot} of {chain:016x} does not follow the one before it"
            )
        if begins:
            pauses.append(pause)
            counts.append(0)
        counts[-1] += 1
        bodies.append(record.body)
        lengths.append(len(record.body))
        steps.append(record.offset - offset)
        authors.add(record.author)
        slot, offset, written_at = record.slot, record.offset, record.written_at
    if not bodies:
        raise BadSegment("a segment has at least one slot")
    data = (b"," if mode is Mode.JSON else b"").join(bodies)
    return pack(
        Parts(
            chain, mode, slot + 1 - len(counts), start[0], start[1], lengths, steps, pauses,
            *authors.columns(), data, counts,
        )
    )  # fmt: skip


def pack(parts: Parts) -> bytes:
    """Return the bytes of a segment, without checking its parts."""
    appends, slots = len(parts.lengths), len(parts.pauses)
    about = [
        VERSION, f"{parts.chain:016x}", parts.mode.value, parts.first, slots, appends, parts.offset,
        parts.size, parts.authors,
    ]  # fmt: skip
    columns: list[Sequence[int]] = [parts.lengths, parts.steps, parts.pauses]
    if appends != slots:
        columns.append(parts.counts)
    if parts.authors:
        columns += [parts.who, parts.seqs]
    columns.append(array("Q", checksums(parts.data)))
    index = zlib.compress(orjson.dumps(about) + b"\n" + b"".join(map(_pack_column, columns)), LEVEL)
    data = parts.data
    trailer = _TRAILER.pack(
        len(data), len(index), zlib.crc32(data), zlib.crc32(index), VERSION, MAGIC
    )
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
    parts, blocks = _unpack_index(packed, trailer.index_checksum)
    if parts.data_bytes != len(data) or (blocks and blocks != array("Q", checksums(data))):
        raise BadSegment("its index does not fit its data")
    return parts._replace(data=data)


def read_index(packed: bytes, checksum: int) -> Index:
    """The index from its bytes in a segment."""
    parts, blocks = _unpack_index(packed, checksum)
    counts = parts.counts
    return Index(
        parts.chain,
        parts.mode,
        parts.first,
        array("Q", accumulate(counts, initial=0)) if counts else range(len(parts.lengths) + 1),
        array("Q", accumulate(parts.lengths, initial=parts.size)),
        array("Q", accumulate(parts.steps, initial=parts.offset)),
        array("Q", accumulate(parts.pauses)),
        blocks,
    )


def checksums(data: bytes) -> Iterator[int]:
    """Iterate over the CRC-32 of each block of the data."""
    view = memoryview(data)
    for begin in range(0, len(view), BLOCK_BYTES):
        checksum = 0
        for piece in range(begin, min(begin + BLOCK_BYTES, len(view)), _PIECE_BYTES):
            checksum = zlib.crc32(view[piece : piece + _PIECE_BYTES], checksum)
        yield checksum


def _check_version(version: int) -> None:
    if version not in (1, VERSION):
        raise BadSegment(f"its version is {version}, but this Tailrace reads only 1 and {VERSION}")


def _unpack_index(packed: bytes, checksum: int) -> tuple[Parts, array[int]]:
    """The parts but the data, and the checksums of its blocks, of which version 1 has none."""
    if zlib.crc32(packed) != checksum:
        raise BadSegment("its index is damaged")
    line, _, columns = zlib.decompress(packed).partition(b"\n")
    about: list[Any] = orjson.loads(line)
    if isinstance(about[0], str):
        chain, mode, first, slots, offset, size, *rest = about
        version, appends, authors = 1, slots, rest[0] if rest else []
    else:
        _check_version(about[0])
        version, chain, mode, first, slots, appends, offset, size, authors = about
    numbers = _unpack_column(columns[: len(columns) // 8 * 8])
    widths = [appends, appends, slots, slots if appends != slots else 0]
    widths += [appends, appends] if authors else [0, 0]
    lengths, steps, pauses, counts, who, seqs = (
        numbers[begin:end] for begin, end in pairwise(accumulate(widths, initial=0))
    )
    parts = Parts(
        int(chain, 16), Mode(mode), first, offset, size, lengths, steps, pauses,
        [(producer, epoch) for producer, epoch in authors], who, seqs, b"", counts,
    )  # fmt: skip
    blocks = -(-parts.data_bytes // BLOCK_BYTES) if version > 1 else 0
    if len(columns) != 8 * (sum(widths) + blocks) or (counts and sum(counts) != appends):
        raise BadSegment("its index does not have the numbers that it should have")
    return parts, numbers[sum(widths) :]


def _pack_column(column: Sequence[int]) -> bytes:
    numbers = array("Q", column)
    if _SWAPPED:
        numbers.byteswap()
    return numbers.tobytes()


def _unpack_column(packed: bytes) -> array[int]:
    column = array("Q", packed)
    if _SWAPPED:
        column.byteswap()
    return column
