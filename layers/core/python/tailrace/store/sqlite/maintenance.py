"""Maintenance of the embedded store: the sweep, compaction and retention."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import stat
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from tailrace import metrics
from tailrace.clock import Clock
from tailrace.errors import DamagedData, StoreUnavailable
from tailrace.limits import ORPHAN_FILE_SECONDS
from tailrace.log.retention import Retention
from tailrace.log.state import Stream
from tailrace.segments.format import BadSegment
from tailrace.settings import Settings
from tailrace.store.base import Compacted
from tailrace.store.sqlite import compaction, queries, retention
from tailrace.store.sqlite.database import Database
from tailrace.store.sqlite.directory import DataDirectory
from tailrace.store.sqlite.files import PRIVATE_FILE, ChainFiles
from tailrace.store.sqlite.reading import FileSegments

logger = logging.getLogger("tailrace")

_MARKED = 0o400


def remove_orphans(
    db: sqlite3.Connection, bodies: ChainFiles, segments: ChainFiles, now: int
) -> None:
    """Mark new orphans, and remove those that were marked long enough ago."""
    body = "SELECT 1 FROM entries WHERE id = ? AND n = ? AND file = ?"
    segment = "SELECT 1 FROM segments WHERE id = ? AND first = ? AND name = ?"
    due: list[Path] = []
    for files, query in ((bodies, body), (segments, segment)):
        marked = 0
        for chain, slot, name in files.left_behind():
            path = files.path(chain, name)
            named = db.execute(query, (chain, slot, name)).fetchone() is not None
            try:
                status = path.stat()
                is_marked = not status.st_mode & stat.S_IWUSR
                age = now - status.st_mtime_ns // 1_000_000
                if named:
                    if is_marked:
                        path.chmod(PRIVATE_FILE)
                elif age < 0:
                    # A clock is wrong, or was: no age can be told.
                    continue
                elif not is_marked:
                    os.utime(path, ns=(now * 1_000_000, now * 1_000_000))
                    path.chmod(_MARKED)
                    marked += 1
                elif age >= ORPHAN_FILE_SECONDS * 1000:
                    due.append(path)
            except OSError as error:
                logger.warning("a file stays that is not needed: %s", error)
        if marked:
            logger.warning(
                "the database names none of %d files in '%s'; they are removed after a day,"
                " unless a database is restored that does",
                marked,
                files.root,
            )
    if due:
        _remove(db, due)


def _remove(db: sqlite3.Connection, due: list[Path]) -> None:
    # A damaged database may have lost the rows that name them.
    (health,) = db.execute("PRAGMA quick_check(1)").fetchone()
    if health != "ok":
        logger.error("the database is damaged (%s); files that it does not name stay", health)
        return
    for path in due:
        path.unlink(missing_ok=True)
    logger.info("removed %d files that the database does not name", len(due))


class Maintenance:
    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        directory: DataDirectory,
        database: Database,
        archive: FileSegments,
        fold: Callable[[], Awaitable[None]],
        advance_beginning: Callable[[Stream, int], None],
    ) -> None:
        """`fold` moves entries of the journal into their table. `advance_beginning` is told the
        first slot that retention has left of a stream."""
        self._fold = fold
        self._clock = clock
        self._bodies = directory.bodies
        self._segments = directory.segments
        self._database = database
        self._archive = archive
        self._advance_beginning = advance_beginning
        self._limits = compaction.Limits(settings.segment_max_messages, settings.segment_max_bytes)
        self._orphans_due = 0
        """When files that no row names are searched for again."""
        self._lock = asyncio.Lock()
        """Keeps sweep and compaction apart: one might remove what the other has just written."""
        self._replaced: list[tuple[ChainFiles, int, str]] = []
        """Files of large bodies that are in segments now, and of slots that retention removed."""
        self._retention = Retention.parse(settings.retention)
        self._retained = -1
        """The stream up to which retention has been applied in this round."""

    async def sweep(self) -> None:
        """Remove deleted streams, orphans, and slots that retention does not keep."""
        query = "SELECT id FROM streams WHERE path IS NULL"
        async with self._lock:
            deleted = await self._database.query(lambda db: db.execute(query).fetchall())
            if deleted:
                # What was erased must not be folded afterwards.
                await self._database.commit.flush()
            await self._fold()
            for (chain,) in deleted:
                while await self._database.write(partial(queries.erase_some, chain=chain)):
                    pass
                for files in (self._bodies, self._segments):
                    await self._database.run(files.remove_all, chain)
            now = self._clock()
            if now >= self._orphans_due:
                self._orphans_due = now + ORPHAN_FILE_SECONDS * 1000
                await self._database.query(
                    partial(remove_orphans, bodies=self._bodies, segments=self._segments, now=now)
                )
            await self._retain()

    async def compact(self, progress: Callable[[Compacted], None] | None = None) -> Compacted:
        """Move entries that fill a segment; `progress` is called after each segment.

        Files that a segment replaces stay until the next call, or until the store is closed, so
        that a copy of the data directory that is complete by then has all files of its database."""
        # First: a record of the journal may name a file that is about to be removed.
        await self._fold()
        await self.remove_replaced()
        done = Compacted()
        after: int | None = -1
        while after is not None:
            streams, after = await self._database.query(
                partial(compaction.candidates, after=after, limits=self._limits)
            )
            for stream in streams:
                before = done.segments
                try:
                    while await self._move(stream, done):
                        done.streams += done.segments == before + 1
                        if progress is not None:
                            progress(done)
                except (BadSegment, DamagedData, FileNotFoundError) as error:
                    done.failed.append(f"cannot compact '{stream.path}': {error}")
        return done

    async def remove_replaced(self) -> None:
        """Remove files that no row names any more."""
        replaced, self._replaced = self._replaced, []
        for files, chain, name in replaced:
            await self._database.run(files.remove, chain, name)

    async def retain(self) -> int:
        """Apply retention to all streams; return the number of removed entries."""
        entries = 0
        async with self._lock:
            self._retained = -1
            await self._fold()
            while True:
                entries += await self._retain()
                if self._retained == -1:
                    return entries

    async def _move(self, stream: Stream, done: Compacted) -> bool:
        """Move one segment of a stream; return whether its entries filled one."""
        async with self._lock:
            sealed = await self._database.query(
                partial(
                    compaction.next_segment,
                    stream=stream,
                    limits=self._limits,
                    segments=self._archive,
                    bodies=self._bodies,
                )
            )
            if sealed is None:
                return False
            chain = stream.id
            name = await self._database.run(
                self._segments.write, chain, sealed.first, sealed.segment
            )
            manifest = sealed.manifest(name, self._clock())
            # If the commit fails, the file stays: later starts see whether anything names it.
            if not await self._database.write(
                partial(compaction.move, sealed=sealed, manifest=manifest)
            ):
                await self._database.run(self._segments.remove, chain, name)
                return False
        self._replaced += [(self._bodies, chain, file) for file in sealed.files]
        done.segments += 1
        done.entries += sealed.stop - sealed.first
        metrics.count("compacted_entries_total", by=sealed.stop - sealed.first)
        done.bytes += manifest.data_bytes
        return True

    async def _retain(self) -> int:
        """Apply retention to the next page of streams; return the number of removed entries."""
        if not self._retention.policies:
            return 0
        entries = 0
        due, after = await self._database.query(
            partial(
                retention.due,
                after=self._retained,
                retention=self._retention,
                segments=self._archive,
                now=self._clock(),
            )
        )
        self._retained = -1 if after is None else after
        for stream, first in due:
            more = True
            while more:
                then = partial(self._removed, stream, first)
                remove = partial(retention.remove, chain=stream.id, first=first)
                gone = await self._database.write(remove, then)
                more = gone is not None and gone.more
                entries += 0 if gone is None else gone.entries
        return entries

    def _removed(
        self,
        stream: Stream,
        first: int,
        gone: retention.Removed | None,
        error: StoreUnavailable | None,
    ) -> None:
        if gone is None or error is not None:
            return
        self._advance_beginning(stream, first)
        for files, names in ((self._bodies, gone.bodies), (self._segments, gone.segments)):
            self._replaced += [(files, stream.id, name) for name in names]
