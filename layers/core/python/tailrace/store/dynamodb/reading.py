"""Chunks out of chains: slots read in pages, up to the boundary that every reader agrees on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tailrace.errors import SlotTrimmed, StoreUnavailable
from tailrace.log.slots import bodies_after
from tailrace.log.state import Ancestor, Chunk, State, Stream
from tailrace.store.dynamodb.bodies import Bodies
from tailrace.store.dynamodb.layout import LAST_SLOT, Stored, chain_partition, entry_of, slot_text
from tailrace.store.dynamodb.segments import BucketSegments
from tailrace.store.dynamodb.table import Table


class Pieces:
    """Consecutive slots that will be a chunk."""

    def __init__(self, slot: int, chunk_bytes: int, after: int = 0) -> None:
        self.slot = slot
        """The slot that is wanted next."""
        self.after = after
        """Appends of that slot which end at this offset or before are left out."""
        self.full = False
        self._cold = True
        self._chunk_bytes = chunk_bytes
        self._slots = 0
        self._bodies: list[bytes | tuple[Stored, int]] = []
        """A body, or an entry whose body is an object, and the `after` for it."""
        self._begin = self._boundary = self._offset = self._size = 0

    def add(self, entry: Stored) -> None:
        if entry.slot != self.slot:
            if not self._slots:
                raise SlotTrimmed(entry.slot)
            # The slots between were removed; the next read gets the error.
            self.full = True
            return
        self.begin(entry.size - entry.length)
        if entry.object_key is not None:
            self._bodies.append((entry, self.after))
        else:
            self._bodies += bodies_after(entry.body, entry.parts, entry.offset, self.after)
        self._cold = False
        self._end(entry.slot + 1, entry.offset, entry.size)

    def add_cold(self, chunk: Chunk) -> None:
        self._bodies += chunk.bodies
        self._end(chunk.slot, chunk.offset, chunk.size)

    def begin(self, size: int) -> int:
        """The size at which the chunk is full, if it begins where the stream had `size`."""
        if not self._slots:
            self._begin = size
            self._boundary = (size // self._chunk_bytes + 1) * self._chunk_bytes
        return self._boundary

    def __bool__(self) -> bool:
        return self._slots > 0

    def hint(self) -> int:
        """How many entries like those so far are left to the boundary, roughly."""
        if not self._slots:
            return 0
        mean = max(1, (self._size - self._begin) // self._slots)
        return (self._boundary - self._size) // mean + 8

    async def chunk(self, bodies: Bodies | None) -> Chunk:
        entries = [each[0] for each in self._bodies if isinstance(each, tuple)]
        objects = iter(await asyncio.gather(*(_object(bodies, each) for each in entries)))
        data: list[bytes] = []
        for each in self._bodies:
            if isinstance(each, tuple):
                entry, after = each
                data += bodies_after(next(objects), entry.parts, entry.offset, after)
            else:
                data.append(each)
        return Chunk(data, self.slot, self._offset, self._size, self._cold)

    def _end(self, slot: int, offset: int, size: int) -> None:
        self._slots += slot - self.slot
        self.slot, self._offset, self._size = slot, offset, size
        self.after = 0
        self.full = size >= self._boundary


async def _object(bodies: Bodies | None, entry: Stored) -> bytes:
    if bodies is None:
        raise StoreUnavailable("the stream has bodies in S3, but TAILRACE_BUCKET is not set")
    assert entry.object_key is not None
    return await bodies.read(entry.object_key)


async def fill(
    table: Table, segments: BucketSegments | None, pieces: Pieces, chain: int, until: int
) -> None:
    """Add the slots below `until` of a chain, as far as the chunk goes."""
    more = True
    while more and pieces.slot < until and not pieces.full:
        page = await table.query(
            chain_partition(chain),
            slot_text(pieces.slot),
            slot_text(until - 1),
            limit=pieces.hint(),
        )
        await _add(segments, pieces, chain, map(entry_of, page.items))
        more = page.more is not None
        if not more:
            await _fill_cold(segments, pieces, chain, until)


async def fill_to_end(
    table: Table, segments: BucketSegments | None, pieces: Pieces, chain: int
) -> tuple[State | None, bool]:
    """Add the slots of a chain, up to the end of the chunk.

    Tells the last state that was seen, if any entry was, and whether it is the end of the chain."""
    last: Stored | None = None
    while True:
        page = await table.query(
            chain_partition(chain), slot_text(pieces.slot), LAST_SLOT, limit=pieces.hint()
        )
        entries = [entry_of(item) for item in page.items]
        await _add(segments, pieces, chain, entries)
        if entries:
            last = entries[-1]
        if page.more is None or pieces.full:
            return (last.state if last else None), page.more is None


async def _fill_cold(
    segments: BucketSegments | None, pieces: Pieces, chain: int, until: int
) -> None:
    """Add the slots below `until`, which have left the table, as far as segments have them."""
    if segments is None or pieces.slot >= until or pieces.full:
        return
    start = await segments.start_of(chain, pieces.slot)
    if start is None:
        return
    boundary = pieces.begin(start[1])
    while pieces.slot < until and not pieces.full:
        chunk = await segments.read(chain, pieces.slot, until, boundary, pieces.after)
        if chunk is None:
            return
        pieces.add_cold(chunk)


async def last_state(table: Table, stream: Stream) -> State:
    item = await table.last(chain_partition(stream.id), slot_text(0), LAST_SLOT)
    return stream.config.initial_state() if item is None else entry_of(item).state


def inherited(stream: Stream, slot: int) -> Iterable[Ancestor]:
    """The chains that a fork reads through from `slot` on."""
    lineage = stream.config.fork.lineage if stream.config.fork else ()
    return [ancestor for ancestor in lineage if ancestor.until > slot]


async def _add(
    segments: BucketSegments | None, pieces: Pieces, chain: int, entries: Iterable[Stored]
) -> None:
    """Add entries, and slots before and between them that have left the table."""
    for entry in entries:
        await _fill_cold(segments, pieces, chain, entry.slot)
        if pieces.full:
            return
        if entry.has_data:
            pieces.add(entry)
