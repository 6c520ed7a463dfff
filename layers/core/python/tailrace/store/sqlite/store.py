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
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from tailrace.clock import Clock, system_clock
from tailrace.errors import SlotTrimmed, StoreUnavailable
from tailrace.limits import INDEX_SLOTS
from tailrace.log.expiry import renewal_slack
from tailrace.log.offsets import BEGINNING, NOW
from tailrace.log.retention import earliest
from tailrace.log.slots import share
from tailrace.log.state import Chunk, Entry, Listed, SlotInfo, State, Stream
from tailrace.settings import Settings
from tailrace.store.base import (
    Compacted,
    ReadResult,
    StoredDetails,
    Waiter,
    read_through,
    resolve,
)
from tailrace.store.sqlite import queries, schema
from tailrace.store.sqlite.chain import Budget, Chain
from tailrace.store.sqlite.database import Database
from tailrace.store.sqlite.directory import DataDirectory, probe
from tailrace.store.sqlite.journal import Journal
from tailrace.store.sqlite.maintenance import Maintenance
from tailrace.store.sqlite.reading import FileSegments, Reading
from tailrace.store.sqlite.writes import BodyFile, Put, Puts, WriteCall, entry_row

T = TypeVar("T")

EVICT_SCAN: Final = 16
"""Streams in use that a search for an idle one passes over."""


class SqliteStore:
    def __init__(self, settings: Settings, clock: Clock = system_clock) -> None:
        self._clock = clock
        self._directory = DataDirectory(Path(settings.data))
        self._inline_bytes = settings.inline_bytes
        self._open_streams = settings.open_streams
        self._read_only = settings.read_only
        self._bodies = self._directory.bodies
        self._segments = self._directory.segments
        self._archive = FileSegments(self._segments, INDEX_SLOTS)
        self._reading = Reading(self._bodies, self._archive)
        self._budget = Budget(settings.hot_bytes)
        self._chains: OrderedDict[str, Chain] = OrderedDict()
        self._by_id: dict[int, Chain] = {}
        self._opening: dict[str, asyncio.Task[bool]] = {}
        self._database = Database(self._directory)
        self._journal = Journal()
        self.maintenance = Maintenance(
            settings, clock, self._directory, self._database, self._archive, self._fold,
            self._advance_beginning,
        )  # fmt: skip
        self.observer: Callable[[Stream, State], None] | None = None
        self._freed = 0
        """How often a stream that was not held open lost its name or its beginning."""

    @property
    def database(self) -> Database:
        """The database, for other rows that are kept there."""
        return self._database

    @property
    def damaged(self) -> int:
        return len(self._database.damage)

    # Life

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._database.open()
        self._commit = self._database.commit
        self._puts = Puts(self._journal, -1, self._committed)

    async def close(self) -> None:
        for chain in self._chains.values():
            self._store_clock(chain)
        await self._commit.drain()
        with contextlib.suppress(StoreUnavailable):
            await self._fold()
        with contextlib.suppress(OSError):
            await self.maintenance.remove_replaced()
        # Their callers may have been cancelled, but they still read the database.
        await asyncio.gather(*self._opening.values(), return_exceptions=True)
        await self._database.close()

    # Writing

    async def probe(self) -> None:
        if self._read_only:
            await self._database.query(schema.stored_id)
        elif not self._commit.is_proven:
            try:
                await self._database.run(probe, self._directory.path)
            except OSError as error:
                raise StoreUnavailable(f"the store cannot write: {error.strerror}") from error
            await self._database.write(_rewrite_identity)

    async def tail(self, path: str) -> Chain | None:
        while True:
            tail = self.held(path)
            if tail is not None:
                return tail
            if path in self._chains:
                await self._commit.flush()
            elif not await self._load(path) and path not in self._chains:
                return None

    def held(self, path: str) -> Chain | None:
        chain = self._chains.get(path)
        if chain is None or not chain.stable:
            return None
        self._chains.move_to_end(path)
        if len(self._chains) > self._open_streams:
            self._evict()
        return chain

    def put(self, chain: Chain, before: State, entry: Entry) -> asyncio.Future[int | None]:
        future: asyncio.Future[int | None] = self._loop.create_future()
        self.put_then(chain, before, entry, future)
        return future

    def put_then(self, chain: Chain, before: State, entry: Entry, waiter: Waiter) -> None:
        if chain.state is not before or not self._current(chain):
            waiter.set_result(None)
            return
        put, commit, body = chain.open_put, self._commit.begun, entry.body
        if (
            put is not None
            and put.admits(entry, commit)
            and (body is None or len(body) <= self._inline_bytes)
        ):
            entry = share(entry)
            put.add(entry, waiter)
            self._commit.size += 1
        else:
            file = self._body_file(chain, entry)
            put = chain.open_put = Put(chain, before, entry, waiter, commit, file)
            if self._puts.commit == commit:
                self._commit.size += 1
            else:
                self._puts = Puts(self._journal, commit, self._committed)
                self._commit.add(self._puts)
            self._puts.add(put)
        chain.state = entry.state

    async def confirm(self, tail: Chain) -> bool:
        if tail.state is not tail.committed:
            # A conclusion from the state is true of the end of its slot: nothing joins it any more.
            tail.open_put = None
            await self._commit.flush()
        return True

    async def producer(self, tail: Chain, producer: str) -> tuple[int, int] | None:
        query = "SELECT epoch, seq FROM producers WHERE id = ? AND producer = ?"
        return await self._database.query(
            lambda db: db.execute(query, (tail.stream.id, producer)).fetchone()
        )

    async def create(self, stream: Stream, entries: Sequence[Entry]) -> Chain | None:
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
            if entries:
                chain.state = entries[-1].state
                self._committed(chain, entries)
            chain.stable = True

        return chain if await self._database.write(insert, created) else None

    async def drop(self, chain: Chain) -> bool:
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

        await self._database.write(partial(queries.drop_stream, chain=chain.stream.id), dropped)
        return True

    async def touch(self, chain: Chain, now: int) -> None:
        ttl = chain.stream.config.ttl
        if ttl is None:
            return
        chain.accessed = now
        chain.touched = True
        if now - chain.storing > renewal_slack(ttl):
            self._store_clock(chain)

    # Reading

    async def read_at(
        self, path: str, slot: int, chunk_bytes: int, after: int = 0
    ) -> ReadResult | None:
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
        chunk = await read_through(self.read, tail.stream, slot, stop, chunk_bytes, after)
        return ReadResult(tail, chunk, state if chunk.slot >= stop else None)

    async def read(
        self, chain: int, slot: int, stop: int, chunk_bytes: int, after: int = 0
    ) -> Chunk:
        held = self._by_id.get(chain)
        if held is not None and slot >= held.hot.first:
            return held.hot.read(slot, stop, chunk_bytes, after)
        unfolded = self._journal.rows(chain, slot, stop, chunk_bytes)
        return await self._database.query(
            lambda db: self._reading.chunk(db, chain, slot, stop, chunk_bytes, after, unfolded)
        )

    async def start_of(self, chain: int, slot: int) -> tuple[int, int]:
        row = self._journal.row(chain, slot - 1)
        if row is not None:
            return row[2], row[3]
        return await self._database.query(lambda db: self._reading.start_of(db, chain, slot))

    async def slot_info(self, chain: int, slot: int) -> SlotInfo:
        row = self._journal.row(chain, slot)
        if row is not None:
            return SlotInfo(row[2], row[4])
        return await self._database.query(lambda db: self._reading.slot_info(db, chain, slot))

    async def wait(self, chain: Chain, slot: int, seconds: float) -> bool:
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
        # Before the query: what is folded by then is in its snapshot.
        unfolded = {
            chain: self._by_id[chain].committed
            for chain in self._journal.chains()
            if chain in self._by_id
        }
        listed = await self._database.query(
            lambda db: queries.list_streams(db, prefix, after, limit, now)
        )
        return [_with_newer_state(each, unfolded.get(each.stream.id)) for each in listed]

    async def details(self, tail: Chain, limit: int) -> StoredDetails:
        return await self._database.query(lambda db: queries.details(db, tail.stream.id, limit))

    # Maintenance

    async def expiring(self, now: int) -> Sequence[str]:
        query = (
            "SELECT path FROM streams"
            " WHERE deadline <= ? AND path IS NOT NULL AND soft = 0 LIMIT 1000"
        )
        return await self._database.query(
            lambda db: [path for (path,) in db.execute(query, (now,))]
        )

    async def sweep(self) -> None:
        await self.maintenance.sweep()

    async def compact(self, progress: Callable[[Compacted], None] | None = None) -> Compacted:
        return await self.maintenance.compact(progress)

    # Inside

    def _advance_beginning(self, stream: Stream, first: int) -> None:
        """Note that retention has removed the slots of a stream before `first`."""
        held = self._by_id.get(stream.id)
        if held is None:
            # A stream that is being opened at this moment has to be read again.
            self._freed += 1
        else:
            held.earliest = earliest(stream.config, first)

    def _current(self, chain: Chain) -> bool:
        """Whether a tail is still the one writers use: it may have been evicted or dropped."""
        return chain.stable and self._by_id.get(chain.stream.id) is chain

    async def _load(self, path: str) -> bool:
        """Open a stream from the file, once for all concurrent callers."""
        opening = self._opening.get(path)
        if opening is None:
            opening = self._loop.create_task(self._open(path))
            self._opening[path] = opening
            opening.add_done_callback(lambda _: self._opening.pop(path))
        return await asyncio.shield(opening)

    async def _open(self, path: str) -> bool:
        while True:
            freed = self._freed
            chain = await self._database.query(lambda db: queries.load_chain(db, path))
            # A row that was read before a commit freed its name may be outdated.
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
        """Close the streams used least recently, but never the latest one."""
        excess = len(self._chains) - self._open_streams
        if excess <= 0:
            return
        scanned = min(excess + EVICT_SCAN, len(self._chains) - 1)
        for chain in list(itertools.islice(self._chains.values(), scanned)):
            if not chain.idle:
                self._store_clock(chain)
            elif self._journal.has(chain.stream.id):
                if self._journal.want(chain.stream.id):
                    self._commit.add(self._fold_call())
            elif len(self._chains) > self._open_streams:
                self._forget(chain)

    def _forget(self, chain: Chain) -> None:
        del self._by_id[chain.stream.id]
        del self._chains[chain.stream.path]
        chain.wake()

    async def _fold(self) -> None:
        """Fold everything that is known to be committed."""
        while not self._journal.is_empty:
            future: asyncio.Future[bool] = self._loop.create_future()
            self._commit.add(self._fold_call(future))
            if not await future:
                return

    def _fold_call(self, future: asyncio.Future[bool] | None = None) -> WriteCall[bool]:
        return WriteCall(self._journal.fold, self._folded, future)

    def _folded(self, _: bool, error: StoreUnavailable | None) -> None:
        self._journal.finish(error)
        self._evict()

    def _committed(self, chain: Chain, entries: Sequence[Entry]) -> None:
        chain.committed = entries[-1].state
        for entry in entries:
            if entry.body is not None:
                self._budget.append(chain.hot, entry)
        if self.observer is not None:
            self.observer(chain.stream, chain.committed)

    def _body_file(self, chain: Chain, entry: Entry) -> BodyFile:
        """Start writing a large body to its file; the commit waits for it."""
        if entry.body is None or len(entry.body) <= self._inline_bytes:
            return None
        return self._database.start(self._bodies.write, chain.stream.id, entry.slot, entry.body)

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
        self._commit.add(WriteCall(store, stored))


def _with_newer_state(listed: Listed, state: State | None) -> Listed:
    """Return a listed stream with a state, if that is newer than what the table says."""
    return listed if state is None or state.slot <= listed.state.slot else Listed(listed[0], state)


def _rewrite_identity(db: sqlite3.Connection) -> None:
    """Write something that changes nothing."""
    db.execute("UPDATE identity SET id = id")
