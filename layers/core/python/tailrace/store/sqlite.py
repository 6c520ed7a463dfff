"""The embedded store: one SQLite file, owned by one process.

Because one process owns the file, the tails of open streams live in memory and are the truth for
writers: an entry takes its slot there at once, and shares the next commit with all others. Readers
see only what is committed.
"""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import IO, Final, TypeVar, cast

from tailrace.errors import DataDirectoryInUse, StoreUnavailable
from tailrace.log.expiry import renewal_slack
from tailrace.log.state import Entry, Stream
from tailrace.settings import Settings
from tailrace.store import queries, schema
from tailrace.store.base import Chunk, Listed, Tail
from tailrace.store.chain import Chain
from tailrace.store.commit import GroupCommit
from tailrace.store.files import BodyFiles
from tailrace.store.hot import Budget
from tailrace.store.writes import BodyFile, Operation, Put, Then, entry_row, grouped

T = TypeVar("T")

THREADS: Final = 4
"""For reads of what is not in memory, and for files of large bodies."""


class SqliteStore:
    def __init__(self, settings: Settings) -> None:
        self._directory = Path(settings.data)
        self._inline_bytes = settings.inline_bytes
        self._open_streams = settings.open_streams
        self._files = BodyFiles(self._directory)
        self._budget = Budget(settings.hot_bytes)
        self._chains: OrderedDict[str, Chain] = OrderedDict()
        self._by_id: dict[int, Chain] = {}
        self._opening: dict[str, asyncio.Future[Chain | None]] = {}
        self._threads = ThreadPoolExecutor(THREADS, "tailrace-reader")
        self._local = threading.local()
        self._orphans_before: float | None = None

    # Life

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._directory.mkdir(parents=True, exist_ok=True)
        self._lock = _own(self._directory)
        db = schema.connect(self._directory)
        schema.prepare(db)
        db.close()
        self._files.prepare()
        self._orphans_before = time.time()
        self._commit = GroupCommit(lambda: schema.connect(self._directory), grouped)

    async def close(self) -> None:
        for chain in self._chains.values():
            self._store_clock(chain)
        await self._commit.close()
        self._threads.shutdown()
        self._lock.close()

    # Writing

    async def tail(self, path: str) -> Tail | None:
        while True:
            chain = self._chains.get(path) or await self._load(path)
            if chain is None:
                return None
            if chain.stable:
                self._chains.move_to_end(path)
                return chain
            await self._commit.settle()

    async def put(self, tail: Tail, entry: Entry) -> bool:
        chain = cast(Chain, tail)
        if chain.state.n != entry.n or not self._current(chain):
            return False
        chain.state = entry.state
        future: asyncio.Future[None] = self._loop.create_future()
        self._commit.add(Put(chain, entry, self._body_file(chain, entry), future, self._committed))
        await future
        return True

    async def settle(self, tail: Tail) -> None:
        if tail.state is not tail.settled:
            await self._commit.settle()

    async def producer(self, tail: Tail, producer: str) -> tuple[int, int] | None:
        # A spill that is not committed yet is in no table the readers see.
        await self.settle(tail)
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
            if source is None or source.soft or not source.stable:
                return None
        chain = Chain(stream, stream.config.initial_state(), stream.config.created)
        chain.stable = False
        self._keep(chain)
        files = [self._body_file(chain, entry) for entry in entries]

        def insert(db: sqlite3.Connection) -> None:
            queries.insert_stream(db, chain)
            pairs = zip(entries, files, strict=True)
            queries.insert_entries(db, [entry_row(chain, entry, file) for entry, file in pairs])

        def created(_: None, error: StoreUnavailable | None) -> None:
            if error is not None:
                self._forget(chain)
                return
            for entry in entries:
                chain.state = entry.state
                self._committed(chain, entry)
            chain.stable = True

        await self._write(insert, created)
        return chain

    async def drop(self, tail: Tail) -> bool:
        chain = cast(Chain, tail)
        if chain.soft or not self._current(chain):
            return False
        chain.stable = False

        def dropped(freed: set[int], error: StoreUnavailable | None) -> None:
            chain.stable = True
            if error is not None:
                return
            chain.soft = True
            chain.wake()
            for each in freed & self._by_id.keys():
                self._forget(self._by_id[each])

        await self._write(partial(queries.drop_stream, chain=chain.stream.id), dropped)
        return True

    def touch(self, tail: Tail, now: int) -> None:
        chain = cast(Chain, tail)
        chain.accessed = now
        ttl = chain.stream.config.ttl
        if ttl is not None and now - chain.stored > renewal_slack(ttl):
            self._store_clock(chain)

    # Reading

    async def read(self, chain: int, n: int, stop: int, chunk_bytes: int) -> Chunk:
        held = self._by_id.get(chain)
        if held is not None and n >= held.hot.first:
            return held.hot.read(n, stop, chunk_bytes)
        return await self._query(
            lambda db: queries.read_chunk(db, chain, n, stop, chunk_bytes, self._files.read)
        )

    async def position(self, chain: int, n: int) -> tuple[int, int]:
        query = "SELECT offset, size FROM entries WHERE id = ? AND n = ?"
        row = await self._query(lambda db: db.execute(query, (chain, n - 1)).fetchone())
        return cast("tuple[int, int]", row)

    async def wait(self, tail: Tail, n: int, seconds: float) -> None:
        chain = cast(Chain, tail)
        if chain.settled.tail > n or chain.settled.closed or chain.soft:
            return
        if self._by_id.get(chain.stream.id) is not chain:
            return
        waiter: asyncio.Future[None] = self._loop.create_future()
        chain.waiters.add(waiter)
        timer = self._loop.call_later(seconds, _time_up, waiter)
        try:
            await waiter
        finally:
            timer.cancel()
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
        for (chain,) in await self._query(lambda db: db.execute(query).fetchall()):
            while await self._write(partial(queries.erase_some, chain=chain)):
                pass
            await self._run(self._files.remove_all, chain)
        if self._orphans_before is not None:
            before, self._orphans_before = self._orphans_before, None
            await self._query(lambda db: self._remove_orphans(db, before))

    # Inside

    def _current(self, chain: Chain) -> bool:
        """Whether a tail is still the one writers use: it may have been evicted or dropped."""
        return chain.stable and self._by_id.get(chain.stream.id) is chain

    async def _load(self, path: str) -> Chain | None:
        """Open a stream from the file, once for all who ask for it at the same time."""
        opening = self._opening.get(path)
        if opening is None:
            opening = asyncio.ensure_future(self._query(lambda db: queries.load_chain(db, path)))
            self._opening[path] = opening
            opening.add_done_callback(lambda _: self._opening.pop(path))
        chain = await asyncio.shield(opening)
        current = self._chains.get(path)
        if current is None and chain is not None:
            self._keep(chain)
            return chain
        return current

    def _keep(self, chain: Chain) -> None:
        self._chains[chain.stream.path] = chain
        self._by_id[chain.stream.id] = chain
        if len(self._chains) > self._open_streams:
            self._evict()

    def _evict(self) -> None:
        """Let go of a stream that was not used for long."""
        for chain in itertools.islice(self._chains.values(), 64):
            if chain.idle:
                self._store_clock(chain)
                self._forget(chain)
                return

    def _forget(self, chain: Chain) -> None:
        del self._by_id[chain.stream.id]
        del self._chains[chain.stream.path]
        chain.wake()

    def _committed(self, chain: Chain, entry: Entry) -> None:
        chain.settled = entry.state
        if entry.body is not None:
            self._budget.append(chain.hot, entry.body, entry.state.offset, entry.state.size)

    def _body_file(self, chain: Chain, entry: Entry) -> BodyFile:
        """Start writing a large body to its file; the commit waits for it."""
        if entry.body is None or len(entry.body) <= self._inline_bytes:
            return None
        return self._threads.submit(self._files.write, chain.stream.id, entry.n, entry.body)

    def _store_clock(self, chain: Chain) -> None:
        if chain.stream.config.ttl is None or chain.stored == chain.accessed:
            return
        chain.stored = chain.accessed
        values = (chain.stored, chain.stored_deadline, chain.stream.id)
        update = "UPDATE streams SET accessed = ?, deadline = ? WHERE id = ?"
        self._commit.add(Operation(lambda db: db.execute(update, values)))

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
            db = self._local.db = schema.connect(self._directory, read_only=True)
        return query(db)

    def _remove_orphans(self, db: sqlite3.Connection, before: float) -> None:
        named = "SELECT 1 FROM entries WHERE id = ? AND n = ? AND file = ?"
        for chain, n, name in self._files.older_than(before):
            if db.execute(named, (chain, n, name)).fetchone() is None:
                self._files.remove(chain, name)


def _time_up(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _own(directory: Path) -> IO[str]:
    """Make this process the only one that uses the directory."""
    lock = (directory / "tailrace.lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise DataDirectoryInUse(
            f"another Tailrace server uses the data directory '{directory}'; "
            "stop it, or choose another directory with --data"
        ) from None
    return lock
