"""Subscriptions in the embedded store: rows of its database, written in its group commits.

One process owns the database, so what decides whether an append or a new stream matters to anybody
is in memory: the incarnations that are followed, and the patterns.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from functools import partial

from tailrace.errors import StoreUnavailable
from tailrace.protocols.subscriptions.core.globs import PatternIndex
from tailrace.protocols.subscriptions.core.records import (
    DurableSubscription,
    Link,
    LinkChange,
    record_of,
    record_text,
)
from tailrace.protocols.subscriptions.store import IndexedLink
from tailrace.store.sqlite.store import SqliteStore

_LINK = "path, stream, epoch, explicit, glob, acked, tail"


class SqliteSubscriptions:
    def __init__(self, store: SqliteStore) -> None:
        self._database = store.database
        self._followed: Counter[int] = Counter()
        """How many links each incarnation has."""
        self._patterns: PatternIndex[tuple[str, str, str | None]] = PatternIndex()
        """Subscriptions with a pattern, as `id`, `uid` and `wake_stream`."""

    async def open(self) -> None:
        """Read what is kept in memory."""
        # By the writer: the threads of readers begin only once.
        streams, records = await self._database.write(_load_index)
        self._followed.update(streams)
        for record in records:
            self._add_pattern(record)

    def follows(self, stream: int) -> bool:
        return stream in self._followed

    # The record

    async def load(self, id: str) -> DurableSubscription | None:  # noqa: A002
        query = "SELECT record FROM subscriptions WHERE id = ?"
        row = await self._database.query(lambda db: db.execute(query, (id,)).fetchone())
        return None if row is None else record_of(row[0])

    async def create(self, record: DurableSubscription) -> bool:
        # Before the commit: a stream that is created meanwhile must not be missed.
        self._add_pattern(record)

        def stored(created: bool, error: StoreUnavailable | None) -> None:
            if error is not None or not created:
                self._remove_pattern(record)

        return await self._database.write(partial(_insert, record=record), stored)

    async def save(
        self,
        before: DurableSubscription,
        after: DurableSubscription,
        links: Sequence[LinkChange] = (),
    ) -> bool:
        changed = [each for each in links if _stream_of(each.before) != _stream_of(each.after)]
        old = [_stream_of(each.before) for each in changed]
        new = [_stream_of(each.after) for each in changed]
        # Before the commit: an append that comes with it must not be missed.
        self._followed.update(stream for stream in new if stream is not None)

        def stored(saved: bool, error: StoreUnavailable | None) -> None:
            for stream in old if saved and error is None else new:
                self._unfollow(stream)

        write = partial(_save, before=before, after=after, links=links)
        return await self._database.write(write, stored)

    async def erase(self, record: DurableSubscription) -> None:
        streams = await self._database.write(partial(_erase, record=record))
        for stream in streams:
            self._unfollow(stream)
        self._remove_pattern(record)

    # Links

    async def link(self, record: DurableSubscription, path: str) -> Link | None:
        query = f"SELECT {_LINK} FROM links WHERE uid = ? AND path = ?"  # noqa: S608
        row = await self._database.query(
            lambda db: db.execute(query, (record.uid, path)).fetchone()
        )
        return None if row is None else _link_of(row)

    async def links(self, record: DurableSubscription, after: str, limit: int) -> Sequence[Link]:
        query = (
            f"SELECT {_LINK} FROM links"  # noqa: S608
            " WHERE uid = ? AND path > ? ORDER BY path LIMIT ?"
        )
        rows = await self._database.query(
            lambda db: db.execute(query, (record.uid, after, limit)).fetchall()
        )
        return list(map(_link_of, rows))

    async def pending(self, record: DurableSubscription, limit: int) -> Sequence[Link]:
        query = (
            f"SELECT {_LINK} FROM links"  # noqa: S608
            " WHERE uid = ? AND pending = 1 ORDER BY path LIMIT ?"
        )
        rows = await self._database.query(
            lambda db: db.execute(query, (record.uid, limit)).fetchall()
        )
        return list(map(_link_of, rows))

    # The index

    async def followers(self, stream: int) -> Sequence[IndexedLink]:
        query = "SELECT id, uid, path FROM links WHERE stream = ?"
        rows = await self._database.query(lambda db: db.execute(query, (stream,)).fetchall())
        return [IndexedLink(*row) for row in rows]

    async def forget(self, stream: int, follower: IndexedLink) -> None:
        """Nothing: the index is of the links themselves."""

    async def interested(self, path: str) -> Sequence[str]:
        query = "SELECT id FROM links WHERE path = ? AND explicit = 1"
        rows = await self._database.query(lambda db: db.execute(query, (path,)).fetchall())
        ids = {row[0] for row in rows}
        matching = self._patterns.match(path)
        ids.update(id_ for id_, _, wake_stream in matching if wake_stream != path)
        return sorted(ids)

    async def list(self, after: str, limit: int) -> Sequence[DurableSubscription]:
        query = "SELECT record FROM subscriptions WHERE id > ? ORDER BY id LIMIT ?"
        rows = await self._database.query(lambda db: db.execute(query, (after, limit)).fetchall())
        return [record_of(row[0]) for row in rows]

    async def due(self, until: int, limit: int) -> Sequence[tuple[str, int]]:
        query = "SELECT id, due_at FROM subscriptions WHERE due_at <= ? ORDER BY due_at LIMIT ?"
        return await self._database.query(lambda db: db.execute(query, (until, limit)).fetchall())

    # Inside

    def _unfollow(self, stream: int | None) -> None:
        if stream is None:
            return
        self._followed[stream] -= 1
        if self._followed[stream] <= 0:
            del self._followed[stream]

    def _add_pattern(self, record: DurableSubscription) -> None:
        if record.pattern is not None:
            self._patterns.add(record.pattern, (record.id, record.uid, record.wake_stream))

    def _remove_pattern(self, record: DurableSubscription) -> None:
        if record.pattern is not None:
            self._patterns.remove(record.pattern, (record.id, record.uid, record.wake_stream))


def _load_index(db: sqlite3.Connection) -> tuple[list[int], list[DurableSubscription]]:
    streams = db.execute("SELECT stream FROM links WHERE stream IS NOT NULL").fetchall()
    records = db.execute("SELECT record FROM subscriptions").fetchall()
    return [row[0] for row in streams], [record_of(row[0]) for row in records]


def _insert(db: sqlite3.Connection, record: DurableSubscription) -> bool:
    taken = "SELECT 1 FROM subscriptions WHERE id = ?"
    if db.execute(taken, (record.id,)).fetchone() is not None:
        return False
    db.execute(
        "INSERT INTO subscriptions VALUES (?, ?, ?, ?, ?)",
        (record.id, record.uid, record.version, record.due_at, record_text(record)),
    )
    return True


def _save(
    db: sqlite3.Connection,
    before: DurableSubscription,
    after: DurableSubscription,
    links: Sequence[LinkChange],
) -> bool:
    saved = db.execute(
        "UPDATE subscriptions SET version = ?, due_at = ?, record = ?"
        " WHERE id = ? AND version = ? AND uid = ?",
        (after.version, after.due_at, record_text(after), before.id, before.version, before.uid),
    )
    if not saved.rowcount:
        return False
    for old, new in links:
        if new is None:
            assert old is not None
            db.execute("DELETE FROM links WHERE uid = ? AND path = ?", (before.uid, old.path))
        else:
            db.execute(
                f"INSERT OR REPLACE INTO links (uid, id, pending, {_LINK})"  # noqa: S608
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (before.uid, before.id, new.pending, *new),
            )
    return True


def _erase(db: sqlite3.Connection, record: DurableSubscription) -> list[int]:
    query = "SELECT stream FROM links WHERE uid = ? AND stream IS NOT NULL"
    streams = [row[0] for row in db.execute(query, (record.uid,))]
    db.execute("DELETE FROM links WHERE uid = ?", (record.uid,))
    db.execute("DELETE FROM subscriptions WHERE id = ? AND uid = ?", (record.id, record.uid))
    return streams


def _stream_of(link: Link | None) -> int | None:
    return None if link is None else link.stream


def _link_of(row: tuple[str, int | None, int, int, int, str, str]) -> Link:
    path, stream, epoch, explicit, glob, acked, tail = row
    return Link(path, stream, epoch, bool(explicit), bool(glob), acked, tail)
