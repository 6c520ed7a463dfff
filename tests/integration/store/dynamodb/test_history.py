"""History of the DynamoDB store: what was archived and let go is read as if it had stayed."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from tailrace.errors import OffsetTrimmed
from tailrace.log.append import Append
from tailrace.log.content import join_bodies
from tailrace.log.create import Create, ForkFrom
from tailrace.segments.reader import Manifest
from tailrace.store.dynamodb.layout import manifest_of
from tests.integration.store.dynamodb.conftest import Process, Start
from tests.support import archiving
from tests.support.archiving import Most
from tests.support.streams import Clock

SMALL = Most(3)


async def compact(process: Process, path: str, most: Most = SMALL) -> list[Manifest]:
    """All the segments that the stream fills by now."""
    bucket, stream = process.backend.bucket, (await process.streams.find(path)).stream
    assert bucket is not None
    made = []
    while manifest := await archiving.archive(
        process.store._table, bucket, stream, most, process.clock()
    ):
        made.append(manifest)
    return made


async def let_go(process: Process, path: str) -> int:
    """How many slots leave the table when their time has come."""
    clock, grace = cast("Clock", process.clock), process.settings.trim_grace
    clock.pass_s(grace)
    return await archiving.trim(process.store._table, path, clock(), grace)


async def everything(process: Process, path: str) -> list[bytes]:
    """The chunk that a client gets from every slot, and where it goes on from there."""
    tail = await process.streams.find(path)
    seen = []
    for n in range(tail.committed.tail + 1):
        view = await process.streams.view(path, n)
        body = join_bodies(tail.stream.config.mode, view.bodies)
        seen.append(b"%d %d %b %b" % (n, view.end, view.next_offset.encode(), body))
    return seen


@pytest.fixture
async def process(start: Start) -> Process:
    return await start(Clock(), chunk_bytes=1024, inline_bytes=1024)


@pytest.mark.parametrize("kind", ["application/json", "image/png"])
async def test_every_read_is_the_same_after_compaction_and_trimming(
    process: Process, start: Start, kind: str
) -> None:
    await process.streams.create("a", Create(content_type=kind))
    for i in range(20):
        # Some of them large enough for objects of their own, some more than a chunk.
        body = b'"%b"' % (b"%d" % (i % 10) * (3, 200, 1500)[i % 3])
        await process.streams.append("a", Append(body, kind))
    before = await everything(process, "a")
    made = await compact(process, "a")
    assert [(each.first, each.stop) for each in made] == [(n, n + 3) for n in range(0, 18, 3)]
    assert await everything(process, "a") == before
    assert await let_go(process, "a") == 18
    assert [item["s"]["S"] for item in await process.items("C")] == [f"{18:016d}", f"{19:016d}"]
    assert await everything(process, "a") == before
    stranger = await start(process.clock, chunk_bytes=1024)
    assert await everything(stranger, "a") == before


async def test_a_stream_goes_on_across_the_seam(process: Process) -> None:
    await process.streams.create("a", Create(content_type="application/json"))
    for round_ in range(4):
        for i in range(5):
            await process.streams.append("a", Append(b"1%d%d" % (round_, i), "application/json"))
        await compact(process, "a")
        await let_go(process, "a")
    await process.streams.append("a", Append(b"", close=True))
    view = await process.streams.view("a", 0)
    bodies = [b"1%d%d" % (round_, i) for round_ in range(4) for i in range(5)]
    assert list(view.bodies) == bodies
    assert view.closed


async def test_every_offset_and_time_is_found_on_both_sides_of_the_seam(process: Process) -> None:
    clock = cast("Clock", process.clock)
    await process.streams.create("a", Create(content_type="application/json"))
    begun = clock()
    for _ in range(10):
        clock.pass_s(1)
        await process.streams.append("a", Append(b"[1,2,3]", "application/json"))
    await compact(process, "a")
    await let_go(process, "a")
    await process.streams.create("f", Create(fork=ForkFrom("a", 5)))
    for path, stop in (("a", 10), ("f", 5)):
        tail = await process.streams.find(path)
        for offset in range(3 * stop + 1):
            assert await process.streams.slot_after(tail, offset) == offset // 3
        for n in range(stop):
            assert await process.streams.slot_since(tail, begun + 1000 * (n + 1)) == n


async def test_the_last_entry_stays_however_often_one_asks(process: Process) -> None:
    await process.streams.create("a", Create(b"x", "text/plain"))
    for _ in range(2):
        assert await compact(process, "a", Most(1)) == []
    await process.streams.append("a", Append(b"y", "text/plain"))
    (made,) = await compact(process, "a", Most(1))
    assert (made.first, made.stop) == (0, 1)
    assert await let_go(process, "a") == 1
    await process.streams.append("a", Append(b"z", "text/plain"))
    assert list((await process.streams.view("a", 0)).bodies) == [b"x", b"y", b"z"]


async def test_two_concurrent_compactions_make_one_row_of_segments(
    process: Process, start: Start
) -> None:
    other = await start(process.clock)
    await process.streams.create("a", Create(content_type="text/plain"))
    for i in range(10):
        await process.streams.append("a", Append(b"%d" % i, "text/plain"))
    before = await everything(process, "a")
    await asyncio.gather(compact(process, "a"), compact(other, "a"))
    made = [manifest_of(item) for item in await process.items("S")]
    assert [(each.first, each.stop) for each in made] == [(0, 3), (3, 6), (6, 9)]
    assert await everything(process, "a") == before


async def test_a_fork_reads_through_the_segments_of_its_source(process: Process) -> None:
    await process.streams.create("a", Create(content_type="text/plain"))
    for i in range(10):
        await process.streams.append("a", Append(b"%d-" % i, "text/plain"))
    await process.streams.create("b", Create(fork=ForkFrom("a", 5)))
    await process.streams.append("b", Append(b"own", "text/plain"))
    before = await everything(process, "b")
    await compact(process, "a")
    await let_go(process, "a")
    assert await everything(process, "b") == before
    await process.streams.create("c", Create(fork=ForkFrom("a", 4, 1)))
    assert b"".join((await process.streams.view("c", 0)).bodies) == b"0-1-2-3-4"


async def test_a_slot_without_its_segment_is_reported_as_trimmed(process: Process) -> None:
    await process.streams.create("a", Create(content_type="text/plain"))
    for i in range(7):
        await process.streams.append("a", Append(b"%d" % i, "text/plain"))
    await compact(process, "a")
    await let_go(process, "a")
    for item in await process.items("S"):
        await process.store._table.delete({"p": item["p"], "s": item["s"]})
    assert process.store._segments is not None
    process.store._segments._used.clear()
    with pytest.raises(OffsetTrimmed):
        await process.streams.view("a", 0)
    assert list((await process.streams.view("a", 6)).bodies) == [b"6"]


async def test_segments_go_with_their_stream(process: Process) -> None:
    await process.streams.create("a", Create(content_type="text/plain"))
    for i in range(7):
        await process.streams.append("a", Append(b"%d" % i, "text/plain"))
    assert len(await compact(process, "a")) == 2
    await process.streams.delete("a")
    cast("Clock", process.clock).pass_s(process.settings.trim_grace + 1)
    await process.streams.sweep()
    assert await process.items() == []


async def test_a_cold_read_is_one_range_once_its_index_is_known(
    process: Process, start: Start
) -> None:
    await process.streams.create("a", Create(content_type="text/plain"))
    for i in range(20):
        await process.streams.append("a", Append(b"%d" % i * 100, "text/plain"))
    await compact(process, "a", Most(9))
    await let_go(process, "a")
    reader = await start(process.clock)
    bucket = reader.backend.bucket
    assert bucket is not None
    get, ranges = bucket.get, list[int]()

    async def counted(key: str, begin: int = 0, end: int | None = None) -> bytes:
        data = await get(key, begin, end)
        ranges.append(len(data))
        return data

    bucket.get = counted  # type: ignore[method-assign]
    await reader.streams.view("a", 10)
    # The name, the slot that is no longer there, the manifest; then the index and the data.
    assert reader.spent()[0] == {"GetItem": 1, "Query": 2}
    assert len(ranges) == 2
    await reader.streams.view("a", 11)
    assert reader.spent()[0] == {"GetItem": 1, "Query": 1}
    # Whole blocks are read: here all data of the segment.
    assert ranges[2:] == [1700]
