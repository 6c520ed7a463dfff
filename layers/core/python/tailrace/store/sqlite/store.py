"""The embedded store: one SQLite file, owned by one process.

Because one process owns the file, the tails of open streams live in memory and are the truth for
writers: an entry takes its slot there at once, and shares the next commit with all others. Readers
see only what is committed. Entries that fill a segment move into files, where reads find them.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, TypeVar, cast

from tailrace.clock import Clock, system_clock
from tailrace.errors import SlotTrimmed, StoreUnavailable
from tailrace.limits import ORPHAN_SECONDS
from tailrace.log.expiry import renewal_slack
from tailrace.log.offsets import BEGINNING, NOW
from tailrace.log.retention import Retention, earliest
from tailrace.log.slots import Chunk, SlotInfo
from tailrace.log.state import Entry, Listed, Stream
from tailrace.segments.format import BadSegment
from tailrace.settings import Settings
from tailrace.store.base import Compacted, ReadResult, Tail, read_through
from tailrace.store.sqlite import compaction, queries, retention, schema
from tailrace.store.sqlite.archive import Archive
from tailrace.store.sqlite.chain import Chain
from tailrace.store.sqlite.commit import GroupCommit
from tailrace.store.sqlite.directory import DataDirectory
from tailrace.store.sqlite.files import ChainFiles
from tailrace.store.sqlite.hot import Budget
from tailrace.store.sqlite.orphans import remove_orphans
from tailrace.store.sqlite.reading import Reading
from tailrace.store.sqlite.writes import BodyFile, Operation, Put, Then, entry_row, grouped
from tailrace.store.waiting import resolve

T = TypeVar("T")

EVICT_SCAN: Final = 16
"""Streams in use that a search for an idle one passes over."""

THREADS: Final = 4
"""For reads of what is not in memory, and for files of large bodies."""


class SqliteStore:
    def __init__(self, settings: Settings, clock: Clock = system_clock) -> None:
        self._clock = clock
        self._directory = DataDirectory(Path(settings.data))
        self._inline_bytes = settings.inline_bytes
        self._open_streams = settings.open_streams
        self._bodies = self._directory.bodies
        self._segments = self._directory.segments
        self._archive = Archive(self._segments, settings.index_slots)
        self._reading = Reading(self._bodies, self._archive)
        self._limits = compaction.Limits(settings.segment_max_messages, settings.segment_max_bytes)
        self._budget = Budget(settings.hot_bytes)
        self._chains: OrderedDict[str, Chain] = OrderedDict()
        self._by_id: dict[int, Chain] = {}
        self._opening: dict[str, asyncio.Task[bool]] = {}
        self._threads = ThreadPoolExecutor(THREADS, "tailrace-reader")
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._freed = 0
        """How often streams lost their name, or their beginning, that were not held open at that
        moment."""
        self._orphans_due = 0
        """When files that nothing names are looked for again."""
        self._care = asyncio.Lock()
        """Sweeping and moving do not meet: what one of them writes the other might remove."""
        self._replaced: list[tuple[ChainFiles, int, str]] = []
        """Files of large bodies that are in segments now, and of what retention let go of."""
        self._retention = Retention.parse(settings.retention)
        self._retained = -1
        """The stream up to which retention was looked at last."""

    # Life

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lock, db = self._directory.open()
        self._commit = GroupCommit(db, grouped)

    async def close(self) -> None:
        for chain in self._chains.values():
            self._store_clock(chain)
        await self._commit.drain()
        with contextlib.suppress(OSError):
            await self.remove_replaced()
        self._threads.shutdown()
        for db in self._connections:
            db.close()
        # The last: only a connection that may write folds the log into the database.
        await self._commit.close()
        self._lock.close()

    # Writing

    async def tail(self, path: str) -> Tail | None:
        while True:
            tail = self.held(path)
            if tail is not None:
                return tail
            if path in self._chains:
                await self._commit.flush()
            elif not await self._load(path) and path not in self._chains:
                return None

    def held(self, path: str) -> Tail | None:
        chain = self._chains.get(path)
        if chain is None or not chain.stable:
            return None
        self._chains.move_to_end(path)
        self._evict()
        return chain

    def put(self, tail: Tail, entry: Entry) -> Awaitable[bool]:
        chain = cast("Chain", tail)
        future: asyncio.Future[bool] = self._loop.create_future()
        if chain.state.slot != entry.slot or not self._current(chain):
            future.set_result(False)
            return future
        chain.state = entry.state
        self._commit.add(Put(chain, entry, self._body_file(chain, entry), future, self._committed))
        return future

    def append_lock(self, _: str) -> None:
        """Writers build on each other's entries before they are committed."""

    async def confirm(self, tail: Tail) -> bool:
        if tail.state is not tail.committed:
            await self._commit.flush()
        return True

    async def producer(self, tail: Tail, producer: str) -> tuple[int, int] | None:
        # A spill that is not committed yet is in no table the readers see.
        await self.confirm(tail)
        query = "SELECT epoch, seq FROM producers WHERE id = ? AND producer = ?"
        return await self._query(
            lambda db: db.execute(query, (tail.stream.id, producer)).fetchone()
        )

    async def create(self, stream: Stream, entries: Sequence[Entry]) -> Tail | None:
        if stream.path in self._chains:
            return None
        fork = stream.config.fork
        if fork is not None:
            source = self._by_id.get(fork.parent)
            if source is None or source.soft_deleted or not source.stable:
                return None
        chain = Chain(stream, stream.config.initial_state(), stream.config.created)
        chain.stable = False
        self._keep(chain)
        files = [self._body_file(chain, entry) for entry in entries]

        def insert(db: sqlite3.Connection) -> bool:
            if not queries.insert_stream(db, stream):
                return False
            pairs = zip(entries, files, strict=True)
            queries.insert_entries(db, [entry_row(chain, entry, file) for entry, file in pairs])
            return True

        def created(claimed: bool, error: StoreUnavailable | None) -> None:
            if error is not None or not claimed:
                self._forget(chain)
                return
            for entry in entries:
                chain.state = entry.state
                self._committed(chain, entry)
            chain.stable = True

        return chain if await self._write(insert, created) else None

    async def drop(self, tail: Tail) -> bool:
        chain = cast("Chain", tail)
        if chain.soft_deleted or not self._current(chain):
            return False
        chain.stable = False

        def dropped(freed: set[int], error: StoreUnavailable | None) -> None:
            chain.stable = True
            if error is not None:
                return
            chain.soft_deleted = True
            chain.wake()
            for each in freed:
                if each in self._by_id:
                    self._forget(self._by_id[each])
                else:
                    self._freed += 1

        await self._write(partial(queries.drop_stream, chain=chain.stream.id), dropped)
        return True

    async def touch(self, tail: Tail, now: int) -> None:
        chain = cast("Chain", tail)
        ttl = chain.stream.config.ttl
        if ttl is None:
            return
        chain.accessed = now
        chain.touched = True
        if now - chain.storing > renewal_slack(ttl):
            self._store_clock(chain)

    # Reading

    async def read_at(self, path: str, slot: int, chunk_bytes: int) -> ReadResult | None:
        tail = self.held(path) or await self.tail(path)
        if tail is None:
            return None
        state = tail.committed
        stop = state.tail
        if slot == BEGINNING:
            slot = tail.earliest
        if tail.soft_deleted or slot == NOW or slot >= stop:
            return ReadResult(tail, Chunk((), stop, state.offset, state.size), state)
        if slot < tail.earliest:
            raise SlotTrimmed(tail.earliest)
        chunk = await read_through(self.read, tail.stream, slot, stop, chunk_bytes)
        return ReadResult(tail, chunk, state if chunk.slot >= stop else None)

    async def read(self, chain: int, slot: int, stop: int, chunk_bytes: int) -> Chunk:
        held = self._by_id.get(chain)
        if held is not None and slot >= held.hot.first:
            return held.hot.read(slot, stop, chunk_bytes)
        return await self._query(lambda db: self._reading.chunk(db, chain, slot, stop, chunk_bytes))

    async def position(self, chain: int, slot: int) -> tuple[int, int]:
        return await self._query(lambda db: self._reading.position(db, chain, slot))

    async def slot_info(self, chain: int, slot: int) -> SlotInfo:
        return await self._query(lambda db: self._reading.slot_info(db, chain, slot))

    async def wait(self, tail: Tail, slot: int, seconds: float) -> bool:
        chain = cast("Chain", tail)
        if chain.committed.tail > slot or chain.committed.closed or chain.soft_deleted:
            return True
        if self._by_id.get(chain.stream.id) is not chain:
            return True
        waiter: asyncio.Future[bool] = self._loop.create_future()
        chain.waiters.add(waiter)
        chain.watchers += 1
        timer = self._loop.call_later(seconds, resolve, waiter, False)
        try:
            return await waiter
        finally:
            timer.cancel()
            chain.watchers -= 1
            chain.waiters.discard(waiter)

    def wake(self) -> None:
        for chain in self._chains.values():
            chain.wake()

    async def list(self, prefix: str, after: str, limit: int, now: int) -> Sequence[Listed]:
        return await self._query(lambda db: queries.list_streams(db, prefix, after, limit, now))

    # Care

    async def expiring(self, now: int) -> Sequence[str]:
        query = (
            "SELECT path FROM streams"
            " WHERE deadline <= ? AND path IS NOT NULL AND soft = 0 LIMIT 1000"
        )
        return await self._query(lambda db: [path for (path,) in db.execute(query, (now,))])

    async def sweep(self) -> None:
        query = "SELECT id FROM streams WHERE path IS NULL"
        async with self._care:
            for (chain,) in await self._query(lambda db: db.execute(query).fetchall()):
                while await self._write(partial(queries.erase_some, chain=chain)):
                    pass
                for files in (self._bodies, self._segments):
                    await self._run(files.remove_all, chain)
            now = self._clock()
            if now >= self._orphans_due:
                self._orphans_due = now + ORPHAN_SECONDS * 1000
                await self._query(
                    partial(remove_orphans, bodies=self._bodies, segments=self._segments, now=now)
                )
            await self._retain()

    async def compact(self, progress: Callable[[Compacted], None] | None = None) -> Compacted:
        """Move what fills segments. Files they replace are there until the next call, or the end.

        So a copy of the database has all it names, if it is complete by then."""
        await self.remove_replaced()
        done = Compacted()
        after: int | None = -1
        while after is not None:
            streams, after = await self._query(
                partial(compaction.candidates, after=after, limits=self._limits)
            )
            for stream in streams:
                before = done.segments
                try:
                    while await self._move(stream, done):
                        done.streams += done.segments == before + 1
                        if progress is not None:
                            progress(done)
                except (BadSegment, FileNotFoundError) as error:
                    done.failed.append(f"cannot compact '{stream.path}': {error}")
        return done

    async def remove_replaced(self) -> None:
        """Remove files that nothing names any more."""
        replaced, self._replaced = self._replaced, []
        for files, chain, name in replaced:
            await self._run(files.remove, chain, name)

    async def retain(self) -> int:
        """Let go of all that is not to be kept; how many entries went."""
        entries = 0
        async with self._care:
            self._retained = -1
            while True:
                entries += await self._retain()
                if self._retained == -1:
                    return entries

    # Inside

    async def _move(self, stream: Stream, done: Compacted) -> bool:
        """One segment of a stream, if it fills one."""
        async with self._care:
            sealed = await self._query(
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
            name = await self._run(self._segments.write, chain, sealed.first, sealed.segment)
            manifest = sealed.manifest(name, self._clock())
            # If the commit fails, the file stays: later starts see whether anything names it.
            if not await self._write(partial(compaction.move, sealed=sealed, manifest=manifest)):
                await self._run(self._segments.remove, chain, name)
                return False
        self._replaced += [(self._bodies, chain, file) for file in sealed.files]
        done.segments += 1
        done.entries += sealed.stop - sealed.first
        done.bytes += manifest.data_bytes
        return True

    async def _retain(self) -> int:
        """Let go of what some streams are not to keep; how many entries went."""
        if not self._retention.rules:
            return 0
        entries = 0
        due, after = await self._query(
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
                then = partial(self._let_go, stream, first)
                remove = partial(retention.remove, chain=stream.id, first=first)
                gone = await self._write(remove, then)
                more = gone is not None and gone.more
                entries += 0 if gone is None else gone.entries
        return entries

    def _let_go(
        self,
        stream: Stream,
        first: int,
        gone: retention.Removed | None,
        error: StoreUnavailable | None,
    ) -> None:
        if gone is None or error is not None:
            return
        held = self._by_id.get(stream.id)
        if held is None:
            # Who opens it just now has to look again.
            self._freed += 1
        else:
            held.earliest = earliest(stream.config, first)
        for files, names in ((self._bodies, gone.bodies), (self._segments, gone.segments)):
            self._replaced += [(files, stream.id, name) for name in names]

    def _current(self, chain: Chain) -> bool:
        """Whether a tail is still the one writers use: it may have been evicted or dropped."""
        return chain.stable and self._by_id.get(chain.stream.id) is chain

    async def _load(self, path: str) -> bool:
        """Open a stream from the file, once for all who ask for it at the same time."""
        opening = self._opening.get(path)
        if opening is None:
            opening = self._loop.create_task(self._open(path))
            self._opening[path] = opening
            opening.add_done_callback(lambda _: self._opening.pop(path))
        return await asyncio.shield(opening)

    async def _open(self, path: str) -> bool:
        while True:
            freed = self._freed
            chain = await self._query(lambda db: queries.load_chain(db, path))
            # What was read before a commit that freed a name may be what it freed.
            if freed == self._freed:
                break
        if chain is not None and path not in self._chains:
            self._keep(chain)
        return chain is not None

    def _keep(self, chain: Chain) -> None:
        self._chains[chain.stream.path] = chain
        self._by_id[chain.stream.id] = chain
        self._evict()

    def _evict(self) -> None:
        """Let go of streams that were not used for long, but never of the latest one."""
        excess = len(self._chains) - self._open_streams
        if excess <= 0:
            return
        scanned = min(excess + EVICT_SCAN, len(self._chains) - 1)
        for chain in list(itertools.islice(self._chains.values(), scanned)):
            if not chain.idle:
                self._store_clock(chain)
            elif len(self._chains) > self._open_streams:
                self._forget(chain)

    def _forget(self, chain: Chain) -> None:
        del self._by_id[chain.stream.id]
        del self._chains[chain.stream.path]
        chain.wake()

    def _committed(self, chain: Chain, entry: Entry) -> None:
        chain.committed = entry.state
        if entry.body is not None:
            self._budget.append(chain.hot, entry.body, entry.state.offset, entry.state.size)

    def _body_file(self, chain: Chain, entry: Entry) -> BodyFile:
        """Start writing a large body to its file; the commit waits for it."""
        if entry.body is None or len(entry.body) <= self._inline_bytes:
            return None
        return self._threads.submit(self._bodies.write, chain.stream.id, entry.slot, entry.body)

    def _store_clock(self, chain: Chain) -> None:
        accessed = chain.accessed
        if not chain.touched or chain.storing == accessed:
            return
        chain.storing = accessed

        def stored(_: None, error: StoreUnavailable | None) -> None:
            if error is None:
                chain.stored = accessed
            else:
                chain.storing = chain.stored

        store = partial(queries.store_clock, stream=chain.stream, accessed=accessed)
        self._commit.add(Operation(store, stored))

    async def _write(
        self, operation: Callable[[sqlite3.Connection], T], then: Then[T] | None = None
    ) -> T:
        future: asyncio.Future[T] = self._loop.create_future()
        self._commit.add(Operation(operation, then, future))
        return await future

    async def _query(self, query: Callable[[sqlite3.Connection], T]) -> T:
        return await self._run(self._with_connection, query)

    async def _run(self, function: Callable[..., T], *args: object) -> T:
        return await self._loop.run_in_executor(self._threads, function, *args)

    def _with_connection(self, query: Callable[[sqlite3.Connection], T]) -> T:
        db = getattr(self._local, "db", None)
        if db is None:
            db = self._local.db = schema.connect(self._directory.path, read_only=True)
            self._connections.append(db)
        return query(db)
