"""Reads of the embedded store that memory cannot answer: from the table, from segments, or both.

The rows of segments are in the database, their data is in files.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

from tailrace.errors import DamagedData, SlotTrimmed
from tailrace.log.state import Chunk, SlotInfo
from tailrace.segments.format import BadSegment
from tailrace.segments.reader import FindSegment, Manifest, R, SegmentReader, Steps
from tailrace.store.sqlite import queries
from tailrace.store.sqlite.files import ChainFiles
from tailrace.store.sqlite.schema import Row, snapshot


class FileSegments:
    """Reads segments from files; called in the reader's threads, each with its own connection."""

    def __init__(self, files: ChainFiles, slots: int) -> None:
        self._files = files
        self._reader = SegmentReader(slots)

    def read(
        self, db: sqlite3.Connection, chain: int, slot: int, stop: int, boundary: int, after: int
    ) -> Chunk | None:
        """As `SegmentReader.read`."""
        return self._run(db, self._reader.read(chain, slot, stop, boundary, after))

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
        key = ""
        try:
            while True:
                request = steps.send(answer)
                if isinstance(request, FindSegment):
                    answer = covering(db, *request)
                else:
                    manifest, begin, end = request
                    key = manifest.key
                    answer = self._files.read_range(manifest.chain, key, begin, end)
        except StopIteration as done:
            result: R = done.value
            return result
        except BadSegment as error:
            raise DamagedData(key, str(error)) from error


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


T = TypeVar("T")

ATTEMPTS: Final = 5
"""Reads of a chain whose files are removed meanwhile: each time another commit came between."""


class Reading:
    """Called in the reader's threads, each with its own connection."""

    def __init__(self, bodies: ChainFiles, segments: FileSegments) -> None:
        self._bodies = bodies
        self._segments = segments

    def chunk(
        self,
        db: sqlite3.Connection,
        chain: int,
        slot: int,
        stop: int,
        chunk_bytes: int,
        after: int,
        unfolded: Sequence[Row],
    ) -> Chunk:
        """The same bytes wherever they are: a chunk may lie in segments, in the table, and in
        `unfolded`, which has entries of the journal."""
        try:
            return self._chunk(db, chain, slot, stop, chunk_bytes, after, unfolded)
        except FileNotFoundError:
            # An entry that names a file which is gone was folded meanwhile.
            return _with_retries(
                lambda: self._chunk(
                    db, chain, slot, stop, chunk_bytes, after, _still_unfolded(db, unfolded)
                )
            )

    def start_of(self, db: sqlite3.Connection, chain: int, slot: int) -> tuple[int, int]:
        return _with_retries(lambda: self._start_of(db, chain, slot))

    def slot_info(self, db: sqlite3.Connection, chain: int, slot: int) -> SlotInfo:
        return _with_retries(lambda: self._slot_info(db, chain, slot))

    def _chunk(
        self,
        db: sqlite3.Connection,
        chain: int,
        slot: int,
        stop: int,
        chunk_bytes: int,
        after: int,
        unfolded: Sequence[Row],
    ) -> Chunk:
        body_file = self._bodies.read
        chunk = queries.read_chunk(db, chain, slot, stop, chunk_bytes, body_file, after, unfolded)
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
                    db, chain, slot, stop, boundary, after
                ) or queries.read_chunk(
                    db, chain, slot, stop, chunk_bytes, body_file, after, unfolded
                )
                if following is None:
                    raise SlotTrimmed(_earliest(db, chain, slot, stop))
                after = 0
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


def _still_unfolded(db: sqlite3.Connection, unfolded: Sequence[Row]) -> Sequence[Row]:
    """Return the entries that are not in the table yet; its last one never leaves it."""
    if not unfolded:
        return ()
    last = queries.last_slot(db, unfolded[0][0])
    return [row for row in unfolded if last is not None and row[1] > last]


def _earliest(db: sqlite3.Connection, chain: int, slot: int, stop: int) -> int:
    """The first slot from `slot` on that is kept."""
    first = "SELECT min(first) FROM segments WHERE id = ? AND first > ?"
    archived = db.execute(first, (chain, slot)).fetchone()[0]
    kept = (archived, queries.first_slot(db, chain), stop)
    return min(each for each in kept if each is not None)


def _with_retries(read: Callable[[], T]) -> T:
    """Read again when a file was removed meanwhile: its row is gone or replaced by then."""
    for _ in range(ATTEMPTS):
        try:
            return read()
        except FileNotFoundError as error:
            missing = error
    # Its folders are the kind of file and the chain.
    name = "/".join(Path(missing.filename).parts[-3:])
    raise DamagedData(name, f"the file {name} is missing") from missing
