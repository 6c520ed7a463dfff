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
from concurrent.futures import Future as ThreadFuture
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import IO, Generic, TypeVar, cast

from tailrace.errors import DataDirectoryInUse, OffsetTrimmed, StoreUnavailable
from tailrace.log.expiry import deadline, renewal_slack
from tailrace.log.offsets import token
from tailrace.log.state import Entry, State, Stream
from tailrace.settings import Settings
from tailrace.store import schema
from tailrace.store.base import Chunk, Listed, Tail
from tailrace.store.commit import GroupCommit, Write
from tailrace.store.files import BodyFiles
from tailrace.store.hot import Budget, Hot

T = TypeVar("T")
Then = Callable[[T, StoreUnavailable | None], None]

READERS = 4
SWEEP_ROWS = 2000
INSERT_ROWS = 256


class Chain:
    """A stream held open: its tail, and what waits there."""

    __slots__ = (
        "accessed", "hot", "memo", "settled", "soft", "stable", "state", "stored", "stream",
        "waiters",
    )  # fmt: skip

    def __init__(self, stream: Stream, state: State, accessed: int, *, soft: bool = False) -> None:
        self.stream = stream
        self.state = state
        self.settled = state
        self.soft = soft
        self.accessed = accessed
        self.stored = accessed
        self.stable = True
        """False while the stream's creation or deletion is not committed yet."""
        self.hot = Hot(state.n, state.offset, state.size)
        self.waiters: set[asyncio.Future[None]] = set()
        self.memo: tuple[object, bytes] | None = None

    @property
    def watched(self) -> bool:
        return bool(self.waiters)

    def wake(self) -> None:
        waiters, self.waiters = self.waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


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
        self._readers = ThreadPoolExecutor(READERS, "tailrace-reader")
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
        self._commit = GroupCommit(lambda: schema.connect(self._directory), _grouped)

    async def close(self) -> None:
        for chain in self._chains.values():
            self._store_clock(chain)
        await self._commit.close()
        self._readers.shutdown()
        self._lock.close()

    # Writing

    async def tail(self, path: str) -> Tail | None:
        while True:
            chain = self._chains.get(path)
            if chain is None:
                chain = await self._load(path)
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
        put = _Put(self, chain, entry)
        self._commit.add(put)
        await put.future
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
        bodies = [self._body_file(chain, entry) for entry in entries]
        if entries:
            chain.state = entries[-1].state

        def insert(db: sqlite3.Connection) -> None:
            db.execute(
                "INSERT INTO streams (id, path, config, accessed, deadline) VALUES (?, ?, ?, ?, ?)",
                (
                    stream.id,
                    stream.path,
                    schema.config_text(stream.config),
                    chain.stored,
                    _stored_deadline(chain),
                ),
            )
            if fork is not None:
                db.execute("INSERT INTO edges VALUES (?, ?)", (fork.parent, stream.id))
            rows = [
                schema.entry_row(stream.id, entry, _written(body))
                for entry, body in zip(entries, bodies, strict=True)
            ]
            _insert(db, rows)

        def created(_: None, error: StoreUnavailable | None) -> None:
            if error is not None:
                self._forget(chain)
                return
            for entry in entries:
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
            for id in freed & self._by_id.keys():
                self._forget(self._by_id[id])

        await self._write(lambda db: _drop(db, chain.stream.id), dropped)
        return True

    def touch(self, tail: Tail, now: int) -> None:
        chain = cast(Chain, tail)
        chain.accessed = now
        ttl = chain.stream.config.ttl
        if ttl is not None and now - chain.stored > renewal_slack(ttl):
            self._store_clock(chain)

    # Reading

    async def read(self, chain: int, n: int, stop: int, chunk_bytes: int) -> Chunk:
        open_chain = self._by_id.get(chain)
        if open_chain is not None and n >= open_chain.hot.first:
            return open_chain.hot.read(n, stop, chunk_bytes)
        return await self._query(lambda db: self._read(db, chain, n, stop, chunk_bytes))

    async def position(self, chain: int, n: int) -> tuple[int, int]:
        query = "SELECT offset, size FROM entries WHERE id = ? AND n = ?"
        row = await self._query(lambda db: db.execute(query, (chain, n - 1)).fetchone())
        return cast(tuple[int, int], row)

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

    async def list(self, prefix: str, after: str, limit: int) -> Sequence[Listed]:
        # The largest code point: every path that begins with the prefix sorts before it.
        query = """
            SELECT id, path, config FROM streams
            WHERE path > ? AND path >= ? AND path < ? AND soft = 0
            ORDER BY path LIMIT ?"""
        bounds = (after, prefix, prefix + "\U0010ffff", limit)
        return await self._query(
            lambda db: [
                Listed(stream, _last_state(db, stream))
                for stream in itertools.starmap(schema.stream_of, db.execute(query, bounds))
            ]
        )

    # Care

    async def expiring(self, now: int) -> Sequence[str]:
        query = """
            SELECT path FROM streams
            WHERE deadline <= ? AND path IS NOT NULL AND soft = 0 LIMIT 1000"""
        return await self._query(lambda db: [path for (path,) in db.execute(query, (now,))])

    async def sweep(self) -> None:
        query = "SELECT id FROM streams WHERE path IS NULL"
        for (id,) in await self._query(lambda db: db.execute(query).fetchall()):
            while await self._write(partial(_erase, id=id)):
                pass
            await self._run(self._files.remove_all, id)
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
            opening = asyncio.ensure_future(self._query(lambda db: _stored_chain(db, path)))
            self._opening[path] = opening
            try:
                chain = await asyncio.shield(opening)
            finally:
                del self._opening[path]
        else:
            chain = await asyncio.shield(opening)
        current = self._chains.get(path)
        if current is not None or chain is None:
            return current
        self._keep(chain)
        return chain

    def _keep(self, chain: Chain) -> None:
        self._chains[chain.stream.path] = chain
        self._by_id[chain.stream.id] = chain
        if len(self._chains) > self._open_streams:
            self._evict()

    def _evict(self) -> None:
        """Let go of the stream that was opened longest ago and is not in use."""
        for chain in itertools.islice(self._chains.values(), 64):
            if chain.stable and chain.state is chain.settled and not chain.waiters:
                self._store_clock(chain)
                self._forget(chain)
                return

    def _forget(self, chain: Chain) -> None:
        del self._by_id[chain.stream.id]
        del self._chains[chain.stream.path]
        chain.wake()

    def _committed(self, chain: Chain, entry: Entry) -> None:
        state = entry.state
        chain.settled = state
        if entry.body is not None:
            self._budget.append(chain.hot, entry.body, state.offset, state.size)

    def _body_file(self, chain: Chain, entry: Entry) -> ThreadFuture[str] | None:
        """Start writing a large body to its file; the commit waits for it."""
        if entry.body is None or len(entry.body) <= self._inline_bytes:
            return None
        return self._readers.submit(self._write_file, chain.stream.id, entry.n, entry.body)

    def _write_file(self, chain: int, n: int, body: bytes) -> str:
        name = self._files.new_name(n)
        self._files.write(chain, name, body)
        return name

    def _store_clock(self, chain: Chain) -> None:
        if chain.stream.config.ttl is None or chain.stored == chain.accessed:
            return
        chain.stored = chain.accessed
        values = (chain.stored, _stored_deadline(chain), chain.stream.id)
        update = "UPDATE streams SET accessed = ?, deadline = ? WHERE id = ?"
        self._commit.add(_Operation(lambda db: db.execute(update, values)))

    async def _write(
        self, operation: Callable[[sqlite3.Connection], T], then: Then[T] | None = None
    ) -> T:
        """Run in the next commit; `then` runs with it even if nobody waits any more."""
        write = _Operation(operation, then, self._loop.create_future())
        self._commit.add(write)
        assert write.future is not None
        return await write.future

    async def _query(self, query: Callable[[sqlite3.Connection], T]) -> T:
        return await self._run(self._with_connection, query)

    async def _run(self, function: Callable[..., T], *args: object) -> T:
        return await self._loop.run_in_executor(self._readers, function, *args)

    def _with_connection(self, query: Callable[[sqlite3.Connection], T]) -> T:
        db = getattr(self._local, "db", None)
        if db is None:
            db = self._local.db = schema.connect(self._directory, read_only=True)
        return query(db)

    def _read(
        self, db: sqlite3.Connection, chain: int, n: int, stop: int, chunk_bytes: int
    ) -> Chunk:
        rows = db.execute(
            "SELECT n, offset, size, body, file FROM entries"
            " WHERE id = ? AND n >= ? AND n < ? ORDER BY n",
            (chain, n, stop),
        )
        bodies: list[bytes] = []
        boundary = -1
        for slot, offset, size, body, file in rows:
            if file is not None:
                body = self._files.read(chain, file)
            if boundary < 0:
                if slot != n:
                    raise OffsetTrimmed(token(slot, offset))
                boundary = ((size - len(body)) // chunk_bytes + 1) * chunk_bytes
            bodies.append(body)
            if size >= boundary:
                break
        rows.close()
        return Chunk(bodies, slot + 1, offset, size)

    def _remove_orphans(self, db: sqlite3.Connection, before: float) -> None:
        named = "SELECT 1 FROM entries WHERE id = ? AND n = ? AND file = ?"
        for chain, name in self._files.older_than(before):
            n = int(name.partition("-")[0])
            if db.execute(named, (chain, n, name)).fetchone() is None:
                self._files.remove(chain, name)


class _Put:
    """An entry on its way into its slot."""

    __slots__ = ("chain", "entry", "file", "future", "store")

    def __init__(self, store: SqliteStore, chain: Chain, entry: Entry) -> None:
        self.store = store
        self.chain = chain
        self.entry = entry
        self.file = store._body_file(chain, entry)
        self.future: asyncio.Future[None] = store._loop.create_future()

    def run(self, db: sqlite3.Connection) -> None:
        _insert_puts(db, [self])

    def done(self, error: StoreUnavailable | None) -> None:
        chain = self.chain
        if error is not None:
            chain.state = chain.settled
            _settle(self.future, None, error)
            return
        self.store._committed(chain, self.entry)
        _settle(self.future, None, None)
        if chain.waiters:
            chain.wake()


class _Puts:
    """Neighbouring entries of a batch, written together."""

    def __init__(self, puts: Sequence[_Put]) -> None:
        self._puts = puts

    def run(self, db: sqlite3.Connection) -> None:
        _insert_puts(db, self._puts)

    def done(self, error: StoreUnavailable | None) -> None:
        """The entries themselves are told."""


class _Operation(Generic[T]):
    """Any other write, and what comes of it."""

    def __init__(
        self,
        operation: Callable[[sqlite3.Connection], T],
        then: Then[T] | None = None,
        future: asyncio.Future[T] | None = None,
    ) -> None:
        self._operation = operation
        self._then = then
        self._result: T
        self.future = future

    def run(self, db: sqlite3.Connection) -> None:
        self._result = self._operation(db)

    def done(self, error: StoreUnavailable | None) -> None:
        result = cast(T, getattr(self, "_result", None))
        if self._then is not None:
            self._then(result, error)
        if self.future is not None:
            _settle(self.future, result, error)


def _settle(future: asyncio.Future[T], result: T, error: StoreUnavailable | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


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


def _grouped(batch: Sequence[Write]) -> Sequence[Write]:
    groups: list[Write] = []
    for is_put, writes in itertools.groupby(batch, lambda write: type(write) is _Put):
        puts = list(writes)
        if is_put and len(puts) > 1:
            groups.append(_Puts(cast("list[_Put]", puts)))
        else:
            groups += puts
    return groups


def _insert_puts(db: sqlite3.Connection, puts: Sequence[_Put]) -> None:
    rows = [schema.entry_row(put.chain.stream.id, put.entry, _written(put.file)) for put in puts]
    _insert(db, rows)
    for put in puts:
        if put.entry.spill:
            db.executemany(
                "INSERT OR REPLACE INTO producers VALUES (?, ?, ?, ?)",
                [(put.chain.stream.id, name, *last) for name, last in put.entry.spill.items()],
            )


def _insert(db: sqlite3.Connection, rows: Sequence[schema.Row]) -> None:
    """Many rows in few statements: between two statements the thread has to win the GIL back."""
    begin, size = 0, INSERT_ROWS
    while begin < len(rows):
        while size > len(rows) - begin:
            size //= 2
        values = ",".join(["(?,?,?,?,?,?,?,?)"] * size)
        flat = list(itertools.chain.from_iterable(rows[begin : begin + size]))
        db.execute(f"INSERT INTO entries VALUES {values}", flat)
        begin += size


def _written(body: ThreadFuture[str] | None) -> str | None:
    return None if body is None else body.result()


def _drop(db: sqlite3.Connection, id: int) -> set[int]:
    """Delete a stream; those that nothing needs any more, itself first, lose their name."""
    freed: set[int] = set()
    query = "SELECT 1 FROM edges WHERE parent = ? LIMIT 1"
    while db.execute(query, (id,)).fetchone() is None:
        freed.add(id)
        db.execute("UPDATE streams SET path = NULL WHERE id = ?", (id,))
        edge = db.execute(
            "SELECT parent, soft FROM edges JOIN streams ON id = parent WHERE fork = ?", (id,)
        ).fetchone()
        db.execute("DELETE FROM edges WHERE fork = ?", (id,))
        if edge is None or not edge[1]:
            return freed
        id = edge[0]
    db.execute("UPDATE streams SET soft = 1 WHERE id = ?", (id,))
    return freed


def _erase(db: sqlite3.Connection, id: int) -> bool:
    """Remove some rows of a deleted stream, and its own when no other is left; True if more are."""
    last = db.execute(
        "SELECT max(n) FROM (SELECT n FROM entries WHERE id = ? ORDER BY n LIMIT ?)",
        (id, SWEEP_ROWS),
    ).fetchone()[0]
    if last is not None:
        db.execute("DELETE FROM entries WHERE id = ? AND n <= ?", (id, last))
        return True
    db.execute("DELETE FROM producers WHERE id = ?", (id,))
    db.execute("DELETE FROM streams WHERE id = ?", (id,))
    return False


def _stored_chain(db: sqlite3.Connection, path: str) -> Chain | None:
    row = db.execute(
        "SELECT id, path, config, accessed, soft FROM streams WHERE path = ?", (path,)
    ).fetchone()
    if row is None:
        return None
    stream = schema.stream_of(*row[:3])
    state = _last_state(db, stream)
    accessed = row[3]
    if stream.config.ttl is not None:
        accessed = max(accessed + renewal_slack(stream.config.ttl), state.at)
    return Chain(stream, state, accessed, soft=bool(row[4]))


def _last_state(db: sqlite3.Connection, stream: Stream) -> State:
    row = db.execute(
        "SELECT n, offset, size, at, state FROM entries WHERE id = ? ORDER BY n DESC LIMIT 1",
        (stream.id,),
    ).fetchone()
    return stream.config.initial_state() if row is None else schema.state_of(*row)


def _stored_deadline(chain: Chain) -> int | None:
    config = chain.stream.config
    instant = deadline(config, chain.stored)
    if instant is not None and config.ttl is not None:
        instant += renewal_slack(config.ttl)
    return instant
