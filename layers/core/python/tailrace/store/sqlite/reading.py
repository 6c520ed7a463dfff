"""Reads of the embedded store that memory cannot answer: from the table, from segments, or both."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Final, TypeVar

from tailrace.errors import SlotTrimmed
from tailrace.log.state import Chunk, SlotInfo
from tailrace.store.sqlite import queries
from tailrace.store.sqlite.files import ChainFiles
from tailrace.store.sqlite.schema import snapshot
from tailrace.store.sqlite.segments import FileSegments

T = TypeVar("T")

ATTEMPTS: Final = 5
"""Reads of a chain whose files are removed meanwhile: each time another commit came between."""


class Reading:
    """Called in the reader's threads, each with its own connection."""

    def __init__(self, bodies: ChainFiles, segments: FileSegments) -> None:
        self._bodies = bodies
        self._segments = segments

    def chunk(
        self, db: sqlite3.Connection, chain: int, slot: int, stop: int, chunk_bytes: int
    ) -> Chunk:
        """The same bytes wherever they are: a chunk may lie in segments and in the table."""
        return _with_retries(lambda: self._chunk(db, chain, slot, stop, chunk_bytes))

    def start_of(self, db: sqlite3.Connection, chain: int, slot: int) -> tuple[int, int]:
        return _with_retries(lambda: self._start_of(db, chain, slot))

    def slot_info(self, db: sqlite3.Connection, chain: int, slot: int) -> SlotInfo:
        return _with_retries(lambda: self._slot_info(db, chain, slot))

    def _chunk(
        self, db: sqlite3.Connection, chain: int, slot: int, stop: int, chunk_bytes: int
    ) -> Chunk:
        chunk = queries.read_chunk(db, chain, slot, stop, chunk_bytes, self._bodies.read)
        if chunk is not None:
            return chunk
        # In one moment a slot is in the table or in a segment; in two it might seem to be in none.
        with snapshot(db):
            start = self._segments.start_of(db, chain, slot)
            if start is None:
                raise SlotTrimmed(_earliest(db, chain, slot, stop))
            boundary = (start[1] // chunk_bytes + 1) * chunk_bytes
            chunk = Chunk((), slot, *start)
            bodies: list[bytes] = []
            cold = True
            while chunk.slot < stop and chunk.size < boundary:
                slot = chunk.slot
                following = self._segments.read(
                    db, chain, slot, stop, boundary
                ) or queries.read_chunk(db, chain, slot, stop, chunk_bytes, self._bodies.read)
                if following is None:
                    raise SlotTrimmed(_earliest(db, chain, slot, stop))
                bodies += following.bodies
                cold = cold and following.cold
                chunk = following
            return chunk._replace(bodies=bodies, cold=cold)

    def _start_of(self, db: sqlite3.Connection, chain: int, slot: int) -> tuple[int, int]:
        with snapshot(db):
            start = queries.start_of(db, chain, slot) or self._segments.start_of(db, chain, slot)
            if start is None:
                raise SlotTrimmed(slot)
            return start

    def _slot_info(self, db: sqlite3.Connection, chain: int, slot: int) -> SlotInfo:
        with snapshot(db):
            info = queries.slot_info(db, chain, slot) or self._segments.slot_info(db, chain, slot)
            if info is None:
                raise SlotTrimmed(slot + 1)
            return info


def _earliest(db: sqlite3.Connection, chain: int, slot: int, stop: int) -> int:
    """The first slot from `slot` on that is kept."""
    first = "SELECT min(first) FROM segments WHERE id = ? AND first > ?"
    archived = db.execute(first, (chain, slot)).fetchone()[0]
    kept = (archived, queries.first_slot(db, chain), stop)
    return min(each for each in kept if each is not None)


def _with_retries(read: Callable[[], T]) -> T:
    """Read again when a file was removed meanwhile: its row is gone or replaced by then."""
    for _ in range(ATTEMPTS - 1):
        try:
            return read()
        except FileNotFoundError:
            continue
    return read()
