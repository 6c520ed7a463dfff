"""Reads of segments, as steps without I/O: which one has a slot, its index, a range of its data.

A store drives the steps with its own I/O: `store.sqlite.reading` and `store.dynamodb.segments`."""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, TypeVar

from tailrace.log.state import Chunk, SlotInfo
from tailrace.segments.format import (
    BLOCK_BYTES,
    TRAILER_BYTES,
    BadSegment,
    checksums,
    read_index,
    unpack,
)
from tailrace.segments.index import Index, Range


class IndexCache:
    def __init__(self, most: int) -> None:
        """`most` is how many appends and blocks all kept indexes may have together."""
        self._most = most
        self._kept = 0
        self._indexes: OrderedDict[str, Index] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> Index | None:
        with self._lock:
            index = self._indexes.get(key)
            if index is not None:
                self._indexes.move_to_end(key)
            return index

    def keep(self, key: str, index: Index) -> None:
        """Add an index; the latest one stays, however large it is."""
        with self._lock:
            if key in self._indexes:
                return
            self._indexes[key] = index
            self._kept += index.weight
            while self._kept > self._most and len(self._indexes) > 1:
                _, oldest = self._indexes.popitem(last=False)
                self._kept -= oldest.weight


class Manifest(NamedTuple):
    """A segment of a chain: slots `first` up to `stop` are in the object `key`."""

    chain: int
    first: int
    stop: int
    key: str
    data_bytes: int
    index_bytes: int
    index_checksum: int
    committed_at: int
    """When it was committed, in milliseconds: its slots may leave the store a while after that."""
    level: int = 0
    """How often its entries were merged. The embedded store leaves this and the rest at 0."""
    begin: int = 0
    """The size of the stream before its first slot."""
    offset: int = 0
    """The offset after its last slot."""
    size: int = 0
    """The size after its last slot."""


class FindSegment(NamedTuple):
    """A request for the manifest of the segment that holds `slot` of a chain, or None."""

    chain: int
    slot: int


class ReadBytes(NamedTuple):
    """A request for the bytes of a segment from `begin` up to `end`."""

    manifest: Manifest
    begin: int
    end: int


Request = FindSegment | ReadBytes
R = TypeVar("R")
Steps = Generator[Request, Any, R]
"""A read without I/O: it yields requests, is sent what they ask for, and returns its result."""


class SegmentReader:
    """Reads segments of all chains, without I/O of its own; its driver answers the requests.

    Recently used indexes are kept, up to `most` appends and blocks. What is not as it was written
    raises `BadSegment`."""

    def __init__(self, most: int) -> None:
        self._indexes = IndexCache(most)

    def read(
        self, chain: int, slot: int, stop: int, boundary: int, after: int = 0
    ) -> Steps[Chunk | None]:
        """Read from `slot` up to `stop`, but nothing after the first slot that passes `boundary`,
        nor those appends of `slot` that end at the offset `after` or before it.

        The chunk ends with its segment at the latest. It is empty if that leaves nothing. Returns
        None if `slot` is in no segment."""
        manifest: Manifest | None = yield FindSegment(chain, slot)
        if manifest is None:
            return None
        index = yield from self.index(manifest)
        part = index.range(slot, stop, boundary, after)
        begin, data = yield from _read_blocks(manifest, index, part)
        bodies = index.split(part, data, begin)
        return Chunk(bodies, part.slot, part.offset, part.size, cold=True)

    def start_of(self, chain: int, slot: int) -> Steps[tuple[int, int] | None]:
        """Return offset and size at which `slot` begins, if it is in a segment."""
        manifest: Manifest | None = yield FindSegment(chain, slot)
        return None if manifest is None else (yield from self.index(manifest)).start_of(slot)

    def end_of(self, chain: int, slot: int) -> Steps[tuple[int, int] | None]:
        """Return offset and size after `slot`, if it is in a segment."""
        manifest: Manifest | None = yield FindSegment(chain, slot)
        return None if manifest is None else (yield from self.index(manifest)).start_of(slot + 1)

    def slot_info(self, chain: int, slot: int) -> Steps[SlotInfo | None]:
        """Return the offset after `slot` and its time, if it is in a segment."""
        manifest: Manifest | None = yield FindSegment(chain, slot)
        if manifest is None:
            return None
        index = yield from self.index(manifest)
        return SlotInfo(index.start_of(slot + 1)[0], index.time(slot))

    def index(self, manifest: Manifest) -> Steps[Index]:
        """Return the index of a segment, read at its first use."""
        index = self._indexes.get(manifest.key)
        if index is None:
            end = manifest.data_bytes + manifest.index_bytes
            packed = yield from _read_bytes(manifest, manifest.data_bytes, end)
            try:
                index = read_index(packed, manifest.index_checksum)
            except BadSegment as error:
                raise _bad(manifest, str(error)) from error
            if not index.checksums:
                index.checksums = yield from _sum_blocks(manifest)
            self._indexes.keep(manifest.key, index)
        return index


def _sum_blocks(manifest: Manifest) -> Steps[Sequence[int]]:
    """Return the checksums of a segment's blocks. Version 1 has one of all its data, so all of it
    is read, and verified."""
    end = manifest.data_bytes + manifest.index_bytes + TRAILER_BYTES
    whole = yield from _read_bytes(manifest, 0, end)
    try:
        return array("Q", checksums(unpack(whole).data))
    except BadSegment as error:
        raise _bad(manifest, str(error)) from error


def _read_blocks(manifest: Manifest, index: Index, part: Range) -> Steps[tuple[int, bytes]]:
    """Read and verify the blocks that have a range; return where they begin, and their bytes."""
    if part.begin == part.end:
        return part.begin, b""
    first, stop = part.begin // BLOCK_BYTES, -(-part.end // BLOCK_BYTES)
    begin, end = first * BLOCK_BYTES, min(stop * BLOCK_BYTES, manifest.data_bytes)
    data = yield from _read_bytes(manifest, begin, end)
    for block, checksum in enumerate(checksums(data), first):
        if checksum != index.checksums[block]:
            raise _bad(manifest, f"block {block} of its data is damaged")
    return begin, data


def _read_bytes(manifest: Manifest, begin: int, end: int) -> Steps[bytes]:
    data: bytes = yield ReadBytes(manifest, begin, end)
    if len(data) != end - begin:
        raise _bad(manifest, f"it has {len(data)} of the bytes from {begin} up to {end}")
    return data


def _bad(manifest: Manifest, why: str) -> BadSegment:
    return BadSegment(f"segment {manifest.key} of {manifest.chain:016x}: {why}")
