"""Retention in the embedded store: rows of segments and entries are removed, then their files.

The oldest slots of a stream are removed first, so that the rest never has a hole. Slots may be
emptied at once: `compaction` says why no writer could fill them again.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Final, NamedTuple

from tailrace.errors import DamagedData
from tailrace.log.retention import Keep, Piece, Retention, first_kept
from tailrace.log.state import Stream
from tailrace.store.codec import stream_of
from tailrace.store.sqlite import queries
from tailrace.store.sqlite.reading import FileSegments, all_segments
from tailrace.store.sqlite.schema import snapshot

PAGE: Final = 1000
"""Streams per sweep; the next sweep goes on from there."""

_FREE: Final = (
    "path IS NOT NULL AND soft = 0 AND NOT EXISTS (SELECT 1 FROM edges WHERE parent = streams.id)"
)
"""Whether a stream has a name, and no fork."""

logger = logging.getLogger("tailrace")


class Due(NamedTuple):
    """A stream that is to begin later than it does."""

    stream: Stream
    first: int


class Removed(NamedTuple):
    entries: int
    bodies: Sequence[str]
    """Files that nothing names any more, as the next."""
    segments: Sequence[str]
    more: bool
    """Whether there is more to remove."""


def due(
    db: sqlite3.Connection, after: int, retention: Retention, segments: FileSegments, now: int
) -> tuple[Sequence[Due], int | None]:
    """Find streams of the next page that are to lose slots; and return where that page ends."""
    rows = db.execute(
        f"SELECT id, path, config FROM streams WHERE id > ? AND {_FREE} ORDER BY id LIMIT ?",  # noqa: S608 - no input
        (after, PAGE),
    ).fetchall()
    streams = []
    for chain, path, config in rows:
        keep = retention.keep(path)
        if keep is None:
            continue
        stream = stream_of(chain, path, config)
        try:
            first = _first_kept(db, stream, keep, segments, now)
        except (DamagedData, OSError) as error:
            logger.error("retention leaves '%s' as it is: %s", path, error)
            continue
        if first is not None:
            streams.append(Due(stream, first))
    return streams, rows[-1][0] if len(rows) == PAGE else None


def remove(db: sqlite3.Connection, chain: int, first: int) -> Removed | None:
    """Remove slots before `first`, in the transaction of the group commit.

    None: it was not to be, since the stream was deleted or forked meanwhile."""
    free = f"SELECT 1 FROM streams WHERE id = ? AND {_FREE}"  # noqa: S608 - no input in it
    if db.execute(free, (chain,)).fetchone() is None:
        return None
    gone = db.execute(
        "DELETE FROM segments WHERE id = ? AND stop <= ? RETURNING name, stop - first",
        (chain, first),
    ).fetchall()
    last = db.execute(
        "SELECT max(n) FROM (SELECT n FROM entries WHERE id = ? AND n < ? ORDER BY n LIMIT ?)",
        (chain, first, queries.ERASE_ROWS),
    ).fetchone()[0]
    rows = db.execute(
        "DELETE FROM entries WHERE id = ? AND n <= ? RETURNING file", (chain, last)
    ).fetchall()
    return Removed(
        len(rows) + sum(slots for _, slots in gone),
        [file for (file,) in rows if file is not None],
        [name for name, _ in gone],
        len(rows) == queries.ERASE_ROWS,
    )


def _first_kept(
    db: sqlite3.Connection, stream: Stream, keep: Keep, segments: FileSegments, now: int
) -> int | None:
    """The first slot that stays, if others are before it."""
    with snapshot(db):
        begin = queries.first_kept(db, stream.id)
        if begin is None:
            return None
        state = queries.last_state(db, stream)
        # An open cursor would keep its snapshot.
        with closing(_pieces(db, stream.id, segments)) as pieces:
            first = first_kept(keep, state, begin, pieces, now)
        return first if first > begin else None


def _pieces(
    db: sqlite3.Connection, chain: int, segments: FileSegments
) -> Generator[Piece, None, None]:
    for manifest in all_segments(db, chain):
        yield Piece(manifest.stop, *segments.end(db, manifest))
    entries = "SELECT n + 1, at, size FROM entries WHERE id = ? ORDER BY n"
    for row in db.execute(entries, (chain,)):
        yield Piece(*row)
