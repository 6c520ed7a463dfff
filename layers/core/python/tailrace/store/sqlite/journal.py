"""The journal of the embedded store: entries that are committed, and not in their table yet.

A commit writes all its entries as one record. That is a page or two, whereas the row of each stream
would change a page of its own. The entries stay in memory too, and reads find them there, until a
later commit folds them: it inserts many rows per stream at once, and removes the records that are
needed no more, in one transaction. A start folds what the process before it has left.

An entry that is not folded yet belongs to a stream that is held open, whose tail is in memory.
Entries with large bodies fill pages of their own anyway: they go into the table at once.
"""

from __future__ import annotations

import sqlite3
import struct
import zlib
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import Final

from tailrace.errors import StoreUnavailable
from tailrace.limits import (
    FOLD_BYTES,
    FOLD_ENTRIES,
    JOURNAL_BODY_BYTES,
    JOURNAL_BYTES,
    JOURNAL_ENTRIES,
)
from tailrace.store.sqlite import queries
from tailrace.store.sqlite.schema import Row

OVERHEAD: Final = 400
"""Bytes of memory that an entry takes beside its body."""

_HEAD: Final = struct.Struct("<5q4i")
"""Of an entry: chain, slot, offset, size and time, and the lengths of body, file, state and parts;
-1 for what it lacks."""

_CHECKSUM: Final = struct.Struct("<I")

_size_after = itemgetter(3)


class BadRecord(ValueError):
    """A record is not as it was written."""


def encode(rows: Sequence[Row]) -> bytes:
    """Encode entries as a record, which begins with its checksum."""
    pieces = [b""]
    pack = _HEAD.pack
    for chain, slot, offset, size, at, body, file, state, parts in rows:
        if body and file is None and state is None and parts is None:
            # Nearly all are so.
            pieces += pack(chain, slot, offset, size, at, len(body), -1, -1, -1), body
            continue
        name = None if file is None else file.encode()
        lengths = [-1 if each is None else len(each) for each in (body, name, state, parts)]
        pieces.append(pack(chain, slot, offset, size, at, *lengths))
        pieces += [each for each in (body, name, state, parts) if each]
    content = b"".join(pieces)
    return _CHECKSUM.pack(zlib.crc32(content)) + content


def decode(record: bytes) -> Iterator[Row]:
    """Iterate over the entries of a record; raises BadRecord."""
    content = memoryview(record)[_CHECKSUM.size :]
    if record[: _CHECKSUM.size] != _CHECKSUM.pack(zlib.crc32(content)):
        raise BadRecord("a record of the journal has another checksum than when written")
    position = 0
    while position < len(content):
        *numbers, body, file, state, parts = _HEAD.unpack_from(content, position)
        position += _HEAD.size
        values: list[bytes | None] = []
        for length in (body, file, state, parts):
            values.append(None if length < 0 else bytes(content[position : position + length]))
            position += max(length, 0)
        chain, slot, offset, size, at = numbers
        name = None if values[1] is None else values[1].decode()
        yield chain, slot, offset, size, at, values[0], name, values[2], values[3]


def replay(db: sqlite3.Connection) -> None:
    """Fold what a process has left in the journal when it was killed, in one transaction.

    Some entries of a record may be in their table, or in a segment, already: all of a stream up to
    the last one in the table, which never leaves it. Those of deleted streams are dropped."""
    if db.execute("SELECT 1 FROM journal").fetchone() is None:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        last: dict[int, int | None] = {}
        rows: list[Row] = []
        for (record,) in db.execute("SELECT entries FROM journal ORDER BY n").fetchall():
            for row in decode(record):
                chain = row[0]
                if chain not in last:
                    last[chain] = queries.last_slot(db, chain)
                folded = last[chain]
                if folded is not None and row[1] > folded:
                    rows.append(row)
        queries.insert_entries(db, sorted(rows, key=itemgetter(0, 1)))
        db.execute("DELETE FROM journal")
        db.execute("COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


class Journal:
    """The entries that are in the journal.

    The writer's thread writes and folds them while a commit is under way; what that has changed is
    applied in the event loop by `finish`, before the next commit begins. In between the loop may
    read."""

    def __init__(self) -> None:
        self._next = 1
        """The number of the next record."""
        self._order: deque[tuple[int, int, int]] = deque()
        """The entries of all records that are in the database, in the order of their commits: the
        number of its record, chain and slot of each."""
        self._rows: dict[int, list[Row]] = {}
        """Of each chain the entries that are not folded, in consecutive slots."""
        self._entries = 0
        """How many these are."""
        self._bytes = 0
        """The memory that they take."""
        self._wanted: dict[int, None] = {}
        """Chains that are folded next."""
        self._change = _Change()

    # For the event loop

    @property
    def is_empty(self) -> bool:
        return not self._order

    def has(self, chain: int) -> bool:
        """Whether entries of a chain are not folded."""
        return chain in self._rows

    def chains(self) -> Sequence[int]:
        """All chains with entries that are not folded."""
        return list(self._rows)

    def row(self, chain: int, slot: int) -> Row | None:
        """Return the entry in a slot, if it is not folded."""
        rows = self._rows.get(chain)
        index = -1 if rows is None else slot - rows[0][1]
        return rows[index] if rows is not None and 0 <= index < len(rows) else None

    def rows(self, chain: int, slot: int, stop: int, chunk_bytes: int) -> Sequence[Row]:
        """Return the entries from `slot` up to `stop` that are not folded, as many as a chunk may
        have."""
        rows = self._rows.get(chain)
        if rows is None:
            return ()
        first = rows[0][1]
        begin, end = max(0, slot - first), stop - first
        if begin >= end:
            return ()
        # A chunk ends within its size, counted from the slot in which it begins.
        full = bisect_left(rows, rows[begin][3] + chunk_bytes, begin, key=_size_after)
        return rows[begin : min(end, full + 1)]

    def want(self, chain: int) -> bool:
        """Let the next commit fold a chain; return whether that is new."""
        if chain in self._wanted:
            return False
        self._wanted[chain] = None
        return True

    def finish(self, error: StoreUnavailable | None) -> None:
        """Apply what the commit that has ended did, or forget it when that failed."""
        change, self._change = self._change, _Change()
        if error is not None:
            return
        for _ in range(change.taken):
            self._order.popleft()
        self._entries -= change.entries
        self._bytes -= change.bytes
        for chain, count in change.folded.items():
            self._wanted.pop(chain, None)
            rows = self._rows[chain]
            if count == len(rows):
                del self._rows[chain]
            else:
                del rows[:count]
        for record, new in change.written:
            self._entries += len(new)
            self._bytes += _memory(new)
            for row in new:
                chain = row[0]
                self._order.append((record, chain, row[1]))
                others = self._rows.get(chain)
                if others is None:
                    self._rows[chain] = [row]
                else:
                    others.append(row)

    # For the writer's thread

    def write(self, db: sqlite3.Connection, rows: Sequence[Row]) -> None:
        """Write the entries of a commit as a record; and fold older ones if there are too many."""
        self._check(rows)
        large = {row[0] for row in rows if row[5] is not None and len(row[5]) > JOURNAL_BODY_BYTES}
        if large:
            # The entries of a chain go into the table in order.
            large = {chain for chain in large if len(self._rows.get(chain, ())) <= FOLD_ENTRIES}
            for chain in large:
                self._plan(chain)
            self._insert(db)
            queries.insert_entries(db, [row for row in rows if row[0] in large])
            rows = [row for row in rows if row[0] not in large]
        if rows:
            number = self._next
            self._next += 1
            queries.insert_record(db, number, encode(rows))
            self._change.written.append((number, rows))
        if self._wanted or self._is_full():
            self.fold(db)

    def fold(self, db: sqlite3.Connection) -> bool:
        """Fold chains that are wanted, then the oldest entries, until the journal is within its
        limits and a few more; return whether there are more."""
        change = self._change
        for chain in self._wanted:
            self._plan(chain)
        for record, chain, slot in islice(self._order, change.taken, None):
            rows = self._rows.get(chain)
            if rows is not None and slot >= rows[0][1] + change.folded.get(chain, 0):
                enough = change.entries >= FOLD_ENTRIES or change.bytes >= FOLD_BYTES
                if enough and not self._is_full():
                    stop = record
                    break
                self._plan(chain)
            change.taken += 1
        else:
            stop = change.written[0][0] if change.written else self._next
        self._insert(db)
        queries.delete_records(db, stop)
        return change.taken < len(self._order)

    def _check(self, rows: Sequence[Row]) -> None:
        """Fail a commit that would fill a slot twice, as the key of the table would."""
        last: dict[int, int] = {}
        for row in rows:
            chain, slot = row[0], row[1]
            before = last.get(chain)
            if before is None and chain in self._rows:
                before = self._rows[chain][-1][1]
            if before is not None and slot != before + 1:
                raise RuntimeError(f"slot {slot} of {chain:016x} does not follow {before}")
            last[chain] = slot

    def _is_full(self) -> bool:
        """Whether the journal is beyond its limits.

        Of the entries of its records at most half are usually folded."""
        change = self._change
        return (
            self._entries - change.entries > JOURNAL_ENTRIES
            or self._bytes - change.bytes > JOURNAL_BYTES
            or len(self._order) - change.taken > 4 * JOURNAL_ENTRIES
        )

    def _plan(self, chain: int) -> None:
        """Add the next entries of a chain to those that are folded."""
        rows = self._rows.get(chain)
        begin = self._change.folded.get(chain, 0)
        if rows is None or begin == len(rows):
            return
        part = rows[begin : begin + FOLD_ENTRIES]
        if part[-1][3] - part[0][3] > FOLD_BYTES:
            del part[bisect_right(part, part[0][3] + FOLD_BYTES, key=_size_after) :]
        self._change.rows += part
        self._change.entries += len(part)
        self._change.bytes += _memory(part)
        self._change.folded[chain] = begin + len(part)

    def _insert(self, db: sqlite3.Connection) -> None:
        rows, self._change.rows = self._change.rows, []
        queries.insert_entries(db, rows)


class _Change:
    """Changes of the journal by the commit that is under way."""

    def __init__(self) -> None:
        self.written: list[tuple[int, Sequence[Row]]] = []
        """Its records."""
        self.folded: dict[int, int] = {}
        """How many of the first entries of each chain it folds."""
        self.rows: list[Row] = []
        """Those that it has to insert yet."""
        self.entries = self.bytes = 0
        """How many it folds in all, and the memory that they took."""
        self.taken = 0
        """How many of the oldest entries have left the journal then."""


def _memory(rows: Sequence[Row]) -> int:
    return OVERHEAD * len(rows) + sum([len(row[5]) for row in rows if row[5]])
