"""Retention in the embedded store: what is not to be kept goes, and readers are told."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from tailrace.app import Application
from tailrace.cli import main
from tailrace.errors import OffsetTrimmed, StreamGone
from tailrace.log.offsets import BEGINNING, START, Position, parse, token
from tailrace.settings import Settings
from tailrace.store.sqlite import queries, retention, schema
from tailrace.store.sqlite.store import SqliteStore
from tailrace.streams import Streams
from tests.support.streams import Client, Clock, place

LARGE = b"x" * 2_000
LARGE_JSON = b'"%b"' % LARGE
HOUR = 3600


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@asynccontextmanager
async def serving(data: Path, clock: Clock, **more: Any) -> AsyncIterator[Client]:
    """Streams that keep an hour, in segments of two entries; nothing stays in memory."""
    chosen = {"hot_bytes": 0, "inline_bytes": 1024, "segment_max_messages": 2, "retention": "**=1h"}
    settings = Settings(data=str(data), **{**chosen, **more})
    store = SqliteStore(settings, clock)
    await store.open()
    try:
        yield Client(Streams(store, settings, clock))
    finally:
        await store.close()


@pytest.fixture
async def client(data: Path, clock: Clock) -> AsyncIterator[Client]:
    async with serving(data, clock) as client:
        yield client


def store_of(client: Client) -> SqliteStore:
    store = client.streams.store
    assert isinstance(store, SqliteStore)
    return store


async def sweep(client: Client) -> None:
    await client.streams.sweep()


async def compact(client: Client) -> None:
    done = await store_of(client).compact()
    assert not done.failed


async def fill(client: Client, path: str, *bodies: bytes, clock: Clock, pause: int = 600) -> None:
    """An entry every ten minutes."""
    for body in bodies:
        await client.append(path, body)
        clock.pass_s(pause)


def query(data: Path, statement: str) -> list[Any]:
    db = sqlite3.connect(data / schema.FILE_NAME)
    try:
        return db.execute(statement).fetchall()
    finally:
        db.close()


def slots(data: Path) -> list[int]:
    return [n for (n,) in query(data, "SELECT n FROM entries ORDER BY n")]


def segments(data: Path) -> list[tuple[int, int]]:
    return query(data, "SELECT first, stop FROM segments ORDER BY first")


def files(data: Path) -> list[Path]:
    return [path for kind in ("bodies", "segments") for path in data.glob(f"{kind}/*/*")]


async def trimmed(client: Client, path: str, slot: int) -> tuple[int, int]:
    """The place that a reader of what retention has removed is told of."""
    with pytest.raises(OffsetTrimmed) as refused:
        await client.streams.view(path, slot)
    return place(refused.value.earliest)


NUMBERS = [b"%d" % number for number in range(10)]


async def test_entries_that_are_too_old_go_one_by_one(
    client: Client, data: Path, clock: Clock
) -> None:
    await client.create("a")
    await fill(client, "a", *NUMBERS, clock=clock)
    await sweep(client)
    assert slots(data) == [5, 6, 7, 8, 9]
    assert await client.read("a", BEGINNING) == b"56789"
    assert await client.read("a", 5) == b"56789"
    assert await trimmed(client, "a", 0) == (5, 5)
    assert await trimmed(client, "a", 4) == (5, 5)


async def test_of_segments_whole_ones_go(client: Client, data: Path, clock: Clock) -> None:
    await client.create("a")
    await fill(client, "a", *NUMBERS, clock=clock)
    await compact(client)
    assert segments(data) == [(0, 2), (2, 4), (4, 6), (6, 8)]
    await sweep(client)
    # Slot 4 is too old, slot 5 is not.
    assert segments(data) == [(4, 6), (6, 8)]
    assert slots(data) == [8, 9]
    assert await client.read("a", BEGINNING) == b"456789"
    assert await trimmed(client, "a", 3) == (4, 4)
    assert len(files(data)) == 4
    await compact(client)
    assert len(files(data)) == 2


async def test_as_many_bytes_stay_as_a_rule_says(data: Path, clock: Clock) -> None:
    async with serving(data, clock, retention="a=2KB; b=forever") as client:
        for path in "abc":
            await client.create(path)
            await client.append(path, *[b"x" * 512] * 10)
        await sweep(client)
        assert (await client.streams.view("a", BEGINNING)).start_size == 6 * 512
        for path in "bc":
            assert len(await client.read(path, 0)) == 5120


@pytest.mark.parametrize("compacts", [False, True])
async def test_appends_that_share_a_slot_go_together(
    client: Client, clock: Clock, compacts: bool
) -> None:
    kind = "application/json"
    await client.create("a", content_type=kind)
    for number in range(8):
        body = b"[%d,%d]" % (number, number)
        await client.together("a", body, b"%d" % number, LARGE_JSON, content_type=kind)
        clock.pass_s(600)
    # Three messages in one slot, and a large one in another.
    if compacts:
        await compact(client)
    await sweep(client)
    kept = await client.streams.view("a", BEGINNING)
    first = kept.start_offset()
    assert first % 4 == 0
    assert await trimmed(client, "a", 0) == (first // 2, first)
    assert kept.bodies[0] == b"%d,%d" % (first // 4, first // 4)
    for earlier in (first - 4, first - 1):
        with pytest.raises(OffsetTrimmed):
            await client.streams.read("a", Position(earlier // 2, earlier))
    rest = await client.streams.read("a", Position(first // 2, first + 2))
    assert (rest.bodies[0], rest.start_offset()) == (b"%d" % (first // 4), first + 2)
    await compact(client)
    assert (await client.streams.view("a", BEGINNING)).bodies == kept.bodies


async def test_the_last_entry_stays_and_the_stream_goes_on(
    client: Client, data: Path, clock: Clock
) -> None:
    await client.create("a")
    await client.append("a", *NUMBERS)
    await compact(client)
    clock.pass_s(100 * HOUR)
    await sweep(client)
    assert (slots(data), segments(data)) == ([9], [])
    assert await client.read("a", BEGINNING) == b"9"
    await client.append("a", b"ten")
    assert await client.read("a", BEGINNING) == b"9ten"


async def test_a_closed_stream_keeps_its_end(client: Client, data: Path, clock: Clock) -> None:
    await client.create("a")
    await client.append("a", b"one", b"two")
    await client.close("a")
    clock.pass_s(2 * HOUR)
    await sweep(client)
    assert slots(data) == [2]
    view = await client.streams.view("a", BEGINNING)
    assert (list(view.bodies), view.closed, place(view.next_offset)) == ([], True, (2, 6))


async def test_compaction_goes_on_where_retention_has_stopped(
    client: Client, data: Path, clock: Clock
) -> None:
    """Slots that never were in a segment are gone: the next one begins with what is left."""
    await client.create("a", content_type="application/json")
    for number in range(3):
        await client.append("a", b"[%d,%d]" % (number, number), content_type="application/json")
    clock.pass_s(2 * HOUR)
    await sweep(client)
    assert slots(data) == [2]
    for number in range(3, 7):
        await client.append("a", b"[%d,%d]" % (number, number), content_type="application/json")
    before = [await client.read("a", n) for n in range(2, 8)]
    await compact(client)
    assert segments(data) == [(2, 4), (4, 6)]
    assert [await client.read("a", n) for n in range(2, 8)] == before
    assert await trimmed(client, "a", 1) == (2, 4)


async def test_a_large_body_goes_with_its_entry(client: Client, data: Path, clock: Clock) -> None:
    await client.create("a")
    await client.append("a", LARGE, LARGE, b"small")
    assert len(files(data)) == 2
    clock.pass_s(2 * HOUR)
    await sweep(client)
    await store_of(client).maintenance.remove_replaced()
    assert files(data) == []


async def test_more_than_one_commit_removes_goes_all_the_same(
    client: Client, data: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "ERASE_ROWS", 3)
    await client.create("a")
    await client.append("a", *NUMBERS)
    clock.pass_s(2 * HOUR)
    await sweep(client)
    assert slots(data) == [9]


async def test_each_sweep_continues_with_the_next_streams(
    client: Client, data: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "PAGE", 2)
    for path in "abcde":
        await client.create(path)
        await client.append(path, b"one", b"two")
    clock.pass_s(2 * HOUR)
    for left in (8, 6, 5, 5):
        await sweep(client)
        assert len(slots(data)) == left
    await client.append("a", b"three")
    clock.pass_s(2 * HOUR)
    assert await store_of(client).maintenance.retain() == 1


async def test_slots_that_a_fork_needs_stay(client: Client, clock: Clock) -> None:
    await client.create("a")
    await client.append("a", *NUMBERS)
    await compact(client)
    await client.fork("b", "a", 5)
    await client.append("b", b"own")
    clock.pass_s(2 * HOUR)
    await sweep(client)
    assert await client.read("a", 0) == b"0123456789"
    assert await client.read("b", 0) == b"01234own"
    await client.streams.delete("a")
    await sweep(client)
    assert await client.read("b", 0) == b"01234own"
    with pytest.raises(StreamGone):
        await client.streams.view("a", BEGINNING)


async def test_retention_applies_again_once_the_fork_is_deleted(
    client: Client, clock: Clock
) -> None:
    await client.create("a")
    await client.append("a", b"one", b"two")
    await client.fork("b", "a", 1)
    clock.pass_s(2 * HOUR)
    await client.streams.delete("b")
    await sweep(client)
    assert await client.read("a", BEGINNING) == b"two"


async def test_a_fork_loses_what_it_inherits_with_the_first_slot_of_its_own(
    client: Client, clock: Clock
) -> None:
    await client.create("a")
    await client.append("a", b"a0", b"a1")
    await client.fork("b", "a")
    clock.pass_s(2 * HOUR)
    await client.append("b", b"b2")
    await sweep(client)
    assert await client.read("b", BEGINNING) == b"a0a1b2"
    clock.pass_s(2 * HOUR)
    await client.append("b", b"b3", b"b4")
    await sweep(client)
    # There is no hole for a reader to fall into.
    assert await client.read("b", BEGINNING) == b"b3b4"
    assert await trimmed(client, "b", 0) == (3, 6)
    assert await client.read("a", 0) == b"a0a1"


@pytest.mark.parametrize("again", [False, True])
async def test_a_fork_begins_where_its_source_does(data: Path, clock: Clock, again: bool) -> None:
    async with serving(data, clock) as client:
        await client.create("a")
        await fill(client, "a", *NUMBERS, clock=clock)
        await sweep(client)
        await client.fork("b", "a", 8)
        await client.append("b", b"own")
        await client.fork("c", "b", 7)
        await client.fork("d", "a", 5)
        with pytest.raises(OffsetTrimmed):
            await client.fork("e", "a", 4)
        with pytest.raises(OffsetTrimmed):
            await client.fork("e", "a", 0)
    async with serving(data, clock) as client:
        if again:
            await sweep(client)
        for path, content in {"a": b"56789", "b": b"567own", "c": b"56", "d": b""}.items():
            assert await client.read(path, BEGINNING) == content
            assert await trimmed(client, path, 0) == (5, 5)


async def test_a_fork_after_retention_gets_the_earliest_offset(
    client: Client, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention commits after the fork has looked at its source, and before it is there."""
    await client.create("a")
    await fill(client, "a", *NUMBERS, clock=clock)
    store, streams = store_of(client), client.streams
    looked = asyncio.Event()
    create = store.create

    async def late(*given: Any) -> Any:
        if not looked.is_set():
            looked.set()
            await sweep(client)
        return await create(*given)

    monkeypatch.setattr(store, "create", late)
    with pytest.raises(OffsetTrimmed):
        await client.fork("b", "a", 3)
    assert looked.is_set()
    assert await streams.list("", "", 10) != []
    assert await client.read("a", BEGINNING) == b"56789"


async def test_removed_slots_stay_removed_after_a_restart(data: Path, clock: Clock) -> None:
    async with serving(data, clock) as client:
        await client.create("a")
        await fill(client, "a", *NUMBERS, clock=clock)
        await compact(client)
        await sweep(client)
    async with serving(data, clock) as client:
        assert await client.read("a", BEGINNING) == b"456789"
        assert await trimmed(client, "a", 0) == (4, 4)
        await sweep(client)
        assert len(files(data)) == 2


async def test_a_segment_that_cannot_be_read_stops_nothing_else(
    client: Client, data: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    await client.create("a")
    await client.append("a", b"one", b"two", b"three")
    await compact(client)
    (file,) = files(data)
    file.write_bytes(b"x" * file.stat().st_size)
    await client.create("b")
    await client.append("b", b"one", b"two")
    store_of(client)._archive._reader._indexes._indexes.clear()
    clock.pass_s(2 * HOUR)
    await sweep(client)
    assert await client.read("b", BEGINNING) == b"two"
    assert segments(data) == [(0, 2)]
    assert "retention leaves 'a' as it is: segment" in caplog.text


async def test_over_http_removed_slots_are_410_and_minus_one_begins_at_the_rest(
    data: Path, clock: Clock
) -> None:
    settings = Settings(
        data=str(data), retention="**=1h", chunk_bytes=1024, sweep_interval=0, compact_interval=0,
        segment_max_messages=1, hot_bytes=0,
    )  # fmt: skip
    application = Application(settings, clock=clock)
    await application.start()
    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url="http://t/v1/stream") as http:
        client = Client(application.streams)
        await client.create("a")
        await fill(client, "a", *(b"%d" % number * 600 for number in range(10)), clock=clock)
        await compact(client)
        assert (await client.streams.view("a", 0)).cold
        kept = await http.get("/a")
        epoch = parse(kept.headers["stream-next-offset"]).epoch
        # Not as long as other history: it will not be there for long.
        assert kept.headers["cache-control"].startswith("public, max-age=60,")
        await sweep(client)
        for parameters in ({}, {"offset": "-1"}, {"offset": token(5, 3000)}):
            got = await http.get("/a", params=parameters)
            assert (got.status_code, got.text) == (200, "5" * 600)
            # Chunks end where they always did, whatever came before.
            assert place(got.headers["stream-next-offset"]) == (6, 3600)
            # The beginning moves on, so that no cache may answer for it.
            moves = parameters.get("offset") in (None, "-1")
            assert ("no-cache" in got.headers["cache-control"]) == moves
        for parameters in ({"offset": START}, {"offset": token(4, 2400), "live": "long-poll"}):
            got = await http.get("/a", params=parameters)
            assert got.status_code == 410
            assert got.json()["error"]["code"] == "OFFSET_TRIMMED"
            assert token(5, 3000, epoch) in got.json()["error"]["message"]
            assert got.headers["cache-control"] == "no-store"
        polled = await http.get("/a", params={"offset": "-1", "live": "long-poll"})
        assert polled.text.startswith("5")
        headers = {"stream-forked-from": "/v1/stream/a", "stream-fork-offset": START}
        assert (await http.put("/b", headers=headers)).status_code == 410
    await application.stop()


def test_the_compact_command_applies_retention(data: Path) -> None:
    async def made() -> None:
        async with serving(data, Clock(), retention="") as client:
            await client.create("a")
            await client.append("a", LARGE, *NUMBERS)

    asyncio.run(made())
    env = {"TAILRACE_SEGMENT_MAX_MESSAGES": "2", "TAILRACE_RETENTION": "**=1h"}
    run = CliRunner(env=env).invoke(main, ["compact", "--data", str(data)], catch_exceptions=False)
    assert run.stderr == "removed 10 entries that TAILRACE_RETENTION does not keep\n"
    assert run.stdout == "nothing to move\n"
    assert (slots(data), files(data)) == ([10], [])
