"""History of the embedded store: entries move into segment files, and no reader notices."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.errors import (
    BadRequest,
    DamagedData,
    SlotTrimmed,
    StoreUnavailable,
    StreamClosed,
    UnreadableData,
)
from tailrace.log.append import Append
from tailrace.log.content import length
from tailrace.log.create import Create, ForkFrom
from tailrace.log.state import Config
from tailrace.segments.format import Trailer
from tailrace.settings import Settings
from tailrace.store.base import Compacted
from tailrace.store.sqlite import compaction, queries, schema
from tailrace.store.sqlite import store as store_module
from tailrace.store.sqlite.directory import DataDirectory
from tailrace.store.sqlite.files import ChainFiles
from tailrace.store.sqlite.store import SqliteStore
from tailrace.streams import Streams
from tests.support.earlier_versions import as_version
from tests.support.orphans import sweep_for_days
from tests.support.store_contract import (
    NOW,
    PLENTY,
    append,
    bodies,
    create,
    find,
    fork,
    put,
    stream,
    together,
)

LARGE = b"x" * 2_000


@asynccontextmanager
async def opened(data: Path, **more: Any) -> AsyncIterator[SqliteStore]:
    """A store that keeps nothing in memory and makes segments of two entries."""
    chosen = {"hot_bytes": 0, "inline_bytes": 1024, "segment_max_messages": 2, **more}
    store = SqliteStore(Settings(data=str(data), **chosen))
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


def query(data: Path, statement: str) -> list[Any]:
    db = sqlite3.connect(data / schema.FILE_NAME)
    try:
        return db.execute(statement).fetchall()
    finally:
        db.close()


def slots(data: Path) -> list[int]:
    """Those that are in the table."""
    return [n for (n,) in query(data, "SELECT n FROM entries ORDER BY n")]


def segments(data: Path) -> list[tuple[int, int]]:
    return query(data, "SELECT first, stop FROM segments ORDER BY id, first")


def files(data: Path, kind: str) -> list[Path]:
    return sorted(path for path in (data / kind).rglob("*") if path.is_file())


def assert_files_are_named(data: Path) -> None:
    """Every file has its row, and every row its file."""
    for kind, column, table in (("bodies", "file", "entries"), ("segments", "name", "segments")):
        named = query(data, f"SELECT id, {column} FROM {table} WHERE {column} IS NOT NULL")
        expected = sorted(data / kind / f"{chain:x}" / name for chain, name in named)
        assert files(data, kind) == expected


# What is moved


async def test_entries_that_fill_segments_move_and_the_others_stay(
    store: SqliteStore, data: Path
) -> None:
    contents = [b"%d" % number for number in range(8)]
    tail = await create(store, "a", *contents)
    done = await store.compact()
    assert done == Compacted(streams=1, segments=3, entries=6, bytes=6)
    assert segments(data) == [(0, 2), (2, 4), (4, 6)]
    assert slots(data) == [6, 7]
    assert await bodies(store, tail) == contents
    assert await store.compact() == Compacted()
    assert_files_are_named(data)


@pytest.mark.parametrize("entries", [0, 1, 2])
async def test_the_last_entry_never_moves(store: SqliteStore, data: Path, entries: int) -> None:
    """Of two entries only one may go, and that does not fill a segment."""
    await create(store, "a", *[b"x"] * entries)
    assert (await store.compact()).segments == 0
    assert len(slots(data)) == entries


async def test_of_a_stream_that_was_only_closed_all_data_may_move(data: Path) -> None:
    async with opened(data) as store:
        tail = await create(store, "a", b"one", b"two")
        await append(store, tail, None, end=2)
        assert (await store.compact()).entries == 2
        assert slots(data) == [2]
        expected = tail.committed
        look = await store.read_at("a", 0, PLENTY)
        assert look is not None
        assert (look.chunk.slot, look.end) == (2, expected)
    async with opened(data) as store:
        tail = await find(store, "a")
        assert tail.committed == expected
        assert await bodies(store, tail) == [b"one", b"two"]


async def test_a_segment_ends_where_it_has_enough_bytes(data: Path) -> None:
    limits: dict[str, Any] = {"segment_max_messages": 10_000, "segment_max_bytes": 1024}
    async with opened(data, **limits) as store:
        contents = [b"x" * size for size in (1_023, 1, 5_000, 500, 500, 24, 1_000, 7)]
        tail = await create(store, "a", *contents)
        assert (await store.compact()).segments == 3
        assert segments(data) == [(0, 2), (2, 3), (3, 6)]
        assert await bodies(store, tail) == contents


async def test_a_large_first_body_moves_by_itself(data: Path) -> None:
    limits: dict[str, Any] = {"segment_max_messages": 1000, "segment_max_bytes": 1024}
    async with opened(data, **limits) as store:
        tail = await create(store, "a", LARGE, b"y")
        assert (await store.compact()).entries == 1
        assert await bodies(store, tail) == [LARGE, b"y"]


async def test_a_state_survives_the_move_of_what_led_to_it(data: Path) -> None:
    async with opened(data) as store:
        tail = await create(store, "a", b"1", b"2", b"3", b"4")
        spill = {"q": (1, 1)}
        after: dict[str, Any] = {"seq": "s", "producers": {"p": (1, 2)}, "spilled": 1}
        assert await put(store, tail, b"5", spill, **after)
        await store.compact()
        expected = tail.committed
    async with opened(data) as store:
        tail = await find(store, "a")
        assert tail.committed == expected
        assert await store.producer(tail, "q") == (1, 1)
        await append(store, tail, b"6")
        assert await bodies(store, tail) == [b"1", b"2", b"3", b"4", b"5", b"6"]


async def test_more_streams_than_a_page_are_all_compacted(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "PAGE", 3)
    tails = [await create(store, f"s{n}", *[b"%d" % n] * (n % 5)) for n in range(20)]
    assert (await store.compact()).streams == 8
    for n, tail in enumerate(tails):
        assert await bodies(store, tail) == [b"%d" % n] * (n % 5)


async def test_progress_is_reported_after_each_segment(store: SqliteStore) -> None:
    await create(store, "a", *[b"x"] * 7)
    seen: list[tuple[int, int]] = []
    await store.compact(lambda done: seen.append((done.streams, done.segments)))
    assert seen == [(1, 1), (1, 2), (1, 3)]


async def test_each_segment_is_a_commit_of_its_own(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that writers get their turn in between."""
    tail = await create(store, "a", *[b"x"] * 21)
    await create(store, "b")
    await store.sweep()
    batches: list[int] = []
    commit = store._commit._commit

    def counted(batch: list[Any]) -> StoreUnavailable | None:
        batches.append(len(batch))
        return commit(batch)

    monkeypatch.setattr(store._commit, "_commit", counted)
    assert (await store.compact()).segments == 10
    assert batches == [1] * 10
    assert await bodies(store, tail) == [b"x"] * 21


# Large bodies


async def test_a_large_body_in_a_segment_has_no_file_any_more(
    store: SqliteStore, data: Path
) -> None:
    contents = [LARGE, b"1", LARGE, b"3", LARGE]
    tail = await create(store, "a", *contents)
    assert len(files(data, "bodies")) == 3
    assert (await store.compact()).entries == 4
    assert len(files(data, "bodies")) == 3, "a copy that is being made may still need them"
    await store.compact()
    assert len(files(data, "bodies")) == 1
    assert await bodies(store, tail) == contents
    assert_files_are_named(data)


async def test_a_reader_whose_file_goes_finds_it_in_the_segment(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The move and the removal come between its look at the table and its look at the file."""
    contents = [LARGE, b"1", LARGE, b"3"]
    tail = await create(store, "a", *contents)
    loop, read = asyncio.get_running_loop(), ChainFiles.read
    compacted: list[Compacted] = []

    async def compact() -> None:
        compacted.append(await store.compact())
        await store.maintenance.remove_replaced()

    def late(self: ChainFiles, chain: int, name: str) -> bytes:
        monkeypatch.setattr(ChainFiles, "read", read)
        asyncio.run_coroutine_threadsafe(compact(), loop).result(60)
        return read(self, chain, name)

    monkeypatch.setattr(ChainFiles, "read", late)
    assert await bodies(store, tail) == contents
    assert compacted[0].segments == 1


# Reading while entries move


async def test_readers_see_no_gap_while_entries_move(data: Path) -> None:
    chance = random.Random(7)
    contents = [b"%d;" % n + b"." * chance.choice([0, 10, 1_500]) for n in range(50)]
    async with opened(data) as store:
        tail = await create(store, "a", contents[0])
        over = asyncio.Event()

        async def write() -> None:
            for content in contents[1:]:
                await append(store, tail, content)
            over.set()

        async def compact() -> None:
            while not over.is_set():
                assert not (await store.compact()).failed

        async def follow(chunk_bytes: int) -> int:
            rounds = 0
            while not over.is_set() or not rounds:
                n, stop = 0, tail.committed.tail
                seen: list[bytes] = []
                while n < stop:
                    chunk = await store.read(tail.stream.id, n, stop, chunk_bytes)
                    seen += chunk.bodies
                    n = chunk.slot
                    if n < stop:
                        offset, _ = await store.start_of(tail.stream.id, n)
                        assert offset == sum(map(len, seen))
                assert seen == contents[:stop]
                rounds += 1
            return rounds

        await asyncio.gather(write(), compact(), follow(1024), follow(700), follow(PLENTY))
        await store.compact()
        assert len(slots(data)) <= 2
        assert await bodies(store, tail) == contents
        assert [row[0] for row in segments(data)] == list(range(0, len(segments(data)) * 2, 2))


async def test_a_chunk_is_read_at_one_moment(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A move between the looks at segments and table shows in neither or in both."""
    contents = [b"%d" % n for n in range(9)]
    tail = await create(store, "a", *contents[:4])
    await store.compact()
    for content in contents[4:]:
        await append(store, tail, content)
    loop, start_of = asyncio.get_running_loop(), store._archive.start_of

    def late(*args: Any) -> tuple[int, int] | None:
        start = start_of(*args)
        monkeypatch.undo()
        assert asyncio.run_coroutine_threadsafe(store.compact(), loop).result(60).segments
        return start

    monkeypatch.setattr(store._archive, "start_of", late)
    assert await bodies(store, tail) == contents


async def test_memory_goes_on_serving_what_has_moved(data: Path) -> None:
    async with opened(data, hot_bytes=1 << 20) as store:
        tail = await create(store, "a", *[b"x"] * 9)
        await store.compact()
        for file in files(data, "segments"):
            file.unlink()
        assert await bodies(store, tail) == [b"x"] * 9


# The same bytes

MODES = ("application/json", "text/plain", "application/octet-stream")
SIZES = st.sampled_from([3, 40, 300, 500, 700, 1_500])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 1), SIZES),
        st.tuples(st.just("append"), st.integers(0, 1), SIZES),
        st.tuples(st.just("append"), st.integers(0, 3), SIZES),
        st.tuples(st.just("fork"), st.integers(0, 3), st.integers(0, 12)),
        st.tuples(st.just("close"), st.integers(0, 3), st.booleans()),
        st.tuples(st.just("compact"), st.just(0), st.just(0)),
    ),
    min_size=12,
    max_size=40,
)


async def play(streams: Streams, mode: str, steps: list[tuple[str, int, Any]]) -> list[str]:
    """Do the steps; the paths that came of them."""
    assert isinstance(streams.store, SqliteStore)
    paths = ["root"]
    await streams.create("root", Create(content_type=mode))
    for number, (step, which, argument) in enumerate(steps):
        path = paths[which % len(paths)]
        texts = [f"{number}.{i}".ljust(argument, ".") for i in range(number % 3 + 1)]
        if mode == MODES[0]:
            texts = [f'["{text}",{number}]' for text in texts]
        sent = [Append(text.encode(), mode) for text in texts]
        try:
            if step == "append":
                # Appends of one moment share a slot.
                await asyncio.gather(*(streams.append(path, each) for each in sent))
            elif step == "close":
                body = sent[0].body if argument else b""
                await streams.append(path, Append(body, mode, True))
            elif step == "compact":
                assert not (await streams.store.compact()).failed
            else:
                at = min(argument, (await streams.find(path)).committed.tail)
                wanted = Create(b"", mode, fork=ForkFrom(path, at, number % 2))
                await streams.create(f"fork-{number}", wanted)
                paths.append(f"fork-{number}")
        except (StreamClosed, BadRequest):
            continue
    return paths


async def seen(streams: Streams, paths: list[str]) -> dict[tuple[str, int, int], object]:
    """The data that every reader gets, from every slot of every stream and every append in it."""
    found: dict[tuple[str, int, int], object] = {}
    for path in paths:
        tail = await streams.find(path)
        for n in range(tail.committed.tail + 1):
            slot = await streams.view(path, n, chunk_bytes=1)
            steps = [length(tail.stream.config.mode, body) for body in slot.bodies[:-1]]
            for offset in accumulate(steps, initial=slot.start_offset()):
                view = await streams.view(path, n, offset)
                found[path, n, offset] = (
                    list(view.bodies), view.next_offset, view.up_to_date, view.closed,
                )  # fmt: skip
    return found


HISTORIES = (
    st.sampled_from(MODES), STEPS, st.sampled_from([1, 2, 3, 1000]), st.sampled_from([0, 4, 1000]),
)  # fmt: skip


@settings(max_examples=6, deadline=None)
@given(*HISTORIES)
def test_every_reader_gets_the_same_before_and_after(
    mode: str, steps: list[tuple[str, int, Any]], messages: int, index_slots: int
) -> None:
    same_before_and_after(mode, steps, messages, index_slots)


def same_before_and_after(
    mode: str, steps: list[tuple[str, int, Any]], messages: int, index_slots: int
) -> None:
    async def check(folder: str) -> None:
        chosen = Settings(
            data=folder, hot_bytes=0, inline_bytes=1024, chunk_bytes=1024,
            segment_max_messages=messages, segment_max_bytes=2048,
        )  # fmt: skip
        store = SqliteStore(chosen)
        await store.open()
        try:
            streams = Streams(store, chosen)
            paths = await play(streams, mode, steps)
            before = await seen(streams, paths)
            done = await store.compact()
            assert not done.failed
            assert await seen(streams, paths) == before
        finally:
            await store.close()
        again = SqliteStore(chosen)
        await again.open()
        try:
            await sweep_for_days(again)
            assert await seen(Streams(again, chosen), paths) == before
            assert_files_are_named(Path(folder))
        finally:
            await again.close()

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_module, "INDEX_SLOTS", index_slots)
        asyncio.run(check(folder))


# Forks and deletion


async def test_a_fork_reads_through_the_segments_of_its_ancestors(data: Path) -> None:
    async with opened(data) as store:
        root = await create(store, "root", *[b"r%d" % n for n in range(6)])
        child = await fork(store, "child", root, *[b"c%d" % n for n in range(5)])
        leaf = await fork(store, "leaf", child, *[b"l%d" % n for n in range(5)])
        assert await store.drop(root)
        assert await store.drop(child)
        await store.compact()
        await store.sweep()
        expected = [b"r%d" % n for n in range(6)]
        expected += [b"%c%d" % (kind, n) for kind in b"cl" for n in range(5)]
        for n in range(16):
            look = await store.read_at("leaf", n, PLENTY)
            assert look is not None
            assert list(look.chunk.bodies) == expected[n:]
    async with opened(data) as store:
        leaf = await find(store, "leaf")
        assert await store.drop(leaf)
        await store.sweep()
        assert files(data, "segments") == []
        assert segments(data) == []
        assert slots(data) == []


async def test_deletion_removes_segments_and_their_files(data: Path) -> None:
    async with opened(data) as store:
        tail = await create(store, "a", *[LARGE] * 9)
        kept = await create(store, "b", *[b"x"] * 9)
        await store.compact()
        assert await store.drop(tail)
        await store.sweep()
        assert len(segments(data)) == len(files(data, "segments")) == 4
        with pytest.raises(SlotTrimmed):
            await store.read(tail.stream.id, 0, 9, PLENTY)
        with pytest.raises(SlotTrimmed):
            await store.start_of(tail.stream.id, 3)
        await store.compact()
        assert await bodies(store, kept) == [b"x"] * 9
        assert_files_are_named(data)
        assert [path.name for path in (data / "segments").iterdir()] == [f"{kept.stream.id:x}"]


async def test_many_segments_of_a_deleted_stream_are_erased_in_steps(
    store: SqliteStore, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tail = await create(store, "a", *[b"x"] * 21)
    await store.compact()
    monkeypatch.setattr(queries, "ERASE_ROWS", 3)
    assert await store.drop(tail)
    await store.sweep()
    assert segments(data) == []
    assert query(data, "SELECT * FROM streams") == []


async def test_a_stream_that_is_deleted_while_it_moves_is_not_brought_back(
    store: SqliteStore, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tail = await create(store, "a", *[b"x"] * 9)
    loop, write = asyncio.get_running_loop(), ChainFiles.write

    async def delete() -> None:
        assert await store.drop(tail)

    def late(self: ChainFiles, chain: int, n: int, content: bytes) -> str:
        asyncio.run_coroutine_threadsafe(delete(), loop).result(60)
        return write(self, chain, n, content)

    monkeypatch.setattr(ChainFiles, "write", late)
    assert await store.compact() == Compacted()
    await store.sweep()
    assert files(data, "segments") == []
    assert query(data, "SELECT * FROM segments") == []


# Crashes


async def compact_all(store: SqliteStore) -> None:
    await store.compact()
    await store.maintenance.remove_replaced()


class Crash(Exception):
    pass


def crashing(before: bool, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, but the process dies before or after what it does."""

    def run(*args: Any, **more: Any) -> None:
        if not before:
            function(*args, **more)
        raise Crash

    return run


CRASHES: dict[str, tuple[object, str, bool]] = {
    "before the file is written": (ChainFiles, "write", True),
    "before its row": (ChainFiles, "write", False),
    "within the transaction": (compaction, "move", True),
    "before the commit": (compaction, "move", False),
    "before the replaced files go": (ChainFiles, "remove", True),
    "between the replaced files": (ChainFiles, "remove", False),
}


@pytest.mark.parametrize(("place", "name", "before"), CRASHES.values(), ids=CRASHES.keys())
async def test_a_crash_at_any_step_loses_nothing(
    data: Path, monkeypatch: pytest.MonkeyPatch, place: object, name: str, before: bool
) -> None:
    contents = [LARGE, b"1", b"2", LARGE, LARGE, b"5", b"6"]
    async with opened(data) as store:
        await create(store, "a", *contents)
        with monkeypatch.context() as patched:
            patched.setattr(place, name, crashing(before, getattr(place, name)))
            with pytest.raises((Crash, StoreUnavailable)):
                await compact_all(store)
    async with opened(data) as store:
        tail = await find(store, "a")
        assert await bodies(store, tail) == contents
        await sweep_for_days(store)
        assert_files_are_named(data)
        await compact_all(store)
        assert segments(data) == [(0, 2), (2, 4), (4, 6)]
        assert await bodies(store, tail) == contents
        assert_files_are_named(data)
    async with opened(data) as store:
        await sweep_for_days(store)
        assert_files_are_named(data)
        assert await bodies(store, await find(store, "a")) == contents


async def test_a_failed_commit_takes_no_writer_with_it_that_comes_later(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    tail = await create(store, "a", *[b"x"] * 5)
    with monkeypatch.context() as patched:
        patched.setattr(compaction, "move", crashing(False, compaction.move))
        with pytest.raises(StoreUnavailable):
            await store.compact()
    await append(store, tail, b"y")
    assert (await store.compact()).segments == 2
    assert await bodies(store, tail) == [*[b"x"] * 5, b"y"]


async def test_a_live_copy_has_all_it_names(data: Path) -> None:
    """The database first, then the files; entries move and are written in between."""
    contents = [LARGE, b"1", b"2", LARGE, LARGE, b"5", b"6"]
    copy = data.with_name("copy")
    copy.mkdir()
    async with opened(data) as store:
        tail = await create(store, "a", *contents)
        source, target = (sqlite3.connect(path / schema.FILE_NAME) for path in (data, copy))
        source.backup(target)
        source.close()
        target.close()
        await store.compact()
        await append(store, tail, LARGE)
        shutil.copytree(data / "bodies", copy / "bodies")
        await store.sweep()
        shutil.copytree(data / "segments", copy / "segments")
    async with opened(copy) as store:
        await sweep_for_days(store)
        assert await bodies(store, await find(store, "a")) == contents
        assert_files_are_named(copy)


async def test_a_sweep_leaves_what_rows_name(data: Path) -> None:
    async with opened(data) as store:
        await create(store, "a", *[LARGE] * 9)
        await store.compact()
    orphan = files(data, "segments")[0].with_name("4-0123456789abcdef-0")
    orphan.write_bytes(b"no row names it")
    foreign = orphan.with_name("README")
    foreign.write_bytes(b"not ours")
    async with opened(data) as store:
        await sweep_for_days(store)
        assert not orphan.exists()
        assert foreign.exists()
        assert await bodies(store, await find(store, "a")) == [LARGE] * 9


# What is wrong is named


async def test_a_stream_with_a_hole_is_not_moved_and_others_are(data: Path) -> None:
    async with opened(data) as store:
        broken = await create(store, "broken", *[b"x"] * 9)
        await create(store, "whole", *[b"y"] * 9)
    db = sqlite3.connect(data / schema.FILE_NAME)
    db.execute("DELETE FROM entries WHERE id = ? AND n = 3", (broken.stream.id,))
    db.commit()
    db.close()
    async with opened(data) as store:
        done = await store.compact()
        assert (done.streams, done.segments) == (2, 5)
        assert [why.partition(":")[0] for why in done.failed] == ["cannot compact 'broken'"]
        kept = "SELECT n FROM entries WHERE id = ? ORDER BY n"
        db = sqlite3.connect(data / schema.FILE_NAME)
        assert [n for (n,) in db.execute(kept, (broken.stream.id,))] == [2, 4, 5, 6, 7, 8]
        db.close()
        assert await bodies(store, await find(store, "whole")) == [b"y"] * 9


@pytest.mark.parametrize("harm", ["index", "cut"])
async def test_a_damaged_segment_is_named_and_not_served(data: Path, harm: str) -> None:
    async with opened(data) as store:
        await create(store, "a", *[b"x"] * 3)
        await store.compact()
    (file,) = files(data, "segments")
    whole = file.read_bytes()
    place = Trailer.read(whole).data_bytes
    damaged = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
    file.write_bytes(damaged if harm == "index" else whole[: place + 1])
    async with opened(data) as store:
        with pytest.raises(DamagedData):
            await bodies(store, await find(store, "a"))
        assert (await find(store, "a")).committed.slot == 3


async def test_a_store_that_was_closed_has_its_log_in_the_database(data: Path) -> None:
    async with opened(data) as store:
        tail = await create(store, "a", *[b"x"] * 5)
        await store.compact()
        assert await bodies(store, tail) == [b"x"] * 5
    assert not (data / f"{schema.FILE_NAME}-wal").exists()


# Files of an earlier version


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_a_directory_of_an_earlier_version_is_opened_and_gets_what_it_lacks(
    data: Path, version: int
) -> None:
    contents = [b"1", LARGE, b"3", b"4", LARGE]
    async with opened(data) as store:
        tail = await create(store, "a", *contents)
        await fork(store, "f", tail, LARGE)
        if version > 1:
            assert (await store.compact()).segments == 2
        expected = tail.committed
    as_version(data, version)
    async with opened(data) as store:
        tail = await find(store, "a")
        assert tail.committed == expected
        assert tail.stream.config.epoch == 0
        assert (await store.compact()).segments == (2 if version == 1 else 0)
        assert await bodies(store, tail) == contents
        assert await together(store, tail, b"5", b"6") == [5, 6]
        assert await bodies(store, tail) == [*contents, b"5", b"6"]
        assert await bodies(store, await find(store, "f")) == [LARGE]
    assert query(data, "PRAGMA user_version") == [(schema.VERSION,)]
    assert_files_are_named(data)


def open_file(data: Path) -> None:
    lock, db = DataDirectory(data).open()
    db.close()
    lock.close()


def test_a_version_1_file_that_cannot_be_changed_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_file(tmp_path)
    as_version(tmp_path, 1)
    step = f"{schema._SEGMENTS}CREATE TABLE segments (x);"
    monkeypatch.setattr(schema, "_STEPS", {1: step})
    with pytest.raises(UnreadableData):
        open_file(tmp_path)
    assert query(tmp_path, "PRAGMA user_version") == [(1,)]
    assert query(tmp_path, "SELECT name FROM sqlite_master WHERE name = 'segments'") == []
    monkeypatch.undo()
    open_file(tmp_path)
    assert query(tmp_path, "PRAGMA user_version") == [(schema.VERSION,)]


async def test_offsets_and_sizes_may_differ(data: Path) -> None:
    """JSON counts messages."""
    async with opened(data) as store:
        made = stream("a", Config("application/json", NOW))
        tail = await store.create(made, [])
        assert tail is not None
        for number in range(7):
            offset = tail.state.offset + 3
            await append(store, tail, b"1,2,3", offset=offset, written_at=NOW + number)
        await store.compact()
        assert await bodies(store, tail) == [b"1,2,3"] * 7
        for n in range(1, 8):
            assert tuple(await store.start_of(made.id, n)) == (3 * n, 5 * n)
