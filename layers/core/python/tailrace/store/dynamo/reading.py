"""Chunks out of chains: slots read in pages, up to the boundary that every reader agrees on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tailrace.errors import SlotTrimmed, StoreUnavailable
from tailrace.log.state import Ancestor, State, Stream
from tailrace.store.base import Chunk
from tailrace.store.dynamo.bodies import Bodies
from tailrace.store.dynamo.layout import (
    LAST_SLOT,
    Stored,
    chain_partition,
    entry_of,
    slot_text,
)
from tailrace.store.dynamo.table import Table


class Pieces:
    """Consecutive entries that will be a chunk."""

    def __init__(self, n: int, chunk_bytes: int) -> None:
        self.n = n
        """The slot that is wanted next."""
        self.full = False
        self._chunk_bytes = chunk_bytes
        self._boundary = 0
        self._entries: list[Stored] = []

    def add(self, entry: Stored) -> None:
        if not self._entries:
            if entry.n != self.n:
                raise SlotTrimmed(entry.n)
            begin = entry.size - entry.length
            self._boundary = (begin // self._chunk_bytes + 1) * self._chunk_bytes
        elif entry.n != self.n:
            # The slots between were let go; whoever reads on is told.
            self.full = True
            return
        self._entries.append(entry)
        self.n = entry.n + 1
        self.full = entry.size >= self._boundary

    def __bool__(self) -> bool:
        return bool(self._entries)

    def hint(self) -> int:
        """How many entries like those so far are left to the boundary, roughly."""
        if not self._entries:
            return 0
        first, last = self._entries[0], self._entries[-1]
        mean = max(1, (last.size - first.size + first.length) // len(self._entries))
        return (self._boundary - last.size) // mean + 8

    async def chunk(self, bodies: Bodies | None) -> Chunk:
        last = self._entries[-1]
        keys = [entry.object_key for entry in self._entries if entry.object_key is not None]
        objects = iter(await asyncio.gather(*(_object(bodies, key) for key in keys)))
        data = [next(objects) if entry.object_key else entry.body for entry in self._entries]
        return Chunk(data, self.n, last.offset, last.size)


async def _object(bodies: Bodies | None, key: str) -> bytes:
    if bodies is None:
        raise StoreUnavailable("the stream has bodies in S3, but TAILRACE_BUCKET is not set")
    return await bodies.read(key)


async def fill(table: Table, pieces: Pieces, chain: int, until: int) -> None:
    """Add the slots below `until` of a chain, as far as the chunk goes."""
    more = True
    while more and pieces.n < until and not pieces.full:
        page = await table.query(
            chain_partition(chain),
            slot_text(pieces.n),
            slot_text(until - 1),
            limit=pieces.hint(),
        )
        _add(pieces, map(entry_of, page.items))
        more = page.more is not None


async def fill_to_end(table: Table, pieces: Pieces, chain: int) -> tuple[State | None, bool]:
    """Add what a chain has, as far as the chunk goes.

    Tells the last state that was seen, if any entry was, and whether it is the end of the chain."""
    last: Stored | None = None
    while True:
        page = await table.query(
            chain_partition(chain), slot_text(pieces.n), LAST_SLOT, limit=pieces.hint()
        )
        entries = [entry_of(item) for item in page.items]
        _add(pieces, entries)
        if entries:
            last = entries[-1]
        if page.more is None or pieces.full:
            return (last.state if last else None), page.more is None


async def last_state(table: Table, stream: Stream) -> State:
    page = await table.query(
        chain_partition(stream.id), slot_text(0), LAST_SLOT, limit=1, backward=True
    )
    if not page.items:
        return stream.config.initial_state()
    return entry_of(page.items[0]).state


def inherited(stream: Stream, n: int) -> Iterable[Ancestor]:
    """The chains that a fork reads through from slot `n` on."""
    lineage = stream.config.fork.lineage if stream.config.fork else ()
    return [ancestor for ancestor in lineage if ancestor.until > n]


def _add(pieces: Pieces, entries: Iterable[Stored]) -> None:
    for entry in entries:
        if pieces.full:
            return
        if entry.has_data:
            pieces.add(entry)
