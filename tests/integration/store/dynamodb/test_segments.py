"""Segments in the table: committed once, without a hole or an overlap, and merged unnoticed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from tailrace.limits import MERGE_SEGMENTS, TAIL_CACHE_SECONDS
from tailrace.log.append import Append
from tailrace.log.create import Create, ForkFrom
from tailrace.log.state import Producer, Stream
from tailrace.segments.format import BadSegment, unpack
from tailrace.segments.merge import Grid
from tailrace.segments.reader import Manifest
from tailrace.store.dynamodb import segments
from tailrace.store.dynamodb.bodies import Bucket
from tailrace.store.dynamodb.layout import manifest_of
from tailrace.store.dynamodb.table import Table
from tests.integration.store.dynamodb.conftest import Process, Start
from tests.integration.store.dynamodb.test_history import compact, everything, let_go
from tests.integration.store.dynamodb.test_store import objects
from tests.support import archiving
from tests.support.archiving import Most, Uploaded
from tests.support.streams import Clock

TEXT = Create(content_type="text/plain")
BOTH = Grid(1 << 40, 6)
"""Two segments of three slots are one."""


@pytest.fixture
async def process(start: Start) -> Process:
    return await start(Clock(), chunk_bytes=1024, inline_bytes=1024)


def parts(process: Process) -> tuple[Table, Bucket]:
    bucket = process.backend.bucket
    assert bucket is not None
    return process.store._table, bucket


async def fill(process: Process, count: int, path: str = "a") -> Stream:
    """A stream with so many entries more."""
    await process.streams.create(path, TEXT)
    for i in range(count):
        await process.streams.append(path, Append(b"%d," % i * (1, 40)[i % 2], "text/plain"))
    return (await process.streams.find(path)).stream


async def upload(process: Process, stream: Stream, most: int = 3) -> Uploaded:
    uploaded = await archiving.upload(*parts(process), stream, Most(most), process.clock())
    assert uploaded is not None
    return uploaded


async def merge(process: Process, stream: Stream, grid: Grid = BOTH) -> list[Manifest]:
    due = process.clock() + process.settings.trim_grace * 1000
    return [*await archiving.merge(*parts(process), stream.id, grid, due)]


async def row(process: Process) -> list[tuple[int, int]]:
    """The slots of each segment in the table."""
    made = [manifest_of(item) for item in await process.items("S")]
    return [(each.first, each.stop) for each in made]


async def archived(process: Process, path: str = "a") -> int:
    name = await archiving.name_of(process.store._table, path)
    assert name is not None
    return name.archived


# Committing


async def test_details_say_what_is_in_segments(process: Process) -> None:
    await fill(process, 8)
    one, two = await compact(process, "a")
    tail, stored, hot_bytes = await process.streams.details("a", 1)
    assert (stored.hot_from, stored.cold_bytes) == (6, two.size)
    assert [(each.first, each.stop) for each in stored.segments] == [(two.first, two.stop)]
    assert hot_bytes == tail.committed.size - two.size
    _, both, _ = await process.streams.details("a", 10)
    assert [each.bytes for each in both.segments] == [two.data_bytes, one.data_bytes]


async def test_a_segment_comes_with_the_name_that_says_how_far_history_goes(
    process: Process,
) -> None:
    stream = await fill(process, 8)
    assert await archived(process) == 0
    one, two = await compact(process, "a")
    assert await archived(process) == 6
    assert [manifest_of(item) for item in await process.items("S")] == [one, two]
    assert (one.level, one.begin, one.offset, one.size) == (0, 0, 84, 84)
    assert (two.level, two.begin, two.offset, two.size) == (0, 84, 246, 246)
    assert one.committed_at == process.clock()
    assert one.key.startswith(f"segments/{stream.id:016x}/{0:016d}-")


@pytest.mark.parametrize("most", [2, 3, 5])
async def test_of_two_rivals_one_commits(process: Process, start: Start, most: int) -> None:
    stream = await fill(process, 8)
    before = await everything(process, "a")
    other = await start(process.clock)
    mine, others = await upload(process, stream), await upload(other, stream, most)
    table = process.store._table
    assert await segments.check(table, stream, *mine) == 0
    assert await segments.check(table, stream, *others) == 0
    done = await asyncio.gather(
        segments.commit(table, stream, mine.manifest),
        segments.commit(other.store._table, stream, others.manifest),
    )
    assert sorted(done) == [False, True]
    winner = (mine if done[0] else others).manifest
    assert [manifest_of(item) for item in await process.items("S")] == [winner]
    assert await archived(process) == winner.stop
    assert await segments.check(table, stream, *mine) == winner.stop
    await compact(process, "a", Most(1))
    await let_go(process, "a")
    assert await everything(process, "a") == before


async def test_a_commit_of_which_only_the_answer_was_lost_is_done(process: Process) -> None:
    stream = await fill(process, 8)
    uploaded = await upload(process, stream)
    for _ in range(2):
        assert await segments.commit(process.store._table, stream, uploaded.manifest)
    assert await row(process) == [(0, 3)]
    assert await archived(process) == 3


@pytest.mark.parametrize("late", [0, 1])
async def test_a_commit_based_on_segments_before_a_merge_adds_no_overlap(
    process: Process, late: int
) -> None:
    """Where a merge has taken a manifest away its key is free again; the name is not."""
    stream = await fill(process, 8)
    stale = []
    for _ in range(2):
        stale.append(await upload(process, stream))
        assert await archiving.commit(process.store._table, stream, await upload(process, stream))
    (merged,) = await merge(process, stream)
    assert await segments.check(process.store._table, stream, *stale[late]) == (6, 3)[late]
    assert not await segments.commit(process.store._table, stream, stale[late].manifest)
    assert await row(process) == [(0, 6)]
    assert [item["object_key"]["S"] for item in await process.items("S")] == [merged.key]
    assert await archived(process) == 6


@pytest.mark.parametrize(
    "wrong",
    [
        lambda up: up._replace(offset=up.offset + 1),
        lambda up: up._replace(manifest=up.manifest._replace(begin=up.manifest.begin + 1)),
    ],
    ids=["offset", "size"],
)
@pytest.mark.parametrize("before", [0, 1])
async def test_a_segment_that_does_not_add_up_is_refused(
    process: Process, wrong: Callable[[Uploaded], Uploaded], before: int
) -> None:
    stream = await fill(process, 8)
    for _ in range(before):
        assert await archiving.commit(process.store._table, stream, await upload(process, stream))
    uploaded = wrong(await upload(process, stream))
    with pytest.raises(BadSegment, match=f"slot {3 * before} .* but the last segment ends at"):
        await segments.check(process.store._table, stream, *uploaded)


async def test_a_segment_that_comes_too_early_is_not_the_next(process: Process) -> None:
    stream = await fill(process, 8)
    uploaded = await upload(process, stream)
    later = uploaded.manifest._replace(first=4, stop=7)
    assert await segments.check(process.store._table, stream, later, 0) == -4
    assert not await segments.commit(process.store._table, stream, later)
    assert await process.items("S") == []


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "created again"])
async def test_a_deleted_stream_gets_no_segment(process: Process, again: bool) -> None:
    stream = await fill(process, 8)
    uploaded = await upload(process, stream)
    await process.streams.delete("a")
    if again:
        await process.streams.create("a", TEXT)
    assert not await archiving.commit(process.store._table, stream, uploaded)
    assert await process.items("S") == []
    assert not again or await archived(process) == 0


@pytest.mark.parametrize("sub_offset", [0, 1])
async def test_a_fork_has_segments_of_its_own_from_where_it_begins(
    process: Process, sub_offset: int
) -> None:
    source = await fill(process, 8)
    await process.streams.create("f", Create(fork=ForkFrom("a", 5, sub_offset)))
    for i in range(7):
        await process.streams.append("f", Append(b"own %d" % i, "text/plain"))
    before = await everything(process, "f")
    assert await archived(process, "f") == 5
    one, two = await compact(process, "f")
    assert (one.first, one.stop, two.first, two.stop) == (5, 8, 8, 11)
    # What the fork inherits is in its source's chain, and so are its sizes.
    assert one.begin == 1 + 1 + 1 + 3 * 1 + 80 + 80
    assert await archived(process, "f") == 11
    assert await archived(process, "a") == 0
    assert await let_go(process, "f") == 6
    assert await everything(process, "f") == before
    await compact(process, "a")
    await let_go(process, "a")
    assert await everything(process, "f") == before
    (merged,) = await merge(process, (await process.streams.find("f")).stream, Grid(1 << 40, 11))
    assert (merged.first, merged.stop, merged.begin) == (5, 11, one.begin)
    assert await everything(process, "f") == before
    assert source.id != merged.chain


async def test_slots_that_only_forks_need_are_archived_too(process: Process) -> None:
    stream = await fill(process, 8)
    await process.streams.create("f", Create(b"own", fork=ForkFrom("a", 7)))
    before = await everything(process, "f")
    await process.streams.delete("a")
    made = [
        await archiving.archive(*parts(process), stream, Most(3), process.clock()) for _ in range(2)
    ]
    assert all(made)
    assert await row(process) == [(0, 3), (3, 6)]
    assert await let_go(process, "a") == 6
    assert await everything(process, "f") == before
    left = [int(item["s"]["S"]) for item in await process.items("C")]
    assert sorted(left) == [6, 7, 7, 8], "the tombstone and what is not archived; the fork's own"
    await process.streams.delete("f")
    cast("Clock", process.clock).pass_s(process.settings.trim_grace)
    await process.streams.sweep()
    assert await process.items() == []
    assert await objects(process) == []


async def test_a_segment_says_which_producer_wrote_what(process: Process) -> None:
    till = [Producer("till", 2, seq) for seq in range(2)]
    authors = [None, till[0], Producer("shop", 0, 0), till[1], None, None]
    await process.streams.create("a", TEXT)
    for by in authors:
        await process.streams.append("a", Append(b"x", "text/plain", producer=by))
    _, bucket = parts(process)
    one, two = await compact(process, "a", Most(2))
    (merged,) = await merge(process, (await process.streams.find("a")).stream, Grid(4, 1 << 40))
    found = [[*unpack(await bucket.get(each.key)).producers()] for each in (one, two, merged)]
    assert found == [authors[:2], authors[2:4], authors[:4]]


# Merging


async def test_readers_go_on_while_segments_are_merged(process: Process, start: Start) -> None:
    clock = cast("Clock", process.clock)
    stream = await fill(process, 8)
    before = await everything(process, "a")
    old = await compact(process, "a")
    await let_go(process, "a")
    reader = await start(clock, chunk_bytes=1024)
    asked = gets(reader)
    assert await everything(reader, "a") == before
    seen = await reader.streams.view("a", 4)
    (merged,) = await merge(process, stream)
    asked.clear()
    assert (await reader.streams.view("a", 4)).bodies == seen.bodies
    assert set(asked) == {old[-1].key}, "what it remembers is still there"
    clock.pass_s(TAIL_CACHE_SECONDS)
    asked.clear()
    assert (await reader.streams.view("a", 4)).bodies == seen.bodies
    assert set(asked) == {merged.key}
    assert await everything(reader, "a") == before
    clock.pass_s(process.settings.trim_grace)
    await process.streams.sweep()
    assert await objects(process) == [merged.key]
    assert await everything(reader, "a") == before


def gets(process: Process) -> list[str]:
    """The keys of objects that are read from now on."""
    _, bucket = parts(process)
    get, keys = bucket.get, list[str]()

    async def noted(key: str, begin: int = 0, end: int | None = None) -> bytes:
        keys.append(key)
        return await get(key, begin, end)

    bucket.get = noted  # type: ignore[method-assign]
    return keys


async def test_replaced_objects_go_when_they_are_due(process: Process) -> None:
    clock, grace = cast("Clock", process.clock), process.settings.trim_grace
    stream = await fill(process, 8)
    one, two = await compact(process, "a")
    (merged,) = await merge(process, stream)
    assert (merged.first, merged.stop, merged.level) == (0, 6, 1)
    assert (merged.begin, merged.offset, merged.size) == (one.begin, two.offset, two.size)
    assert [manifest_of(item) for item in await process.items("S")] == [merged]
    clock.pass_s(grace - 1)
    await process.streams.sweep()
    assert sorted(await objects(process)) == sorted([one.key, two.key, merged.key])
    clock.pass_s(1)
    await process.streams.sweep()
    assert await objects(process) == [merged.key]
    assert await process.items("B") == []


async def test_one_of_two_concurrent_merges_succeeds(process: Process) -> None:
    stream = await fill(process, 8)
    before = await everything(process, "a")
    olds = await compact(process, "a")
    await let_go(process, "a")
    table, bucket = parts(process)
    mine, others = [await archiving.upload_merged(bucket, olds) for _ in range(2)]
    done = await asyncio.gather(
        segments.replace(table, olds, mine, process.clock()),
        segments.replace(table, olds, others, process.clock()),
    )
    assert sorted(done) == [False, True]
    winner = mine if done[0] else others
    assert [manifest_of(item) for item in await process.items("S")] == [winner]
    assert await segments.replace(table, olds, winner, process.clock()), "its answer was lost"
    assert {item["s"]["S"] for item in await process.items("B")} == {old.key for old in olds}
    await process.streams.sweep()
    cast("Clock", process.clock).pass_s(TAIL_CACHE_SECONDS)
    assert await everything(process, "a") == before
    assert await merge(process, stream) == []


async def test_of_two_merges_that_share_a_segment_one_is_done_as_a_whole(
    process: Process,
) -> None:
    await fill(process, 11)
    one, two, three = await compact(process, "a")
    table, bucket = parts(process)
    first = await archiving.upload_merged(bucket, [one, two])
    second = await archiving.upload_merged(bucket, [two, three])
    assert await segments.replace(table, [one, two], first, process.clock())
    assert not await segments.replace(table, [two, three], second, process.clock())
    third = await archiving.upload_merged(bucket, [one, two, three])
    assert not await segments.replace(table, [one, two, three], third, process.clock())
    assert await row(process) == [(0, 6), (6, 9)]
    claims = {item["s"]["S"] for item in await process.items("B")}
    assert claims == {one.key, two.key}


async def test_a_crash_between_upload_and_commit_changes_nothing(process: Process) -> None:
    stream = await fill(process, 8)
    before = await everything(process, "a")
    await upload(process, stream)
    assert await everything(process, "a") == before
    olds = await compact(process, "a")
    await let_go(process, "a")
    await archiving.upload_merged(parts(process)[1], olds)
    assert await everything(process, "a") == before
    assert await row(process) == [(0, 3), (3, 6)]
    assert len(await merge(process, stream)) == 1
    cast("Clock", process.clock).pass_s(process.settings.trim_grace)
    await process.streams.sweep()
    assert await everything(process, "a") == before


async def test_segments_of_a_growing_stream_are_merged_level_by_level(process: Process) -> None:
    stream = await fill(process, 0)
    grid = Grid(1 << 40, 3 * MERGE_SEGMENTS + 6)
    seen = []
    for i in range(grid.slots + 2):
        await process.streams.append("a", Append(b"%d," % i, "text/plain"))
        await archiving.archive(*parts(process), stream, Most(2), process.clock(), grid)
        while await merge(process, stream, grid):
            pass
        seen.append(await row(process))
    eight = 2 * MERGE_SEGMENTS
    assert [(0, eight)] in seen
    assert [(0, eight), *((n, n + 2) for n in range(eight, grid.slots - 2, 2))] in seen
    assert seen[-1] == [(0, grid.slots)], "a full cell is one segment"
    await let_go(process, "a")
    content = b"".join((await process.streams.view("a", 0)).bodies)
    assert content == b"".join(b"%d," % i for i in range(grid.slots + 2))


async def test_as_many_as_one_transaction_takes_are_merged_at_once(process: Process) -> None:
    stream = await fill(process, 52)
    before = await everything(process, "a")
    assert len(await compact(process, "a", Most(1))) == 51
    whole = Grid(1 << 40, 51)
    assert [each.stop for each in await merge(process, stream, whole)] == [50]
    assert [each.stop for each in await merge(process, stream, whole)] == [51]
    await let_go(process, "a")
    assert await everything(process, "a") == before
