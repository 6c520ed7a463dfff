"""Segments of the embedded store: their rows are in its database, their data in files."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator

from tailrace.log.state import Chunk, SlotInfo
from tailrace.segments.format import BadSegment
from tailrace.segments.reader import FindSegment, Manifest, R, SegmentReader, Steps
from tailrace.store.sqlite.files import ChainFiles


class FileSegments:
    """Reads segments from files; called in the reader's threads, each with its own connection."""

    def __init__(self, files: ChainFiles, slots: int) -> None:
        self._files = files
        self._reader = SegmentReader(slots)

    def read(
        self, db: sqlite3.Connection, chain: int, slot: int, stop: int, boundary: int
    ) -> Chunk | None:
        """As `SegmentReader.read`."""
        return self._run(db, self._reader.read(chain, slot, stop, boundary))

    def start_of(self, db: sqlite3.Connection, chain: int, slot: int) -> tuple[int, int] | None:
        """Return offset and size at which `slot` begins, if it or the one before is archived."""
        start = self._run(db, self._reader.start_of(chain, slot))
        return start or self._run(db, self._reader.end_of(chain, slot - 1))

    def slot_info(self, db: sqlite3.Connection, chain: int, slot: int) -> SlotInfo | None:
        """As `SegmentReader.slot_info`."""
        return self._run(db, self._reader.slot_info(chain, slot))

    def end(self, db: sqlite3.Connection, manifest: Manifest) -> tuple[int, int]:
        """Return when the last slot of a segment was written, and the stream's size after it."""
        index = self._run(db, self._reader.index(manifest))
        return index.time(manifest.stop - 1), index.start_of(manifest.stop)[1]

    def _run(self, db: sqlite3.Connection, steps: Steps[R]) -> R:
        """Answer the requests of a read until it returns."""
        answer: Manifest | bytes | None = None
        try:
            while True:
                request = steps.send(answer)
                if isinstance(request, FindSegment):
                    answer = covering(db, *request)
                else:
                    answer = self._bytes(*request)
        except StopIteration as done:
            result: R = done.value
            return result

    def _bytes(self, manifest: Manifest, begin: int, end: int) -> bytes:
        data = self._files.read_range(manifest.chain, manifest.key, begin, end)
        if len(data) != end - begin:
            raise BadSegment(f"the segment {manifest.key} of {manifest.chain:x} is cut off")
        return data


def covering(db: sqlite3.Connection, chain: int, slot: int) -> Manifest | None:
    """Return the segment that holds `slot` of a chain."""
    rows = "SELECT * FROM segments WHERE id = ? AND first <= ? ORDER BY first DESC LIMIT 1"
    row = db.execute(rows, (chain, slot)).fetchone()
    return None if row is None or row[2] <= slot else Manifest(*row)


def all_segments(db: sqlite3.Connection, chain: int) -> Iterator[Manifest]:
    """Iterate over the segments of a chain, in order."""
    rows = db.execute("SELECT * FROM segments WHERE id = ? ORDER BY first", (chain,))
    return itertools.starmap(Manifest, rows)


def insert(db: sqlite3.Connection, manifest: Manifest) -> None:
    db.execute("INSERT INTO segments VALUES (?, ?, ?, ?, ?, ?, ?, ?)", manifest[:8])
