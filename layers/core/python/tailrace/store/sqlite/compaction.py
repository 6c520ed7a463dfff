"""Compaction of the embedded store: older entries move from the table into segments.

A segment is a durable file before one transaction adds its row and removes the rows of its
entries. After a crash a file without a row is an orphan; a row without its file there never is.

The last entry of a chain stays: it is the stream's state, and the next slot is known from it. That
makes it safe to empty slots at once (see `log.retention`): one process owns the data, its writers
know tails only from memory or from that last entry, and no other writer could fill a slot again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final, NamedTuple

from tailrace.log.content import length
from tailrace.log.slots import appends
from tailrace.log.state import Stream
from tailrace.segments.format import BadSegment, Record, Trailer, seal
from tailrace.segments.reader import Manifest
from tailrace.store.codec import parts_of, state_of, stream_of
from tailrace.store.sqlite import queries
from tailrace.store.sqlite.files import ChainFiles
from tailrace.store.sqlite.reading import FileSegments, covering, insert
from tailrace.store.sqlite.schema import snapshot

PAGE: Final = 1000
"""Streams per query: a few seeks each, however many entries they have."""


class Limits(NamedTuple):
    """A segment ends at the first slot with which it has as many entries, or bytes."""

    entries: int
    bytes: int


class Sealed(NamedTuple):
    """A segment that is ready to be written, and the slots and files that it replaces."""

    chain: int
    first: int
    stop: int
    segment: bytes
    files: Sequence[str]
    """Large bodies that it holds."""

    def manifest(self, name: str, now: int) -> Manifest:
        parts = Trailer.read(self.segment)
        return Manifest(
            self.chain, self.first, self.stop, name, parts.data_bytes, parts.index_bytes,
            parts.index_checksum, now,
        )  # fmt: skip


def candidates(
    db: sqlite3.Connection, after: int, limits: Limits
) -> tuple[Sequence[Stream], int | None]:
    """Of the next page of streams those that may fill a segment; and where that page ends.

    Slots are consecutive, so the first and the last row say how many there are between them."""
    page = "SELECT max(id) FROM (SELECT id FROM streams WHERE id > ? ORDER BY id LIMIT ?)"
    upto = db.execute(page, (after, PAGE)).fetchone()[0]
    if upto is None:
        return [], None
    rows = db.execute(
        "SELECT s.id, s.path, s.config FROM streams AS s"
        " JOIN entries AS a ON a.id = s.id AND a.n = (SELECT min(n) FROM entries WHERE id = s.id)"
        " JOIN entries AS z ON z.id = s.id AND z.n = (SELECT max(n) FROM entries WHERE id = s.id)"
        " WHERE s.id > ? AND s.id <= ? AND s.path IS NOT NULL AND a.n < z.n"
        " AND (z.n - a.n >= ? OR z.size - a.size + coalesce(length(a.body), ?) >= ?)",
        (after, upto, limits.entries, limits.bytes, limits.bytes),
    )
    return [stream_of(*row) for row in rows], upto


def next_segment(
    db: sqlite3.Connection,
    stream: Stream,
    limits: Limits,
    segments: FileSegments,
    bodies: ChainFiles,
) -> Sealed | None:
    """The first entries of a stream that are still in the table, if they fill a segment."""
    chain, base = stream.id, stream.config.base
    with snapshot(db):
        first = queries.first_slot(db, chain)
        if first is None:
            return None
        start = base[1:] if first == base[0] else segments.start_of(db, chain, first)
        if start is None and queries.first_kept(db, chain) == first:
            # Retention has removed the slots before it.
            start = _start(db, stream, first, bodies)
        if start is None:
            raise BadSegment(f"slot {first} of {chain:016x} does not follow the one before it")
        stop = _end(db, chain, first, start[1], limits)
        if stop is None:
            return None
        records, files = _records(db, chain, first, stop, bodies)
    segment = seal(chain, stream.config.mode, start, records)
    return Sealed(chain, first, stop, segment, files)


def move(db: sqlite3.Connection, sealed: Sealed, manifest: Manifest) -> bool:
    """Replace entries by their segment, in the transaction of the group commit.

    False when it was not to be, since the stream was deleted meanwhile: then nothing was done."""
    chain, first, stop = sealed[:3]
    named = "SELECT 1 FROM streams WHERE id = ? AND path IS NOT NULL"
    if db.execute(named, (chain,)).fetchone() is None:
        return False
    # Checked before, because a failure would fail the other writes of this commit too.
    held = "SELECT count(*) FROM entries WHERE id = ? AND n >= ? AND n <= ?"
    if db.execute(held, (chain, first, stop)).fetchone()[0] != stop + 1 - first:
        return False
    if covering(db, chain, first) is not None:
        return False
    insert(db, manifest)
    db.execute("DELETE FROM entries WHERE id = ? AND n >= ? AND n < ?", (chain, first, stop))
    return True


def _start(
    db: sqlite3.Connection, stream: Stream, first: int, bodies: ChainFiles
) -> tuple[int, int]:
    """Offset and size at which the first slot that is kept begins, as it says itself."""
    records, _ = _records(db, stream.id, first, first + 1, bodies)
    kind, last = stream.config.mode, records[-1]
    moved = sum(length(kind, record.body) for record in records)
    return last.offset - moved, last.size - sum(len(record.body) for record in records)


def _end(db: sqlite3.Connection, chain: int, first: int, size: int, limits: Limits) -> int | None:
    """The slot after the segment that begins at `first`; None when entries are too few for one."""
    row = db.execute(
        "SELECT n + 1 FROM entries WHERE id = :chain AND n >= :first"
        " AND n < (SELECT max(n) FROM entries WHERE id = :chain)"
        " AND (n + 1 >= :first + :entries OR size >= :size) ORDER BY n LIMIT 1",
        {
            "chain": chain,
            "first": first,
            "entries": limits.entries,
            "size": size + limits.bytes,
        },
    ).fetchone()
    return None if row is None else int(row[0])


def _records(
    db: sqlite3.Connection, chain: int, first: int, stop: int, bodies: ChainFiles
) -> tuple[list[Record], list[str]]:
    rows = db.execute(
        "SELECT n, offset, size, at, body, file, state, parts FROM entries"
        " WHERE id = ? AND n >= ? AND n < ? ORDER BY n",
        (chain, first, stop),
    ).fetchall()
    records: list[Record] = []
    files: list[str] = []
    for slot, offset, size, at, body, file, state, parts in rows:
        if file is not None:
            files.append(file)
            body = bodies.read(chain, file)
        if body is None:
            raise BadSegment(f"slot {slot} of {chain:016x} has no body, and is not the last")
        after = state_of(slot, offset, size, at, state)
        records += [
            Record(slot, end, end_size, at, one, author)
            for one, end, end_size, author in appends(body, parts_of(parts), after)
        ]
    return records, files
