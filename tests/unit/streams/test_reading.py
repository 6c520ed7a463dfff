from __future__ import annotations

import asyncio
import contextlib
import itertools
import sqlite3
import time
from pathlib import Path

import pytest

from tailrace.errors import OffsetTrimmed, StreamNotFound
from tailrace.log.offsets import NOW, Position, parse, token
from tailrace.store.sqlite import schema
from tests.support.streams import Client, Clock, begun, ended, place, serving


async def test_an_empty_stream_has_a_real_offset(client: Client) -> None:
    await client.create("a")
    (view,) = await client.views("a")
    assert parse(view.next_offset) == Position(0, 0, view.tail.stream.config.epoch)
    assert view.up_to_date
    assert not view.closed
    assert not view.bodies


async def test_from_the_start_and_from_every_slot(client: Client) -> None:
    await client.create("a")
    await client.append("a", b"one ", b"two ", b"three")
    for n, rest in enumerate([b"one two three", b"two three", b"three", b""]):
        (view,) = await client.views("a", n)
        assert b"".join(view.bodies) == rest
        assert view.end == 3
        assert place(view.next_offset) == (3, 13)
        assert view.up_to_date


@pytest.mark.parametrize("position", [NOW, 3, 4, 9999999999999999])
async def test_at_the_tail_and_beyond_there_is_nothing(client: Client, position: int) -> None:
    await client.create("a")
    await client.append("a", b"one ", b"two ", b"three")
    view = await client.streams.view("a", position)
    assert not view.bodies
    assert view.up_to_date
    assert view.end == 3
    assert place(view.next_offset) == (3, 13)


async def test_the_end_is_announced_with_the_last_data(data: Path, clock: Clock) -> None:
    async with serving(data, clock, chunk_bytes=4) as streams:
        client = Client(streams)
        await client.create("a")
        await client.append("a", b"aaaa", b"bbbb", b"cccc")
        await client.close("a")
        views = await client.views("a")
        assert [view.bodies for view in views] == [[b"aaaa"], [b"bbbb"], [b"cccc"]]
        assert [view.closed for view in views] == [False, False, True]
        assert [view.up_to_date for view in views] == [False, False, True]
        (rest,) = await client.views("a", 3)
        assert rest.closed


async def test_closing_does_not_move_the_offset(client: Client) -> None:
    await client.create("a", b"x")
    before = (await client.views("a"))[-1]
    await client.close("a")
    after = (await client.views("a"))[-1]
    assert after.next_offset == before.next_offset
    assert (before.closed, after.closed) == (False, True)


async def test_chunks_follow_each_other_without_gap_or_overlap(data: Path, clock: Clock) -> None:
    async with serving(data, clock, chunk_bytes=10) as streams:
        client = Client(streams)
        await client.create("a")
        bodies = [b"%d" % n * (n % 7 + 1) for n in range(40)]
        await client.append("a", *bodies)
        for n in range(41):
            views = await client.views("a", n)
            assert [body for view in views for body in view.bodies] == bodies[n:]
            for before, after in itertools.pairwise(views):
                assert after.start_size == before.size
                assert sum(map(len, before.bodies)) <= 10 + 14


async def test_a_json_offset_counts_messages(client: Client) -> None:
    await client.create("a", b"[1,2]", "application/json")
    await client.append("a", b"[[3]]", content_type="application/json")
    (view,) = await client.views("a")
    assert place(view.next_offset) == (2, 3)


async def test_a_missing_stream(client: Client) -> None:
    with pytest.raises(StreamNotFound):
        await client.streams.access("a")


@pytest.mark.parametrize(
    ("content_type", "bodies", "offsets"),
    [
        ("text/plain", [b"one ", b"two ", b"three"], [0, 4, 8, 13]),
        ("application/json", [b"[1,2]", b"[[3],4]", b"5"], [0, 2, 4, 5]),
    ],
    ids=["text", "json"],
)
@pytest.mark.parametrize("kept", [1, 2, 3])
async def test_a_read_of_removed_entries_names_the_earliest_offset(
    data: Path,
    clock: Clock,
    content_type: str,
    bodies: list[bytes],
    offsets: list[int],
    kept: int,
) -> None:
    async with serving(data, clock, hot_bytes=0) as streams:
        client = Client(streams)
        await client.create("a", content_type=content_type)
        await client.append("a", *bodies, content_type=content_type)
        await streams.store.sweep()
        # Nothing in the embedded store trims a live stream yet.
        with contextlib.closing(sqlite3.connect(data / schema.FILE_NAME)) as db, db:
            db.execute("DELETE FROM entries WHERE n < ?", (kept,))
        with pytest.raises(OffsetTrimmed) as raised:
            await streams.view("a", 0)
        assert place(raised.value.earliest) == (kept, offsets[kept])
        assert (await streams.view("a", kept)).up_to_date


# Live


async def test_a_live_read_waits_for_data(client: Client) -> None:
    await client.create("a", b"one ")
    tail = await client.streams.access("a")
    reading = await begun(client.streams.follow(tail, 1, 10_000))
    await client.append("a", b"two ")
    view = await ended(reading)
    assert b"".join(view.bodies) == b"two "
    assert place(view.next_offset) == (2, 8)


async def test_a_live_read_of_what_is_there_does_not_wait(client: Client) -> None:
    await client.create("a", b"one ")
    tail = await client.streams.access("a")
    view = await asyncio.wait_for(client.streams.follow(tail, 0, 10_000), 120)
    assert b"".join(view.bodies) == b"one "


async def test_a_live_read_ends_with_the_stream(client: Client) -> None:
    await client.create("a", b"one ")
    tail = await client.streams.access("a")
    reading = await begun(client.streams.follow(tail, 1, 10_000))
    await client.close("a")
    view = await ended(reading)
    assert view.closed
    assert not view.bodies


async def test_the_last_data_and_the_end_come_together(client: Client) -> None:
    await client.create("a", b"one ")
    tail = await client.streams.access("a")
    reading = await begun(client.streams.follow(tail, 1, 10_000))
    await client.append("a", b"last", close=True)
    view = await ended(reading)
    assert b"".join(view.bodies) == b"last"
    assert view.closed


async def test_a_live_read_gives_up_after_its_time(client: Client) -> None:
    await client.create("a", b"one ")
    tail = await client.streams.access("a")
    begin = time.monotonic()
    view = await client.streams.follow(tail, 1, 0.1)
    assert time.monotonic() - begin > 0.09
    assert view.up_to_date
    assert not view.bodies
    assert place(view.next_offset) == (1, 4)


async def test_a_reader_that_follows_gets_everything_once_and_in_order(client: Client) -> None:
    await client.create("a")

    async def follow() -> list[bytes]:
        seen: list[bytes] = []
        tail = await client.streams.access("a")
        view = await client.streams.view("a", 0)
        while not view.closed:
            view = await client.streams.follow(tail, view.end, 30)
            seen += view.bodies
        return seen

    readers = [asyncio.ensure_future(follow()) for _ in range(5)]
    for n in range(50):
        await client.append("a", b"%d" % n)
        if n % 7 == 0:
            await asyncio.sleep(0)
    await client.close("a")
    for reading in readers:
        assert b"".join(await ended(reading)) == b"".join(b"%d" % n for n in range(50))


async def test_a_live_read_waits_although_memory_forgot_the_stream(
    data: Path, clock: Clock
) -> None:
    """A reader may be busy with its last answer while other streams take its stream's place."""
    async with serving(data, clock, open_streams=2) as streams:
        client = Client(streams)
        await client.create("a", b"one ")
        tail = await streams.access("a")
        for path in "bcd":
            await client.create(path)
        reading = await begun(streams.follow(tail, 1, 10_000), 0.1)
        await client.append("a", b"two")
        assert (await ended(reading)).bodies == [b"two"]


# A server that stops


async def test_a_draining_server_lets_its_readers_go(client: Client) -> None:
    await client.create("a", b"one ")
    tail = await client.streams.access("a")
    reading = await begun(client.streams.follow(tail, 1, 10_000))
    client.streams.drain()
    assert (await ended(reading)).up_to_date
    view = await asyncio.wait_for(client.streams.follow(tail, 1, 10_000), 120)
    assert view.up_to_date
    assert await client.read("a") == b"one "


# Lists


async def test_a_list_has_streams_and_where_they_end(client: Client) -> None:
    await client.create("b/2", b"xx")
    await client.create("b/1", b"[1,2,3]", "application/json")
    await client.create("c", b"x", closed=True)
    listed = await client.streams.list("b/", "", 10)
    assert [(each.stream.path, each.state.next_offset(0)) for each in listed] == [
        ("b/1", token(1, 3)),
        ("b/2", token(1, 2)),
    ]
    (last,) = await client.streams.list("", "b/2", 10)
    assert last.state.closed
