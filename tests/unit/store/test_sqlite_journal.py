"""The journal of the embedded store: entries that are committed, and not in their table yet."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from tailrace.errors import StoreUnavailable, UnreadableData
from tailrace.settings import Settings
from tailrace.store.sqlite import journal, queries, schema
from tailrace.store.sqlite.journal import BadRecord, decode, encode
from tailrace.store.sqlite.schema import Row
from tailrace.store.sqlite.store import SqliteStore
from tests.support.store_contract import (
    NOW,
    PLENTY,
    Make,
    StoreContract,
    append,
    bodies,
    create,
    find,
    fork,
    put,
    together,
)

ROWS: list[Row] = [
    (1, 0, 3, 3, NOW, b"one", None, None, None),
    (2**62 - 1, 2**40, 2**50, 2**51, NOW, None, "7-ab-1-00000000", b'{"e":1}', None),
    (1, 1, 5, 5, NOW, b"", None, None, b"[[1,1],[1,1]]"),
    (3, 9, 1, 1, NOW, None, None, b'{"e":9}', None),
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A journal of few entries, of which commits fold a few."""
    monkeypatch.setattr(journal, "JOURNAL_ENTRIES", 7)
    monkeypatch.setattr(journal, "FOLD_ENTRIES", 3)
    monkeypatch.setattr(journal, "JOURNAL_BODY_BYTES", 100)


@asynccontextmanager
async def opened(data: Path, **more: Any) -> AsyncIterator[SqliteStore]:
    """A store that keeps nothing in memory but the journal."""
    store = SqliteStore(Settings(data=str(data), **{"hot_bytes": 0, "inline_bytes": 1024, **more}))
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def query(data: Path, statement: str) -> list[Any]:
    with closing(sqlite3.connect(data / schema.FILE_NAME)) as db:
        return db.execute(statement).fetchall()


def in_journal(data: Path) -> list[tuple[int, int]]:
    """Chain and slot of each entry in the journal."""
    records = query(data, "SELECT entries FROM journal ORDER BY n")
    return [row[:2] for (record,) in records for row in decode(record)]


def in_table(data: Path) -> list[tuple[int, int]]:
    return query(data, "SELECT id, n FROM entries ORDER BY id, n")


def crash_image(data: Path) -> Path:
    """The files on disk at this moment, as the next start would find it after a crash."""
    image = data.with_name(f"image{random.getrandbits(60)}")
    return Path(shutil.copytree(data, image, ignore=shutil.ignore_patterns("*-shm", "*.lock")))


async def inherited(store: SqliteStore, path: str) -> list[bytes]:
    """All bodies of a stream, those of its sources included."""
    result = await store.read_at(path, 0, PLENTY)
    assert result is not None
    return list(result.chunk.bodies)


# Records


def test_a_record_has_its_entries() -> None:
    assert list(decode(encode(ROWS))) == ROWS
    assert list(decode(encode([]))) == []


def test_a_record_that_is_not_as_written_is_noticed() -> None:
    record = encode(ROWS)
    for position in range(len(record)):
        harmed = bytearray(record)
        harmed[position] ^= 1
        with pytest.raises(BadRecord):
            list(decode(bytes(harmed)))
    for length in range(4, len(record)):
        with pytest.raises(BadRecord):
            list(decode(record[:length]))


async def test_a_damaged_record_refuses_the_start(data: Path) -> None:
    async with opened(data) as store:
        await append(store, await create(store, "a"), b"x")
        image = crash_image(data)
    with closing(sqlite3.connect(image / schema.FILE_NAME)) as db, db:
        db.execute("UPDATE journal SET entries = zeroblob(40)")
    for _ in range(2):
        with pytest.raises(UnreadableData, match="journal has another checksum"):
            await SqliteStore(Settings(data=str(image))).open()


async def test_no_slot_is_filled_twice(data: Path) -> None:
    async with opened(data) as store:
        tail = await create(store, "a")
        await append(store, tail, b"x")
        before = tail.state
        tail.state = tail.stream.config.initial_state()
        with pytest.raises(StoreUnavailable):
            await append(store, tail, b"y")
        assert tail.state is tail.committed is before
        assert await bodies(store, tail) == [b"x"]


# Contents


async def test_a_commit_is_one_record(data: Path) -> None:
    async with opened(data) as store:
        tails = [await create(store, f"s{number}") for number in range(20)]
        await asyncio.gather(*(append(store, tail, b"x") for tail in tails))
        assert query(data, "SELECT count(*) FROM journal") == [(1,)]
        assert len(in_journal(data)) == 20
        assert in_table(data) == []
    assert in_journal(data) == [], "a store that is closed has folded it"
    assert len(in_table(data)) == 20


@pytest.mark.usefixtures("small")
async def test_it_holds_so_many_entries_and_no_more(data: Path) -> None:
    async with opened(data) as store:
        tails = [await create(store, f"s{number}") for number in range(5)]
        for number in range(60):
            await append(store, tails[number % 5], b"x")
            table, others = set(in_table(data)), set(in_journal(data))
            assert len(others) <= 4 * 7 + 1
            assert len(others - table) <= 7 + 1
            assert len(table | others) == number + 1
        await together(store, tails[0], *[b"%d" % number for number in range(60)])
        await store.sweep()
        assert in_journal(data) == []


async def test_its_memory_is_bounded(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "JOURNAL_BYTES", 20_000)
    monkeypatch.setattr(journal, "FOLD_BYTES", 2_000)
    async with opened(data) as store:
        tail = await create(store, "a")
        for number in range(50):
            await append(store, tail, b"%d;" % number * 300)
            assert len(in_journal(data)) < 25
        assert await bodies(store, tail) == [b"%d;" % number * 300 for number in range(50)]


@pytest.mark.usefixtures("small")
async def test_large_entries_pass_it_by_in_their_order(data: Path) -> None:
    contents = [b"%d;" % number * (100 if number % 4 == 3 else 1) for number in range(20)]
    async with opened(data) as store:
        tail, other = await create(store, "a"), await create(store, "b", b"kept")
        for content in contents:
            await append(store, tail, content)
            if len(content) > 100:
                assert {chain for chain, _ in in_table(data)} >= {tail.stream.id}
            assert await bodies(store, tail) == contents[: tail.committed.slot]
        image = crash_image(data)
        assert await bodies(store, other) == [b"kept"]
    async with opened(image) as store:
        assert await bodies(store, await find(store, "a")) == contents


async def test_a_stream_that_makes_room_is_folded_before(data: Path) -> None:
    async with opened(data, open_streams=1) as store:
        tail = await create(store, "a", b"one")
        await append(store, tail, b"two")
        await create(store, "b", b"x")
        again = await find(store, "a")
        assert again is not tail
        assert again.committed == tail.committed
        assert (tail.stream.id, 1) in in_table(data)


# Reads


async def test_reads_are_the_same_before_and_after_folding(data: Path) -> None:
    chance = random.Random(3)
    contents = [chance.randbytes(chance.choice([1, 50, 300, 2_000])) for _ in range(24)]
    async with opened(data) as store:
        tail = await create(store, "a", *contents[:8])
        await store.sweep()
        for pair in zip(contents[8::2], contents[9::2], strict=True):
            await together(store, tail, *pair)
        total = tail.committed.tail

        async def everything() -> list[object]:
            found: list[object] = list(await store.list("", "", 10, NOW))
            for slot in range(total):
                found.append(await store.slot_info(tail.stream.id, slot))
                found.append(await store.start_of(tail.stream.id, slot + 1))
                offset = (await store.slot_info(tail.stream.id, slot)).offset
                for chunk_bytes in (1, 100, 700, PLENTY):
                    for stop in {slot + 1, (slot + total + 1) // 2, total}:
                        for after in (0, offset - 2, offset):
                            chunk = await store.read(tail.stream.id, slot, stop, chunk_bytes, after)
                            found.append(chunk._replace(bodies=list(chunk.bodies)))
            return found

        assert {slot for _, slot in in_journal(data)} == set(range(8, total))
        expected = await everything()
        assert (await store.list("", "", 10, NOW))[0].state == tail.committed
        await store.sweep()
        assert in_journal(data) == []
        assert await everything() == expected


async def test_a_fork_reads_what_its_source_has_in_the_journal(data: Path) -> None:
    async with opened(data) as store:
        source = await create(store, "a", b"1")
        await append(store, source, b"2")
        made = await fork(store, "f", source, b"3")
        await append(store, made, b"4")
        assert await inherited(store, "f") == [b"1", b"2", b"3", b"4"]
        assert await store.drop(source)
        image = crash_image(data)
        assert await inherited(store, "f") == [b"1", b"2", b"3", b"4"]
    async with opened(image) as store:
        assert await inherited(store, "f") == [b"1", b"2", b"3", b"4"]


# Crashes


async def test_deleted_streams_do_not_come_back(data: Path) -> None:
    async with opened(data) as store:
        tails = [await create(store, path) for path in "ab"]
        await asyncio.gather(*(append(store, tail, b"x") for tail in tails))
        assert await store.drop(tails[0])
        images = [crash_image(data)]
        await store.sweep()
        images.append(crash_image(data))
    for image in images:
        async with opened(image) as store:
            assert await store.tail("a") is None
            assert await bodies(store, await find(store, "b")) == [b"x"]
            await store.sweep()
        assert {chain for chain, _ in in_table(image)} == {tails[1].stream.id}


STEPS: dict[str, Callable[..., Any]] = {
    "before its record": queries.insert_record,
    "before the rows of a fold": queries.insert_entries,
    "before records go": queries.delete_records,
}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
@pytest.mark.parametrize("fails", [False, True], ids=["crash", "failure"])
async def test_a_commit_that_ends_at_any_step_does_all_or_nothing(
    data: Path, monkeypatch: pytest.MonkeyPatch, step: Callable[..., Any], *, fails: bool
) -> None:
    """A crash image is taken, or the disk is full, in the middle of a commit; over and over."""
    chance = random.Random(5)
    images: list[tuple[Path, dict[str, list[bytes]]]] = []
    acknowledged: dict[str, list[bytes]] = defaultdict(list)
    due = False

    def interrupted(*arguments: Any) -> Any:
        nonlocal due
        if due:
            due = False
            if fails:
                raise sqlite3.OperationalError("database or disk is full")
            images.append((crash_image(data), {k: list(v) for k, v in acknowledged.items()}))
        return step(*arguments)

    monkeypatch.setattr(queries, step.__name__, interrupted)
    async with opened(data) as store:
        tails = {path: await create(store, path) for path in "abcd"}
        for number in range(120):
            due = due or number % 8 == 7
            path = chance.choice("abcd")
            body = b"%d;" % number * chance.choice([1, 1, 1, 60])
            try:
                await append(store, tails[path], body)
            except StoreUnavailable:
                assert fails
            else:
                acknowledged[path].append(body)
            assert await bodies(store, tails[path]) == acknowledged[path]
        images.append((crash_image(data), acknowledged))
    images.append((data, acknowledged))
    assert len(images) > (1 if fails else 8)
    for image, expected in images:
        async with opened(image) as store:
            for path in "abcd":
                tail = await find(store, path)
                assert await bodies(store, tail) == expected.get(path, [])
                await append(store, tail, b"and on")
                assert await bodies(store, tail) == [*expected.get(path, []), b"and on"]
        slots = in_table(image)
        assert len(slots) == len(set(slots))
        assert in_journal(image) == []


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(3))
async def test_crashes_at_any_time_of_any_history_lose_nothing(data: Path, seed: int) -> None:
    """Appends, deletions, forks, compaction and sweeps, on a journal that is folded bit by bit."""
    chance = random.Random(seed)
    expected: dict[str, list[bytes]] = {}
    number = 0
    for _ in range(5):
        async with opened(data, segment_max_messages=3, open_streams=3) as store:
            for _ in range(40):
                number += 1
                path = chance.choice("abcdef")
                act = chance.choice(["append"] * 6 + ["compact", "sweep", "drop", "fork"])
                if act == "compact":
                    assert not (await store.compact()).failed
                elif act == "sweep":
                    await store.sweep()
                elif path not in expected:
                    await create(store, path)
                    expected[path] = []
                elif act == "append":
                    body = b"%d;" % number * chance.choice([1, 1, 60, 600])
                    assert await put(store, await find(store, path), body)
                    expected[path].append(body)
                elif act == "drop":
                    assert await store.drop(await find(store, path))
                    del expected[path]
                elif f"{path} fork" not in expected:
                    source = await find(store, path)
                    await fork(store, f"{path} fork", source, b"own")
                    expected[f"{path} fork"] = [*expected[path], b"own"]
                    # Dropped at once, so that a deleted source is free again.
                    await append(store, await find(store, f"{path} fork"), b"more")
                    assert await inherited(store, f"{path} fork") == [
                        *expected.pop(f"{path} fork"), b"more"
                    ]  # fmt: skip
                    assert await store.drop(await find(store, f"{path} fork"))
            image = crash_image(data)
        data = image
    async with opened(data) as store:
        for path in "abcdef":
            tail = await store.tail(path)
            assert (tail is None) == (path not in expected)
            if tail is not None:
                assert await bodies(store, tail) == expected[path]


@pytest.mark.usefixtures("small")
class TestSqliteStoreThatFolds(StoreContract):
    """Entries move into their table a few commits after their own, while others are in it."""

    @pytest.fixture
    def make(self, tmp_path: Path) -> Make:
        settings = Settings(data=str(tmp_path / "data"), hot_bytes=0, inline_bytes=1024)
        return lambda: SqliteStore(settings)
