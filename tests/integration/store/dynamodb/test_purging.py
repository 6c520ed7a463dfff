"""Tombstones have caches purged of the streams that these may serve for long."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tailrace.limits import EXPIRED_SECONDS
from tailrace.log.append import Append
from tailrace.log.content import Mode
from tailrace.log.create import Create, ForkFrom
from tailrace.protocols.action_cable.api_gateway.items import cursor_item
from tailrace.store.dynamodb import layout
from tests.integration.store.dynamodb.conftest import Process, Start
from tests.support import archiving
from tests.support.archiving import Most
from tests.support.streams import Clock

CHUNK = 1024


class Case(NamedTuple):
    size: int
    closed: bool = False
    ttl: int | None = None
    expires_at: int | None = None
    archived: bool = False


async def deleted(process: Process, case: Case) -> list[bool]:
    """Create a stream and delete it; returns the mark of each tombstone."""
    streams = process.streams
    create = Create(content_type="text/plain", ttl=case.ttl, expires_at=case.expires_at)
    await streams.create("a", create)
    for _ in range(3):
        await streams.append("a", Append(b"x" * (case.size // 3), "text/plain"))
    if case.closed:
        await streams.append("a", Append(b"", close=True))
    if case.archived:
        bucket = process.backend.bucket
        assert bucket is not None
        stream = (await streams.find("a")).stream
        assert await archiving.archive(process.store.table, bucket, stream, Most(2), 1)
    await streams.delete("a")
    items = await process.items("C")
    states = ((item, layout.entry_of(item).state) for item in items)
    return [layout.is_purge(item) for item, state in states if state.deleted]


@pytest.mark.parametrize(
    "case",
    [
        Case(CHUNK + 3),
        Case(30, closed=True),
        Case(30, archived=True),
        Case(30, ttl=60, archived=True),
    ],
    ids=["a whole chunk", "closed", "archived", "expires, archived"],
)
async def test_a_stream_that_was_cached_for_long_is_purged(start: Start, case: Case) -> None:
    assert await deleted(await start(Clock(), chunk_bytes=CHUNK), case) == [True]


@pytest.mark.parametrize(
    "case",
    [
        Case(30),
        Case(30, closed=True, ttl=60),
        Case(CHUNK + 3, ttl=60),
        Case(CHUNK + 3, closed=True, expires_at=1 << 45),
    ],
    ids=["only a tail", "closed, expires", "a whole chunk, expires", "expires at a time"],
)
async def test_other_streams_are_not(start: Start, case: Case) -> None:
    assert await deleted(await start(Clock(), chunk_bytes=CHUNK), case) == [False]


async def test_streams_that_expire_are_not(start: Start) -> None:
    clock = Clock()
    process = await start(clock)
    for number in range(5):
        create = Create(b"data", "text/plain", closed=True, ttl=60)
        await process.streams.create(f"s/{number}", create)
    clock.pass_s(100)
    await process.streams.sweep()
    items = await process.items("C")
    marks = [layout.is_purge(item) for item in items if layout.entry_of(item).state.deleted]
    assert marks == [False] * 5


async def test_a_stream_that_expired_long_ago_is_removed_as_a_whole(start: Start) -> None:
    clock = Clock()
    process = await start(clock)
    await process.streams.create("a", Create(b"data", "text/plain", ttl=60))
    await process.streams.append("a", Append(b"x" * 400_000, "text/plain"))
    clock.pass_s(100 + EXPIRED_SECONDS)
    await process.streams.sweep()
    left = {item["p"]["S"][0] for item in await process.items()}
    assert left <= {"B"}, "nothing but the removal of the large body, which is due later"


async def test_subscribers_are_told_of_what_expired_long_ago(start: Start) -> None:
    clock = Clock()
    process = await start(clock)
    await process.streams.create("a", Create(b"data", "text/plain", ttl=60))
    chain = (await process.streams.find("a")).stream.id
    cursor = cursor_item(chain, "a", Mode.BYTES, 1)
    table = process.settings.table
    await process.backend.client.call("PutItem", {"TableName": table, "Item": cursor})
    clock.pass_s(100 + EXPIRED_SECONDS)
    await process.streams.sweep()
    states = [layout.entry_of(item).state for item in await process.items("C")]
    assert any(state.deleted for state in states)


async def test_a_source_that_expired_long_ago_stays_for_its_forks(start: Start) -> None:
    clock = Clock()
    process = await start(clock)
    await process.streams.create("a", Create(b"data", "text/plain", ttl=60))
    fork = Create(fork=ForkFrom("a"), ttl=1_000_000)
    await process.streams.create("f", fork)
    clock.pass_s(100 + EXPIRED_SECONDS)
    await process.streams.sweep()
    assert (await process.streams.view("f", 0)).bodies == [b"data"]
    names = {item["s"]["S"] for item in await process.items("N")}
    assert names == {"a", "f"}
    await process.streams.delete("f")
    clock.pass_s(2 * process.settings.trim_grace)
    for _ in range(2):
        await process.streams.sweep()
        clock.pass_s(2 * process.settings.trim_grace)
    assert await process.items() == []
