"""Particular to the embedded store: group commit, crashes, files, limited memory."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tailrace.errors import DataDirectoryInUse, SlotTrimmed, StoreUnavailable, UnreadableData
from tailrace.limits import SLOT_BYTES
from tailrace.log.expiry import renewal_slack
from tailrace.log.state import Config
from tailrace.settings import Settings
from tailrace.store.sqlite import queries, schema
from tailrace.store.sqlite.chain import Chain
from tailrace.store.sqlite.store import SqliteStore
from tests.support.orphans import sweep_for_days
from tests.support.store_contract import (
    NOW,
    PLENTY,
    Waiting,
    append,
    bodies,
    closing,
    create,
    entry,
    find,
    following,
    fork,
    put,
    stream,
    together,
)

MANY = 100_000


@asynccontextmanager
async def opened(data: Path, **settings: Any) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(Settings(data=str(data), **settings))
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
async def store(data: Path) -> AsyncIterator[SqliteStore]:
    async with opened(data) as store:
        yield store


class Disk:
    """Stands between the writer and SQLite: counts commits, holds them back, lets them fail."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self._failures: list[tuple[str, Exception]] = []
        self._free = threading.Event()
        self._free.set()
        self._reached = threading.Event()
        self._connect = schema.connect
        self._pragmas: list[str] = []

    @property
    def commits(self) -> int:
        return self.statements.count("COMMIT")

    def connect(self, directory: Path, *, read_only: bool = False) -> Any:
        db = self._connect(directory, read_only=read_only)
        return db if read_only else _Connection(db, self)

    def fail(self, statement: str = "COMMIT", error: Exception | None = None) -> None:
        """The next statement that begins so fails, once."""
        self._failures.append(
            (statement, error or sqlite3.OperationalError("database or disk is full"))
        )

    def also(self, pragma: str) -> None:
        """The statements that the writer executes before its next transaction."""
        self._pragmas.append(pragma)

    @contextmanager
    def held(self) -> Iterator[None]:
        """No commit ends."""
        self._reached.clear()
        self._free.clear()
        try:
            yield
        finally:
            self._free.set()

    async def busy(self) -> None:
        """Wait until a commit is held."""
        assert await asyncio.to_thread(self._reached.wait, 60)

    def before(self, statement: str, db: sqlite3.Connection) -> None:
        if statement == "BEGIN IMMEDIATE":
            while self._pragmas:
                db.execute(self._pragmas.pop())
        if statement == "COMMIT":
            self._reached.set()
            assert self._free.wait(120)
        for failure in self._failures:
            if statement.startswith(failure[0]):
                self._failures.remove(failure)
                raise failure[1]
        self.statements.append(statement)


class _Connection:
    def __init__(self, db: sqlite3.Connection, disk: Disk) -> None:
        self._db = db
        self._disk = disk

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        self._disk.before(statement, self._db)
        return self._db.execute(statement, *values)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(schema, "connect", disk.connect)
    return disk


def begun(
    store: SqliteStore, tail: Chain, body: bytes | None, **after: Any
) -> asyncio.Future[int | None]:
    """A put under way; it has its place in the stream."""
    return asyncio.ensure_future(put(store, tail, body, **after))


async def started(*puts: asyncio.Future[int | None]) -> None:
    await asyncio.sleep(0)
    assert not any(each.done() for each in puts)


async def outcomes(*tasks: asyncio.Future[Any]) -> list[object]:
    """The outcome of each: its result, or the kind of its error."""
    results = await asyncio.gather(*tasks, return_exceptions=True)
    return [type(result) if isinstance(result, BaseException) else result for result in results]


def crash_image(data: Path, image: Path) -> Path:
    """The files on disk at this moment, as the next start would find it after a crash."""
    ignored = shutil.ignore_patterns("*-shm", "*.lock")
    return Path(shutil.copytree(data, image, ignore=ignored))


def rows(data: Path) -> dict[str, int]:
    """How many rows each table of streams has."""
    db = sqlite3.connect(data / schema.FILE_NAME)
    try:
        names = [
            name
            for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type='table'")
            if name != "identity"
        ]
        return {name: db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in names}
    finally:
        db.close()


def files(data: Path) -> list[Path]:
    return sorted(path for path in (data / "bodies").rglob("*") if path.is_file())


# Group commit


async def test_writes_of_one_moment_share_one_commit(disk: Disk, store: SqliteStore) -> None:
    tails = [await create(store, f"s{number}") for number in range(50)]
    before = disk.commits
    await asyncio.gather(*(append(store, tail, b"x") for tail in tails))
    assert disk.commits - before == 1


async def test_writes_during_a_commit_share_the_next_one(disk: Disk, store: SqliteStore) -> None:
    tail = await create(store, "a")
    tails = [await create(store, f"s{number}") for number in range(50)]
    before = disk.commits
    with disk.held():
        first = begun(store, tail, b"first")
        await disk.busy()
        rest = []
        for other in tails:
            rest.append(begun(store, other, b"x"))
            await asyncio.sleep(0)
        assert disk.statements[-1] != "COMMIT"
    assert await first
    assert all(await asyncio.gather(*rest))
    assert disk.commits - before == 2


async def test_one_stream_takes_many_entries_in_one_commit(disk: Disk, store: SqliteStore) -> None:
    tail = await create(store, "a")
    before = disk.commits
    with disk.held():
        puts = [begun(store, tail, b"0;")]
        await disk.busy()
        for number in range(1, 300):
            puts.append(begun(store, tail, b"%d;" % number))
            await asyncio.sleep(0)
    assert all(await asyncio.gather(*puts))
    assert disk.commits - before == 2
    assert await bodies(store, tail) == [b"%d;" % number for number in range(300)]


async def test_a_slot_takes_only_so_many_bytes(store: SqliteStore) -> None:
    tail = await create(store, "a")
    assert await together(store, tail, *[b"x" * (SLOT_BYTES // 3)] * 4) == [0, 0, 1, 2]


async def test_every_commit_is_a_transaction_of_its_own(disk: Disk, store: SqliteStore) -> None:
    tail = await create(store, "a")
    for _ in range(5):
        await append(store, tail, b"x")
    marks = [each for each in disk.statements if each in ("BEGIN IMMEDIATE", "COMMIT", "ROLLBACK")]
    assert marks == ["BEGIN IMMEDIATE", "COMMIT"] * 6


def test_a_commit_is_on_the_disk_when_it_returns(tmp_path: Path) -> None:
    db = schema.connect(tmp_path)
    try:
        assert db.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    finally:
        db.close()


# Nothing is said before it is committed


async def test_a_put_is_acknowledged_after_its_commit(disk: Disk, store: SqliteStore) -> None:
    tail = await create(store, "a")
    waiting = Waiting(store, tail, 0)
    with disk.held():
        putting = begun(store, tail, b"x")
        await disk.busy()
        await asyncio.sleep(0.05)
        assert not putting.done()
        assert tail.state.slot == 1, "the slot is taken"
        assert tail.committed.slot == 0, "but no reader sees it"
        assert await waiting.goes_on(0.01)
        assert (await store.list("", "", 10, NOW))[0].state.slot == 0
    assert await putting == 1
    assert tail.committed.slot == 1
    assert await waiting.ends()


async def test_writers_build_on_each_other_before_the_commit(
    disk: Disk, store: SqliteStore
) -> None:
    tail = await create(store, "a")
    with disk.held():
        puts = [begun(store, tail, body) for body in (b"1", b"2", b"3")]
        assert (tail.state.slot, tail.state.offset) == (1, 3)
        stale = entry(tail.committed, b"stale")
        assert await store.put(tail, tail.committed, stale) is None, "the slot is taken"
    assert await asyncio.gather(*puts) == [0, 0, 1]
    assert await bodies(store, tail) == [b"1", b"2", b"3"]


async def test_confirm_waits_for_the_commit(disk: Disk, store: SqliteStore) -> None:
    """The answer to a duplicate has to be true after a crash."""
    tail = await create(store, "a")
    await store.confirm(tail)
    with disk.held():
        putting = begun(store, tail, b"x")
        await disk.busy()
        settling = asyncio.ensure_future(store.confirm(tail))
        await asyncio.sleep(0.05)
        assert not settling.done()
    await settling
    assert tail.committed is tail.state
    assert await putting


async def test_confirm_fails_with_the_commit(disk: Disk, store: SqliteStore) -> None:
    tail = await create(store, "a")
    disk.fail()
    with disk.held():
        putting = begun(store, tail, b"x")
        await disk.busy()
        settling = asyncio.ensure_future(store.confirm(tail))
        await asyncio.sleep(0)
    assert await outcomes(putting, settling) == [StoreUnavailable] * 2
    await store.confirm(tail)


async def test_a_new_stream_is_seen_after_its_commit(disk: Disk, store: SqliteStore) -> None:
    with disk.held():
        creating = asyncio.ensure_future(store.create(stream("a"), []))
        await disk.busy()
        looking = asyncio.ensure_future(store.tail("a"))
        await asyncio.sleep(0.05)
        assert not creating.done()
        assert not looking.done()
        assert await store.create(stream("a"), []) is None, "the name is taken"
    created = await creating
    assert created is not None
    assert await looking is created


async def test_a_drop_is_seen_after_its_commit(disk: Disk, store: SqliteStore) -> None:
    tail = await create(store, "a", b"x")
    with disk.held():
        dropping = asyncio.ensure_future(store.drop(tail))
        await disk.busy()
        looking = asyncio.ensure_future(store.tail("a"))
        await asyncio.sleep(0.05)
        assert not dropping.done()
        assert not looking.done()
        assert await put(store, tail, b"late") is None
    assert await dropping
    assert await looking is None


async def test_a_cancelled_caller_does_not_undo_its_write(disk: Disk, store: SqliteStore) -> None:
    tail = await create(store, "a")
    with disk.held():
        putting = begun(store, tail, b"x")
        creating = asyncio.ensure_future(store.create(stream("b"), []))
        await disk.busy()
        putting.cancel()
        creating.cancel()
        await outcomes(putting, creating)
    await append(store, tail, b"y")
    assert await bodies(store, tail) == [b"x", b"y"]
    assert (await find(store, "b")).committed.slot == 0


# A commit fails


FAILURES = {
    "disk full at commit": ("COMMIT", sqlite3.OperationalError("database or disk is full")),
    "disk full at insert": ("INSERT", sqlite3.OperationalError("database or disk is full")),
    "i/o error": ("COMMIT", sqlite3.OperationalError("disk I/O error")),
    "locked": ("BEGIN", sqlite3.OperationalError("database is locked")),
    "something else": ("INSERT", RuntimeError("who knows")),
}


@pytest.mark.parametrize(("statement", "error"), FAILURES.values(), ids=FAILURES.keys())
async def test_a_failed_commit_fails_all_that_waits_and_stores_nothing(
    disk: Disk, data: Path, statement: str, error: Exception
) -> None:
    async with opened(data) as store:
        tail, other = await create(store, "a", b"before"), await create(store, "b")
        disk.fail(statement, error)
        # All of one moment, so in one commit; the third is built on the first.
        batch = [begun(store, tail, b"lost 1"), begun(store, other, b"lost 2")]
        await started(*batch)
        batch.append(begun(store, tail, b"lost 3", seq="s", producers={"p": (0, 0)}))
        await started(*batch)
        assert tail.state.offset == len(b"beforelost 1lost 3")
        assert await outcomes(*batch) == [StoreUnavailable] * 3
        assert tail.state is tail.committed
        assert tail.state.slot == 1
        assert tail.state.seq is None
        assert not tail.state.producers
        await append(store, tail, b"after")
        await append(store, other, b"after")
        assert await bodies(store, tail) == [b"before", b"after"]
        assert await bodies(store, other) == [b"after"]
    async with opened(data) as store:
        assert await bodies(store, await find(store, "a")) == [b"before", b"after"]
        assert await bodies(store, await find(store, "b")) == [b"after"]


async def test_writes_behind_a_failed_commit_fail_with_it(disk: Disk, store: SqliteStore) -> None:
    """It was decided on top of what is now undone."""
    tail, other = await create(store, "a", b"before"), await create(store, "b")
    disk.fail()
    with disk.held():
        first = begun(store, tail, b"lost 1")
        await disk.busy()
        behind = [begun(store, tail, b"lost 2"), begun(store, other, b"lost 3")]
        await started(*behind)
    assert await outcomes(first, *behind) == [StoreUnavailable] * 3
    assert (tail.state.slot, other.state.slot) == (1, 0)
    await append(store, tail, b"after")
    assert await bodies(store, tail) == [b"before", b"after"]


async def test_the_reason_of_a_failed_commit_is_named(disk: Disk, store: SqliteStore) -> None:
    tail = await create(store, "a")
    disk.fail()
    with pytest.raises(StoreUnavailable, match="disk is full") as raised:
        await append(store, tail, b"x")
    assert isinstance(raised.value.__cause__, sqlite3.OperationalError)


async def test_a_stream_whose_creation_failed_does_not_exist(
    disk: Disk, store: SqliteStore
) -> None:
    disk.fail()
    with disk.held():
        creating = asyncio.ensure_future(store.create(stream("a"), []))
        await disk.busy()
        looking = asyncio.ensure_future(store.tail("a"))
        await asyncio.sleep(0)
    assert await outcomes(creating, looking) == [StoreUnavailable] * 2
    assert await store.tail("a") is None
    await create(store, "a", b"x")
    assert await bodies(store, await find(store, "a")) == [b"x"]


async def test_a_fork_whose_creation_failed_leaves_no_reference(
    disk: Disk, store: SqliteStore
) -> None:
    source = await create(store, "a", b"x")
    disk.fail()
    with pytest.raises(StoreUnavailable):
        await fork(store, "f", source)
    assert await store.drop(source)
    assert await store.tail("a") is None


async def test_a_stream_whose_deletion_failed_lives_on(disk: Disk, store: SqliteStore) -> None:
    tail = await create(store, "a", b"x")
    disk.fail()
    with pytest.raises(StoreUnavailable):
        await store.drop(tail)
    assert await find(store, "a") is tail
    assert not tail.soft_deleted
    await append(store, tail, b"y")
    assert await bodies(store, tail) == [b"x", b"y"]
    assert await store.drop(tail)


async def test_a_failed_spill_is_not_known(disk: Disk, store: SqliteStore) -> None:
    tail = await create(store, "a")
    disk.fail()
    with pytest.raises(StoreUnavailable):
        await put(store, tail, b"x", {"p": (0, 0)}, spilled=1)
    assert await store.producer(tail, "p") is None
    assert not tail.state.spilled


async def test_a_full_database_takes_appends_again_when_there_is_room(
    disk: Disk, data: Path
) -> None:
    """No stand-in here: SQLite itself runs out of pages."""
    big = b"x" * 60_000
    async with opened(data) as store:
        tail = await create(store, "a", b"before")
        disk.also("PRAGMA max_page_count = 200")

        async def fill_up() -> None:
            while True:
                await append(store, tail, big)

        with pytest.raises(StoreUnavailable, match="full"):
            await fill_up()
        accepted = [b"before", *[big] * (tail.committed.slot - 1)]
        assert len(accepted) > 2
        assert await bodies(store, tail) == accepted
        disk.also("PRAGMA max_page_count = 1000000")
        await append(store, tail, big)
        accepted.append(big)
    async with opened(data) as store:
        assert await bodies(store, await find(store, "a")) == accepted


# One directory, one server


async def test_a_directory_belongs_to_one_store(data: Path) -> None:
    async with opened(data) as store:
        await create(store, "a", b"x")
        second = SqliteStore(Settings(data=str(data)))
        with pytest.raises(DataDirectoryInUse, match=str(data)):
            await second.open()
        await append(store, await find(store, "a"), b"y")
    async with opened(data) as store:
        assert await bodies(store, await find(store, "a")) == [b"x", b"y"]


SERVER = """
import asyncio, sys
from tailrace.settings import Settings
from tailrace.store.sqlite.store import SqliteStore
from tailrace.streams import Streams
from tailrace.log.append import Append
from tailrace.log.create import Create

async def main():
    settings = Settings(data=sys.argv[1], inline_bytes=1024)
    store = SqliteStore(settings)
    await store.open()
    streams = Streams(store, settings)
    await streams.create("a", Create(content_type="text/plain"))
    print("ready", flush=True)

    async def write(writer):
        number = 0
        while True:
            # Some are large enough for a file of their own.
            padding = "." * (2000 if number % 5 == 0 else 10)
            await streams.append("a", Append(f"{writer} {number}{padding};".encode(), "text/plain"))
            print(writer, number, flush=True)
            number += 1

    await asyncio.gather(*map(write, range(4)))

asyncio.run(main())
"""


@contextmanager
def other_process(data: Path) -> Iterator[subprocess.Popen[str]]:
    """Another server over the same directory, writing as fast as it can."""
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(data)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


async def test_a_directory_belongs_to_one_process_and_a_crash_loses_nothing_acknowledged(
    data: Path,
) -> None:
    acknowledged: dict[str, list[int]] = {}
    with other_process(data) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        with pytest.raises(DataDirectoryInUse):
            await SqliteStore(Settings(data=str(data))).open()
        for _ in range(150):
            writer, number = process.stdout.readline().split()
            acknowledged.setdefault(writer, []).append(int(number))
        process.send_signal(signal.SIGKILL)
        process.wait()
        for line in process.stdout:
            if line.endswith("\n"):
                writer, number = line.split()
                acknowledged.setdefault(writer, []).append(int(number))
    async with opened(data) as store:
        tail = await find(store, "a")
        stored: dict[str, list[int]] = {}
        for body in await bodies(store, tail):
            writer, number = body.decode().rstrip(".;").split()
            stored.setdefault(writer, []).append(int(number))
        for writer, numbers in stored.items():
            assert numbers == list(range(len(numbers))), "gaps, or out of order"
            # One append of each writer may have been committed without being told.
            assert 0 <= len(numbers) - len(acknowledged.get(writer, [])) <= 1
        assert sum(map(len, await bodies(store, tail))) == tail.committed.offset
        await append(store, tail, b"and on")


# Crashes


async def test_a_crash_leaves_exactly_what_was_committed(disk: Disk, data: Path) -> None:
    async with opened(data, inline_bytes=1024) as store:
        tail = await create(store, "a", b"one", b"x" * 5_000)
        await append(store, tail, b"three", seq="s", producers={"p": (1, 2)})
        committed = tail.committed
        await create(store, "b")
        assert await store.drop(await find(store, "b"))
        with disk.held():
            pending: list[asyncio.Future[Any]] = [
                begun(store, tail, b"never acknowledged"),
                asyncio.ensure_future(store.create(stream("c"), [])),
            ]
            await disk.busy()
            image = crash_image(data, data.with_name("image"))
        await asyncio.gather(*pending)
    async with opened(image, inline_bytes=1024) as store:
        tail = await find(store, "a")
        assert tail.state == tail.committed == committed
        assert await bodies(store, tail) == [b"one", b"x" * 5_000, b"three"]
        assert await store.tail("b") is None
        assert await store.tail("c") is None
        await append(store, tail, b"four")
        assert await bodies(store, tail) == [b"one", b"x" * 5_000, b"three", b"four"]


async def test_a_torn_log_ends_with_a_whole_commit(data: Path, tmp_path: Path) -> None:
    """Power goes while SQLite writes its log: what was not acknowledged may be gone, no more."""
    async with opened(data) as store:
        tail = await create(store, "a")
        for number in range(30):
            await append(store, tail, b"%d;" % number)
        crash_image(data, tmp_path / "image")
    log = tmp_path / "image" / f"{schema.FILE_NAME}-wal"
    whole = log.stat().st_size
    assert whole > 30 * 4096
    chance = random.Random(4)
    lengths = []
    for number in range(8):
        torn = tmp_path / f"torn{number}"
        shutil.copytree(tmp_path / "image", torn)
        os.truncate(torn / log.name, whole - chance.randrange(1, whole // 2))
        async with opened(torn) as store:
            tail = await find(store, "a")
            stored = await bodies(store, tail)
            assert stored == [b"%d;" % each for each in range(len(stored))]
            assert tail.committed.slot == len(stored)
            lengths.append(len(stored))
            await append(store, tail, b"more")
    assert 0 < min(lengths) < max(lengths) < 30


async def test_an_open_that_was_cut_short_is_repeated(data: Path) -> None:
    await asyncio.to_thread(data.mkdir)
    sqlite3.connect(data / schema.FILE_NAME).close()
    async with opened(data) as store:
        await create(store, "a", b"x")


async def test_data_of_another_format_is_refused(data: Path) -> None:
    async with opened(data):
        pass
    db = sqlite3.connect(data / schema.FILE_NAME)
    db.execute("PRAGMA user_version = 99")
    db.close()
    for _ in range(2):  # it lets go of the directory, so that the second try fails the same way
        with pytest.raises(UnreadableData, match="99"):
            await SqliteStore(Settings(data=str(data))).open()


# Large bodies


async def test_a_large_body_is_a_file(data: Path) -> None:
    async with opened(data, inline_bytes=1024) as store:
        tail = await create(store, "a", b"x" * 1024)
        assert files(data) == []
        await append(store, tail, b"y" * 1025)
        (file,) = files(data)
        assert file.read_bytes() == b"y" * 1025
        assert await bodies(store, tail) == [b"x" * 1024, b"y" * 1025]
    async with opened(data, inline_bytes=MANY) as store:
        await store.sweep()
        assert await bodies(store, await find(store, "a")) == [b"x" * 1024, b"y" * 1025]


async def test_large_bodies_keep_their_order(data: Path) -> None:
    """They are written side by side, and some take longer than others."""
    contents = [b"%d" % n * (100_000 if n % 3 == 0 else 500) for n in range(30)]
    async with opened(data, inline_bytes=1024) as store:
        tail = await create(store, "a")
        puts = []
        for content in contents:
            puts.append(begun(store, tail, content))
            await asyncio.sleep(0)
        assert all(await asyncio.gather(*puts))
        assert await bodies(store, tail) == contents
    async with opened(data) as store:
        assert await bodies(store, await find(store, "a")) == contents


async def test_an_orphaned_file_is_swept_a_day_after_the_next_start(disk: Disk, data: Path) -> None:
    async with opened(data, inline_bytes=1024) as store:
        tail = await create(store, "a", b"x" * 2000)
        disk.fail()
        with pytest.raises(StoreUnavailable):
            await append(store, tail, b"y" * 2000)
        await append(store, tail, b"z" * 2000)
        assert len(files(data)) == 3, "the file of the failed append is an orphan"
    # And so is that of a stream whose creation a crash cut short.
    any_file = files(data)[0]
    never = any_file.parent.with_name("abc")
    shutil.copytree(any_file.parent, never)
    for file in files(data):
        os.utime(file, (time.time() - MANY, time.time() - MANY))
    async with opened(data, inline_bytes=1024) as store:
        await store.sweep()
        assert len(files(data)) == 6, "however old they are, they were not known to be orphans"
        await sweep_for_days(store)
        assert len(files(data)) == 2
        assert await bodies(store, await find(store, "a")) == [b"x" * 2000, b"z" * 2000]


async def test_a_file_that_cannot_be_written_fails_its_append(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(data, inline_bytes=1024) as store:
        tail = await create(store, "a", b"before")
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", _no_space)
            with pytest.raises(StoreUnavailable, match="No space"):
                await append(store, tail, b"y" * 2000)
        assert tail.state.slot == 1
        assert files(data) == [], "nothing is left of it"
        await append(store, tail, b"z" * 2000)
        assert await bodies(store, tail) == [b"before", b"z" * 2000]


def _no_space(_: int) -> None:
    raise OSError(28, "No space left on device")


async def test_a_sweep_leaves_the_file_of_an_append_under_way(disk: Disk, data: Path) -> None:
    """The first sweep runs right after the start, and so may the first append.

    The kernel stamps files with a clock that ticks every few milliseconds, so the file of such an
    append may look older than the start.
    """
    async with opened(data, inline_bytes=1024) as store:
        opened_at = time.time()
        tail = await create(store, "a")
        with disk.held():
            putting = begun(store, tail, b"x" * 2000)
            await disk.busy()
            (file,) = files(data)
            os.utime(file, (opened_at - 0.01, opened_at - 0.01))
            await store.sweep()
        assert await putting
        assert files(data) == [file]
    async with opened(data) as store:
        assert await bodies(store, await find(store, "a")) == [b"x" * 2000]


async def test_a_sweep_erases_every_row_and_file_of_deleted_streams(data: Path) -> None:
    async with opened(data, inline_bytes=1024) as store:
        nothing = rows(data)
        assert set(nothing.values()) == {0}
        root = await create(store, "root", b"1", b"x" * 2000)
        assert await put(store, root, b"2", {"p": (0, 0), "q": (0, 0)}, spilled=1)
        middle = await fork(store, "middle", root, b"3", b"y" * 2000)
        leaf = await fork(store, "leaf", middle, b"4")
        for tail in (root, middle, leaf):
            assert await store.drop(tail)
        await store.sweep()
        assert rows(data) == nothing
        assert files(data) == []


async def test_a_long_stream_is_erased_bit_by_bit(
    disk: Disk, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "ERASE_ROWS", 10)
    async with opened(data) as store:
        made = stream("a")
        long = await store.create(made, following(made, [b"x"] * 95))
        assert long is not None
        other = await create(store, "b", b"kept")
        assert await store.drop(long)
        before = disk.commits
        await store.sweep()
        assert disk.commits - before >= 10, "writers get their turn in between"
        assert rows(data)["entries"] == 1
        assert await bodies(store, other) == [b"kept"]


async def test_a_sweep_completes_one_that_a_crash_interrupted(data: Path) -> None:
    async with opened(data, inline_bytes=1024) as store:
        tail = await create(store, "a", b"x", b"y" * 2000)
        assert await store.drop(tail)
    async with opened(data, inline_bytes=1024) as store:
        await store.sweep()
        assert set(rows(data).values()) == {0}
        assert files(data) == []


async def test_a_read_of_what_is_erased_has_an_error_with_a_name(data: Path) -> None:
    """A reader may still hold the tail of a stream that was deleted and swept meanwhile."""
    async with opened(data, hot_bytes=0, inline_bytes=1024) as store:
        small, large = await create(store, "a", b"x"), await create(store, "b", b"x" * 2000)
        for tail in (small, large):
            assert await store.drop(tail)
        await store.sweep()
        for tail in (small, large):
            with pytest.raises(SlotTrimmed):
                await store.read(tail.stream.id, 0, 1, PLENTY)


# Memory


async def test_reads_do_not_depend_on_what_is_in_memory(tmp_path: Path) -> None:
    """From memory, from the file, and from memory that reaches only part of the way back."""
    chance = random.Random(11)
    contents = [chance.randbytes(chance.choice([1, 50, 300, 2_000])) for _ in range(30)]

    async def reads(hot_bytes: int) -> list[object]:
        data = tmp_path / str(hot_bytes)
        found: list[object] = []
        async with opened(data, hot_bytes=hot_bytes, inline_bytes=1024) as store:
            tail = await create(store, "a")
            for pair in zip(contents[::2], contents[1::2], strict=True):
                # Some share a slot, and some are too long for that.
                await together(store, tail, *pair)
                for n in range(tail.committed.tail):
                    chunk = await store.read(tail.stream.id, n, tail.committed.tail, 50)
                    found.append((n, chunk._replace(bodies=list(chunk.bodies))))
            total = tail.committed.tail
            assert 15 < total < 30
            for chunk_bytes, n in itertools.product((1, 700, PLENTY), range(total)):
                offset = (await store.slot_info(tail.stream.id, n)).offset
                for stop, after in itertools.product({n + 1, total}, (0, offset - 2, offset)):
                    chunk = await store.read(tail.stream.id, n, stop, chunk_bytes, after)
                    found.append(chunk._replace(bodies=list(chunk.bodies)))
        return found

    expected = await reads(1 << 30)
    for hot_bytes in (0, 1, 500, 5_000, 20_000):
        assert await reads(hot_bytes) == expected, f"with {hot_bytes} bytes"


async def test_memory_is_shared_by_all_streams(data: Path) -> None:
    """The oldest entries leave first, whoever they belong to; nothing is lost by it."""
    async with opened(data, hot_bytes=3_000) as store:
        tails = [await create(store, path) for path in "abcd"]
        for number in range(100):
            tail = tails[number % 4]
            await append(store, tail, b"%d;" % number * 20)
        for index, tail in enumerate(tails):
            expected = [b"%d;" % number * 20 for number in range(index, 100, 4)]
            assert await bodies(store, tail) == expected


async def fill(store: SqliteStore, path: str, chance: random.Random, turns: int) -> list[bytes]:
    """One client's appends, each on a tail it has just looked up."""
    acknowledged: list[bytes] = []
    while len(acknowledged) < turns:
        tail = await find(store, path)
        if chance.random() < 0.3:
            await asyncio.sleep(0)  # long enough for the stream to be forgotten
        body = b"%s.%d;" % (path.encode(), len(acknowledged))
        if await put(store, tail, body) is not None:
            acknowledged.append(body)
    return acknowledged


@pytest.mark.parametrize(("limit", "seed"), [(1, 1), (2, 2), (3, 3), (7, 4)])
async def test_streams_that_memory_forgets_lose_nothing(data: Path, limit: int, seed: int) -> None:
    chance = random.Random(seed)
    paths = [f"s{number}" for number in range(12)]
    async with opened(data, open_streams=limit) as store:
        for path in paths:
            await create(store, path)
        filled = await asyncio.gather(*(fill(store, path, chance, 20) for path in paths))
        for path, acknowledged in zip(paths, filled, strict=True):
            assert await bodies(store, await find(store, path)) == acknowledged
    async with opened(data) as store:
        for path, acknowledged in zip(paths, filled, strict=True):
            assert await bodies(store, await find(store, path)) == acknowledged


async def test_a_forgotten_stream_is_the_same_when_it_is_opened_again(data: Path) -> None:
    async with opened(data, open_streams=1) as store:
        tail = await create(store, "a", b"one")
        await append(store, tail, b"two", seq="s", producers={"p": (1, 2)}, spilled=1)
        before = tail.committed
        await create(store, "b")
        again = await find(store, "a")
        assert again is not tail, "this test is about streams that were forgotten"
        assert again.committed == before
        assert again.stream == tail.stream
        # The old tail is no way in any more: its holder has to look again.
        assert await put(store, tail, b"late") is None
        assert not await store.drop(tail)
        await append(store, again, b"three")
        assert await bodies(store, again) == [b"one", b"two", b"three"]


async def test_the_name_of_a_forgotten_stream_is_taken(data: Path) -> None:
    async with opened(data, open_streams=1) as store:
        await create(store, "a", b"mine")
        await create(store, "b")
        assert await store.create(stream("a"), []) is None
        assert await bodies(store, await find(store, "a")) == [b"mine"]


async def test_creating_a_taken_name_harms_no_other_write(data: Path) -> None:
    async with opened(data, open_streams=1) as store:
        await create(store, "a", b"mine")
        tail = await create(store, "b")
        # Both in one commit.
        putting = begun(store, tail, b"x")
        claim = asyncio.ensure_future(store.create(stream("a"), []))
        assert await outcomes(putting, claim) == [1, None]


@pytest.mark.parametrize("busy", ["waiters", "writes"])
async def test_a_stream_opens_although_all_others_are_in_use(
    disk: Disk, data: Path, busy: str
) -> None:
    """More streams are in use than memory is meant for: then it holds more for a while."""
    limit = 16
    async with opened(data) as store:
        for number in range(limit):
            await create(store, f"s{number}")
        await create(store, "one more", b"x")
    async with opened(data, open_streams=limit) as store:
        tails = [await find(store, f"s{number}") for number in range(limit)]
        waits = [Waiting(store, tail, 0) for tail in tails] if busy == "waiters" else []
        with disk.held():
            puts = [begun(store, tail, b"x") for tail in tails] if busy == "writes" else []
            await asyncio.sleep(0.01)
            tail = await find(store, "one more")
            assert await bodies(store, tail) == [b"x"]
            putting = begun(store, tail, b"y")
            await asyncio.sleep(0.01)
        assert await putting
        assert all(await asyncio.gather(*puts))
        for waiting in waits:
            await waiting.leave()
        assert await bodies(store, await find(store, "one more")) == [b"x", b"y"]


async def test_after_a_rush_memory_forgets_down_to_its_limit(disk: Disk, data: Path) -> None:
    async with opened(data, open_streams=2) as store:
        with disk.held():
            rush = [
                asyncio.ensure_future(store.create(stream(f"s{number}"), []))
                for number in range(20)
            ]
            await disk.busy()
        await asyncio.gather(*rush)
        for _ in range(3):
            for number in range(20):
                await find(store, f"s{number}")
        assert len(store._chains) <= 2


async def test_a_stream_that_is_opened_while_its_last_fork_goes_is_gone(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data read from the file before a commit is outdated after it."""
    async with opened(data) as store:
        source = await create(store, "a", b"x")
        await fork(store, "f", source)
        assert await store.drop(source)
    read, go_on = threading.Event(), threading.Event()
    load = queries.load_chain

    def slowly(db: sqlite3.Connection, path: str) -> Chain | None:
        chain = load(db, path)
        if path == "a":
            read.set()
            assert go_on.wait(60)
        return chain

    async with opened(data) as store:
        last = await find(store, "f")
        monkeypatch.setattr(queries, "load_chain", slowly)
        opening = asyncio.ensure_future(store.tail("a"))
        assert await asyncio.to_thread(read.wait, 60)
        try:
            assert await store.drop(last)
        finally:
            go_on.set()
        await opening
        assert await store.tail("a") is None
        assert await store.create(stream("a"), []) is not None


# The clock of idle streams


IDLE = Config("text/plain", NOW, ttl=60)
SLACK = renewal_slack(60)


class Clocked:
    """A stream with an idle window, the stores it goes through, and when it was accessed last."""

    def __init__(self, data: Path, disk: Disk) -> None:
        self._folder = data
        self._images = 0
        self._others = 0
        self._disk = disk
        self._now = NOW
        self.accessed = NOW
        self.store: SqliteStore

    async def open(self) -> None:
        self.store = SqliteStore(Settings(data=str(self._folder), open_streams=2))
        await self.store.open()

    async def begin(self) -> None:
        await self.open()
        await create(self.store, "a", config=IDLE)

    async def restart(self) -> None:
        await self.store.close()
        await self.open()

    async def crash(self) -> None:
        # A touch is not waited for, so a crash right after it may lose it; not a later one.
        await self.store._commit.flush()
        self._images += 1
        image = crash_image(self._folder, self._folder.with_name(f"image{self._images}"))
        await self.store.close()
        self._folder = image
        await self.open()

    async def access(self, after: int) -> None:
        self._now += after
        await self.store.touch(await find(self.store, "a"), self._now)
        self.accessed = self._now

    async def forget(self) -> None:
        while "a" in self.store._chains:
            self._others += 1
            await create(self.store, f"other {self._others}")

    async def fail(self) -> None:
        """The next commit fails; it may be the one with the clock."""
        self._disk.fail()

    async def recover(self) -> None:
        """A commit that may fail, and one that does not."""
        for _ in range(2):
            with contextlib.suppress(StoreUnavailable):
                await self.store._commit.flush()

    async def check(self) -> None:
        found = (await find(self.store, "a")).accessed
        assert found >= self.accessed, "it would expire early"
        assert found <= self.accessed + SLACK, "it would expire too late"
        # A sweep that knows only the file must not think otherwise.
        await self.store._commit.flush()
        assert "a" not in await self.store.expiring(self.accessed + 60_000 - 1)


WALKS: dict[str, list[tuple[str, int]]] = {
    "restart": [("access", 50_000), ("restart", 0)],
    "restart at once": [("restart", 0)],
    "access within the slack, restart": [("access", SLACK), ("restart", 0)],
    "crash": [("access", 50_000), ("crash", 0)],
    "access within the slack, crash": [("access", SLACK), ("crash", 0)],
    "small steps, crash": [("access", 2_500)] * 20 + [("crash", 0)],
    "restart, access, crash": [
        ("access", 1_000),
        ("restart", 0),
        ("access", SLACK - 1),
        ("crash", 0),
    ],
    "crash, access, crash": [("crash", 0), ("access", 2 * SLACK - 100), ("crash", 0)],
    "restarts without access": [("access", 10_000), *[("restart", 0), ("crash", 0)] * 3],
    "forgotten": [("access", 50_000), ("forget", 0)],
    "forgotten, then a crash": [("access", SLACK - 1), ("forget", 0), ("crash", 0)],
    "forgotten, access, crash": [("forget", 0), ("access", 2 * SLACK - 100), ("crash", 0)],
    "failed commit, crash": [
        ("fail", 0),
        ("access", 50_000),
        ("recover", 0),
        ("access", SLACK - 1),
        ("crash", 0),
    ],
}


@pytest.mark.parametrize("walk", WALKS.values(), ids=WALKS.keys())
async def test_an_idle_window_ends_never_early_and_a_slack_late_at_most(
    data: Path, disk: Disk, walk: list[tuple[str, int]]
) -> None:
    clocked = Clocked(data, disk)
    await clocked.begin()
    try:
        for step, argument in walk:
            act: Callable[..., Any] = getattr(clocked, step)
            await (act(argument) if step == "access" else act())
        await clocked.check()
    finally:
        await clocked.store.close()


@pytest.mark.parametrize("seed", range(4))
async def test_an_idle_window_survives_any_history(data: Path, disk: Disk, seed: int) -> None:
    chance = random.Random(seed)
    clocked = Clocked(data, disk)
    await clocked.begin()
    history: list[str] = []
    try:
        for _ in range(25):
            step = chance.choice(["access", "access", "access", "restart", "crash", "forget"])
            history.append(step)
            if step == "access":
                await clocked.access(chance.choice([1, 900, SLACK - 1, SLACK, SLACK + 1, 30_000]))
            else:
                await getattr(clocked, step)()
            await clocked.check()
    except AssertionError as error:
        raise AssertionError(f"{error} after {history}") from error
    finally:
        await clocked.store.close()


async def test_a_stream_that_has_to_make_room_while_its_clock_is_stored_keeps_its_time(
    disk: Disk, data: Path
) -> None:
    async with opened(data, open_streams=2) as store:
        tail = await create(store, "a", config=IDLE)
        await create(store, "c")
        with disk.held():
            await store.touch(tail, NOW + 50_000)
            await disk.busy()
            creating = asyncio.ensure_future(store.create(stream("b"), []))
            await asyncio.sleep(0.01)
            finding = asyncio.ensure_future(find(store, "a"))
            await asyncio.sleep(0.05)
        await creating
        assert (await finding).accessed >= NOW + 50_000


async def test_a_closed_stream_is_the_same_after_it_was_forgotten(data: Path) -> None:
    async with opened(data, open_streams=1) as store:
        tail = await create(store, "a", b"x")
        assert await store.put(tail, tail.state, closing(tail.state)) == 1
        await create(store, "b")
        again = await find(store, "a")
        assert again.committed == tail.committed
        assert await Waiting(store, again, 1).ends()


async def test_a_stream_that_is_being_opened_outlives_its_caller(data: Path) -> None:
    async with opened(data) as store:
        await create(store, "a", b"x")
    async with opened(data) as store:
        opening = asyncio.ensure_future(store.tail("a"))
        await asyncio.sleep(0)
        (task,) = store._opening.values()
        opening.cancel()
    assert task.done()
    assert await task is True, "closing the store waits for what still reads the database"
