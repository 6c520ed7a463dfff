"""Segments of the embedded store: found in its table, read from their files."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator

from tailrace.log.slots import Chunk, SlotInfo
from tailrace.segments.format import BadSegment, Index, read_index
from tailrace.segments.index_cache import Indexes
from tailrace.segments.reader import Manifest
from tailrace.store.sqlite.files import ChainFiles


class Archive:
    """Called in the reader's threads, each with its own connection."""

    def __init__(self, files: ChainFiles, slots: int) -> None:
        self._files = files
        self._indexes = Indexes(slots)

    def read(
        self, db: sqlite3.Connection, chain: int, slot: int, stop: int, boundary: int
    ) -> Chunk | None:
        """As `history.reader.History.read`."""
        manifest = covering(db, chain, slot)
        if manifest is None:
            return None
        index = self._index(manifest)
        found = index.range(slot, stop, boundary)
        data = self._bytes(manifest, found.begin, found.end)
        bodies = index.split(slot, found.slot, data)
        return Chunk(bodies, found.slot, found.offset, found.size, cold=True)

    def position(self, db: sqlite3.Connection, chain: int, slot: int) -> tuple[int, int] | None:
        """Offset and size at which `slot` begins, if a segment has it or the one before it."""
        manifest = covering(db, chain, slot) or covering(db, chain, slot - 1)
        return None if manifest is None else self._index(manifest).position(slot)

    def slot_info(self, db: sqlite3.Connection, chain: int, slot: int) -> SlotInfo | None:
        """The marks on `slot`, if a segment has it."""
        manifest = covering(db, chain, slot)
        if manifest is None:
            return None
        index = self._index(manifest)
        return SlotInfo(index.position(slot + 1)[0], index.time(slot))

    def end(self, manifest: Manifest) -> tuple[int, int]:
        """When the last slot of a segment was written, and the size of the stream after it."""
        index = self._index(manifest)
        return index.time(manifest.stop - 1), index.position(manifest.stop)[1]

    def _index(self, manifest: Manifest) -> Index:
        index = self._indexes.get(manifest.key)
        if index is None:
            end = manifest.data_bytes + manifest.index_bytes
            packed = self._bytes(manifest, manifest.data_bytes, end)
            index = read_index(packed, manifest.index_checksum)
            self._indexes.keep(manifest.key, index)
        return index

    def _bytes(self, manifest: Manifest, begin: int, end: int) -> bytes:
        data = self._files.read_range(manifest.chain, manifest.key, begin, end)
        if len(data) != end - begin:
            raise BadSegment(f"the segment {manifest.key} of {manifest.chain:x} is cut off")
        return data


def covering(db: sqlite3.Connection, chain: int, slot: int) -> Manifest | None:
    """The segment that holds `slot` of a chain."""
    rows = "SELECT * FROM segments WHERE id = ? AND first <= ? ORDER BY first DESC LIMIT 1"
    row = db.execute(rows, (chain, slot)).fetchone()
    return None if row is None or row[2] <= slot else Manifest(*row)


def all_segments(db: sqlite3.Connection, chain: int) -> Iterator[Manifest]:
    """The segments of a chain, in order."""
    rows = db.execute("SELECT * FROM segments WHERE id = ? ORDER BY first", (chain,))
    return itertools.starmap(Manifest, rows)


def insert(db: sqlite3.Connection, manifest: Manifest) -> None:
    db.execute("INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?, ?, ?)", manifest[:8])
