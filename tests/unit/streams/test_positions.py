"""Tokens of clients: which of them are stale, and which only look so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.errors import ForkOutOfRange, OffsetTrimmed, StaleOffset
from tailrace.log.create import Create, ForkFrom
from tailrace.log.offsets import BEGINNING, NOW, START, Position, parse, parse_position, token
from tailrace.streams import Created, View
from tests.support.streams import Client, Clock, serving


async def read(client: Client, path: str, text: str) -> View:
    return await client.streams.read(path, parse_position(text))


async def replaced(client: Client, path: str, *bodies: bytes) -> Created:
    """Delete a stream and create another at its path, of another epoch.

    One of 9,000 has the same epoch."""
    old = (await client.streams.find(path)).stream.config.epoch
    while True:
        await client.streams.delete(path)
        created = await client.create(path)
        if created.stream.config.epoch != old:
            break
    for body in bodies:
        await client.append(path, body)
    return created


async def test_an_offset_of_an_earlier_stream_is_stale(client: Client) -> None:
    created = await client.create("a")
    offsets = [created.next_offset]
    offsets += [(await client.append("a", body)).next_offset for body in (b"1", b"2", b"3")]
    await replaced(client, "a", b"ein", b"zwei")
    # Before the end of the new stream, at it, and beyond.
    for offset in offsets:
        with pytest.raises(StaleOffset, match="earlier stream"):
            await read(client, "a", offset)


async def test_an_offset_of_an_earlier_stream_is_stale_where_retention_has_been(
    data: Path, clock: Clock
) -> None:
    async with serving(data, clock, retention="**=1h") as streams:
        client = Client(streams)
        created = await client.create("a", b"old")
        current = await replaced(client, "a", b"one", b"two")
        clock.pass_s(7200)
        await streams.sweep()
        with pytest.raises(OffsetTrimmed):
            await read(client, "a", current.next_offset)
        with pytest.raises(StaleOffset):
            await read(client, "a", token(0, 0, created.stream.config.epoch))
        assert (await read(client, "a", "-1")).bodies == [b"two"]


async def test_a_slot_beyond_the_end_is_stale(client: Client) -> None:
    created = await client.create("a", b"one")
    epoch = created.stream.config.epoch
    for slot in (2, 3, 10**12 - 1):
        for position in (Position(slot, 3, epoch), Position(slot, 3)):
            with pytest.raises(StaleOffset, match="beyond the end"):
                await client.streams.read("a", position)
    await client.append("a", b"two")
    assert (await client.streams.read("a", Position(2, 6, epoch))).up_to_date


async def test_an_offset_of_a_database_that_was_restored_is_stale(data: Path, clock: Clock) -> None:
    """The stream is the same, but has lost its end: what a reader has of it is of another time."""
    async with serving(data, clock) as streams:
        await Client(streams).create("a", b"one")
    backup = (data / "tailrace.db").read_bytes()
    async with serving(data, clock) as streams:
        lost = await Client(streams).append("a", b"two", b"three")
    (data / "tailrace.db").write_bytes(backup)
    async with serving(data, clock) as streams:
        with pytest.raises(StaleOffset):
            await read(Client(streams), "a", lost.next_offset)


@pytest.mark.parametrize("text", ["-1", "now", START, token(1, 3), token(2, 6), token(2, 7)])
async def test_an_offset_that_names_no_stream_is_never_of_an_earlier_one(
    client: Client, text: str
) -> None:
    await client.create("a", b"old")
    await replaced(client, "a", b"one", b"two")
    slot = parse_position(text).slot
    first = {BEGINNING: 0, NOW: 2}.get(slot, slot)
    assert b"".join((await read(client, "a", text)).bodies) == b"onetwo"[3 * first :]


async def test_no_offset_of_a_closed_stream_is_stale(client: Client) -> None:
    created = await client.create("a")
    offsets = [created.next_offset, (await client.append("a", b"one")).next_offset]
    offsets.append((await client.close("a")).next_offset)
    for offset, rest in zip(offsets, [b"one", b"", b""], strict=True):
        view = await read(client, "a", offset)
        assert (b"".join(view.bodies), view.closed) == (rest, True)
        assert view.next_offset == offsets[-1]


@pytest.mark.parametrize("end", [0, 2, 5])
async def test_offsets_of_a_source_are_those_of_its_forks(client: Client, end: int) -> None:
    """Stale are those that lie beyond the end of the fork."""
    bodies = [b"1", b"2", b"3", b"4"]
    offsets = [(await client.create("source")).next_offset]
    offsets += [(await client.append("source", body)).next_offset for body in bodies]
    await client.fork("fork", "source", 2)
    for _ in range(end):
        await client.append("fork", b"x")
    own = [*bodies[:2], *[b"x"] * end]
    for slot, offset in enumerate(offsets):
        if slot > len(own):
            with pytest.raises(StaleOffset):
                await read(client, "fork", offset)
        else:
            assert list((await read(client, "fork", offset)).bodies) == own[slot:]


async def test_a_fork_has_the_epoch_of_its_source(client: Client) -> None:
    source = await client.create("source", b"1")
    fork = await client.fork("fork", "source")
    leaf = await client.fork("leaf", "fork")
    assert {parse(each.next_offset).epoch for each in (source, fork, leaf)} == {
        source.stream.config.epoch
    }


async def test_a_stream_is_forked_at_an_offset_of_its_own(client: Client) -> None:
    old = await client.create("source", b"1")
    new = await replaced(client, "source", b"one", b"two")
    for slot, epoch in ((0, 0), (1, new.stream.config.epoch)):
        request = Create(fork=ForkFrom("source", slot, epoch=epoch))
        assert (await client.streams.create(f"fork {slot}", request)).new
    stale = Create(fork=ForkFrom("source", 1, epoch=old.stream.config.epoch))
    with pytest.raises(ForkOutOfRange, match="another stream"):
        await client.streams.create("fork", stale)
    assert await client.status("fork") == "missing"
