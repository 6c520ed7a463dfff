"""The statements of the embedded store. Each runs in the thread that owns the connection."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Final, cast

from tailrace.log.expiry import renewal_slack, stored_deadline
from tailrace.log.retention import earliest
from tailrace.log.slots import bodies_after
from tailrace.log.state import Chunk, Listed, Producer, Producers, SlotInfo, State, Stream
from tailrace.store.base import SegmentInfo, StoredDetails
from tailrace.store.codec import config_text, parts_of, state_of, stream_of
from tailrace.store.sqlite import schema
from tailrace.store.sqlite.chain import Chain

INSERT_ROWS: Final = 256
ERASE_ROWS: Final = 2000
"""Rows of a deleted stream that one commit removes: writers do not wait longer for it."""


def insert_entries(db: sqlite3.Connection, rows: Sequence[schema.Row]) -> None:
    """Many rows in few statements: between two statements the thread has to win the GIL back."""
    begin, size = 0, INSERT_ROWS
    while begin < len(rows):
        while size > len(rows) - begin:
            size //= 2
        places = ",".join(["(?,?,?,?,?,?,?,?,?)"] * size)
        values = list(itertools.chain.from_iterable(rows[begin : begin + size]))
        db.execute(f"INSERT INTO entries VALUES {places}", values)  # noqa: S608 - no input in it
        begin += size


def insert_record(db: sqlite3.Connection, number: int, record: bytes) -> None:
    db.execute("INSERT INTO journal VALUES (?, ?)", (number, record))


def delete_records(db: sqlite3.Connection, stop: int) -> None:
    """Remove the records before number `stop`."""
    db.execute("DELETE FROM journal WHERE n < ?", (stop,))


def insert_spill(db: sqlite3.Connection, chain: int, spill: Producers) -> None:
    db.executemany(
        "INSERT OR REPLACE INTO producers VALUES (?, ?, ?, ?)",
        [(chain, producer, *last) for producer, last in spill.items()],
    )


def insert_stream(db: sqlite3.Connection, stream: Stream) -> bool:
    """Insert a stream; False, and nothing is inserted, when the name is taken, or when the source
    has lost slots that a fork needs."""
    taken = "SELECT 1 FROM streams WHERE path = ?"
    if db.execute(taken, (stream.path,)).fetchone() is not None:
        return False
    fork = stream.config.fork
    if fork is not None:
        source = "SELECT id, path, config FROM streams WHERE id = ?"
        row = db.execute(source, (fork.parent,)).fetchone()
        if row is None or earliest_slot(db, stream_of(*row)) > stream.config.earliest:
            return False
    created = stream.config.created
    db.execute(
        "INSERT INTO streams (id, path, config, accessed, deadline) VALUES (?, ?, ?, ?, ?)",
        (
            stream.id,
            stream.path,
            config_text(stream.config),
            created,
            stored_deadline(stream.config, created),
        ),
    )
    if fork is not None:
        db.execute("INSERT INTO edges VALUES (?, ?)", (fork.parent, stream.id))
    return True


def drop_stream(db: sqlite3.Connection, chain: int) -> set[int]:
    """Delete a stream; those that nothing needs any more, itself first, lose their name."""
    freed: set[int] = set()
    needed = "SELECT 1 FROM edges WHERE parent = ? LIMIT 1"
    while db.execute(needed, (chain,)).fetchone() is None:
        freed.add(chain)
        db.execute("UPDATE streams SET path = NULL WHERE id = ?", (chain,))
        source = db.execute(
            "SELECT parent, soft FROM edges JOIN streams ON id = parent WHERE fork = ?", (chain,)
        ).fetchone()
        db.execute("DELETE FROM edges WHERE fork = ?", (chain,))
        if source is None or not source[1]:
            return freed
        chain = source[0]
    db.execute("UPDATE streams SET soft = 1 WHERE id = ?", (chain,))
    return freed


def erase_some(db: sqlite3.Connection, chain: int) -> bool:
    """Remove rows of a deleted stream, its own when no other is left; True while more are."""
    for table, slot in (("entries", "n"), ("segments", "first")):
        last = db.execute(
            f"SELECT max({slot}) FROM"  # noqa: S608 - no input in it
            f" (SELECT {slot} FROM {table} WHERE id = ? ORDER BY {slot} LIMIT ?)",
            (chain, ERASE_ROWS),
        ).fetchone()[0]
        if last is not None:
            erase = f"DELETE FROM {table} WHERE id = ? AND {slot} <= ?"  # noqa: S608 - nor here
            db.execute(erase, (chain, last))
            return True
    db.execute("DELETE FROM producers WHERE id = ?", (chain,))
    db.execute("DELETE FROM streams WHERE id = ?", (chain,))
    return False


def details(db: sqlite3.Connection, chain: int, limit: int) -> StoredDetails:
    """Return how a stream is stored."""
    segments = db.execute(
        "SELECT first, stop, data_bytes, at FROM segments WHERE id = ? ORDER BY first DESC LIMIT ?",
        (chain, limit),
    ).fetchall()
    (cold,) = db.execute("SELECT sum(data_bytes) FROM segments WHERE id = ?", (chain,)).fetchone()
    (forks,) = db.execute("SELECT count(*) FROM edges WHERE parent = ?", (chain,)).fetchone()
    paths = db.execute(
        "SELECT path FROM edges JOIN streams ON id = fork"
        " WHERE parent = ? AND path IS NOT NULL ORDER BY path LIMIT ?",
        (chain, limit),
    ).fetchall()
    producers = db.execute(
        "SELECT producer, epoch, seq FROM producers WHERE id = ? LIMIT ?", (chain, limit)
    ).fetchall()
    return StoredDetails(
        hot_from=segments[0][1] if segments else 0,
        cold_bytes=cold or 0,
        segments=[SegmentInfo(*row) for row in segments],
        forks=forks,
        fork_paths=[path for (path,) in paths],
        producers=[Producer(*row) for row in producers],
    )


def load_chain(db: sqlite3.Connection, path: str) -> Chain | None:
    row = db.execute(
        "SELECT id, path, config, accessed, soft FROM streams WHERE path = ?", (path,)
    ).fetchone()
    if row is None:
        return None
    stream = stream_of(*row[:3])
    chain = Chain(stream, last_state(db, stream), row[3], soft=bool(row[4]))
    chain.earliest = earliest_slot(db, stream)
    if stream.config.ttl is not None:
        chain.accessed += renewal_slack(stream.config.ttl)
    return chain


def store_clock(db: sqlite3.Connection, stream: Stream, accessed: int) -> None:
    db.execute(
        "UPDATE streams SET accessed = ?, deadline = ? WHERE id = ?",
        (accessed, stored_deadline(stream.config, accessed), stream.id),
    )


def last_state(db: sqlite3.Connection, stream: Stream) -> State:
    row = db.execute(
        "SELECT n, offset, size, at, state FROM entries WHERE id = ? ORDER BY n DESC LIMIT 1",
        (stream.id,),
    ).fetchone()
    return stream.config.initial_state() if row is None else state_of(*row)


def read_chunk(
    db: sqlite3.Connection,
    chain: int,
    first: int,
    stop: int,
    chunk_bytes: int,
    body_file: Callable[[int, str], bytes],
    after: int = 0,
    unfolded: Sequence[schema.Row] = (),
) -> Chunk | None:
    """Read from slot `first` on; None when neither the table nor `unfolded` has that slot.

    `unfolded`: entries that are not in the table yet, up to `stop`."""
    end_of_table = unfolded[0][1] if unfolded else stop
    rows = db.execute(
        "SELECT n, offset, size, body, file, parts FROM entries"
        " WHERE id = ? AND n >= ? AND n < ? ORDER BY n",
        (chain, first, end_of_table),
    )
    others = ((row[1], row[2], row[3], row[5], row[6], row[8]) for row in unfolded)
    bodies: list[bytes] = []
    boundary = 0
    end = None
    # An open cursor would keep its snapshot, and a second read would see nothing new.
    with closing(rows):
        for slot, offset, size, body, file, parts in itertools.chain(rows, others):
            if end is None and slot != first:
                return None
            if file is not None:
                body = body_file(chain, file)
            if end is None:
                boundary = ((size - len(body)) // chunk_bytes + 1) * chunk_bytes
            if parts is None and not after:
                bodies.append(body)
            else:
                bodies += bodies_after(body, parts_of(parts), offset, after)
                after = 0
            end = slot + 1, offset, size
            if size >= boundary:
                break
    return None if end is None else Chunk(bodies, *end)


def start_of(db: sqlite3.Connection, chain: int, slot: int) -> tuple[int, int] | None:
    """Offset and size at which `slot` begins, if the table has the slot before it."""
    query = "SELECT offset, size FROM entries WHERE id = ? AND n = ?"
    return cast("tuple[int, int] | None", db.execute(query, (chain, slot - 1)).fetchone())


def slot_info(db: sqlite3.Connection, chain: int, slot: int) -> SlotInfo | None:
    """Return the offset after `slot` and its time, if the table has it."""
    query = "SELECT offset, at FROM entries WHERE id = ? AND n = ?"
    row = db.execute(query, (chain, slot)).fetchone()
    return None if row is None else SlotInfo(*row)


def last_slot(db: sqlite3.Connection, chain: int) -> int | None:
    """The last slot of a chain that is in the table, or the one before its first; None when the
    stream is deleted."""
    row = db.execute(
        "SELECT path, config FROM streams WHERE id = ? AND path IS NOT NULL", (chain,)
    ).fetchone()
    return None if row is None else last_state(db, stream_of(chain, *row)).slot - 1


def first_slot(db: sqlite3.Connection, chain: int) -> int | None:
    """The first slot of a chain that is in the table."""
    row = db.execute("SELECT min(n) FROM entries WHERE id = ?", (chain,)).fetchone()
    return cast("int | None", row[0])


def first_kept(db: sqlite3.Connection, chain: int) -> int | None:
    """The first slot of a chain that is in a segment or in the table."""
    row = db.execute("SELECT min(first) FROM segments WHERE id = ?", (chain,)).fetchone()
    return cast("int | None", row[0]) if row[0] is not None else first_slot(db, chain)


def earliest_slot(db: sqlite3.Connection, stream: Stream) -> int:
    """The first slot of a stream that can be read."""
    return earliest(stream.config, first_kept(db, stream.id) or 0)


def list_streams(
    db: sqlite3.Connection, prefix: str, after: str, limit: int, now: int
) -> list[Listed]:
    # Every path that begins with the prefix sorts before the prefix and the largest code point.
    rows = db.execute(
        "SELECT id, path, config FROM streams"
        " WHERE path > ? AND path >= ? AND path < ?"
        " AND soft = 0 AND (deadline IS NULL OR deadline > ?) ORDER BY path LIMIT ?",
        (after, prefix, prefix + "\U0010ffff", now, limit),
    )
    streams = list(itertools.starmap(stream_of, rows))
    return [Listed(stream, last_state(db, stream)) for stream in streams]
