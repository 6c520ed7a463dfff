"""Retention in the table: what a rule lets go of, in steps of which any may be the last."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import httpx
import pytest

from tailrace.app import Application
from tailrace.errors import DamagedData, OffsetTrimmed, StreamGone
from tailrace.log.append import Append
from tailrace.log.create import Create, ForkFrom
from tailrace.log.offsets import BEGINNING, START, parse, token
from tailrace.log.retention import Keep
from tailrace.segments.format import BadSegment, Record, seal, unpack
from tailrace.store.dynamodb import layout, retention, segments
from tailrace.store.dynamodb.layout import Name
from tailrace.store.dynamodb.retention import Plan, Removed
from tests.integration.store.dynamodb.conftest import Process, Start
from tests.support import archiving
from tests.support.archiving import Most
from tests.support.streams import Clock

DAY = 86_400
LARGE = b"x" * 2_000
KEEP = Keep(2 * DAY * 1000, None)


@pytest.fixture
async def process(start: Start) -> Process:
    return await start(Clock(), chunk_bytes=1024, inline_bytes=1024)


def clock_of(process: Process) -> Clock:
    return cast("Clock", process.clock)


async def fill(process: Process, path: str, *bodies: bytes, pause: float = DAY / 4) -> None:
    """A stream with four entries a day; now is just after the last of them."""
    await process.streams.create(path, Create(content_type="text/plain"))
    for body in bodies:
        clock_of(process).pass_s(pause)
        await process.streams.append(path, Append(body, "text/plain"))


async def compact(process: Process, path: str, entries: int) -> None:
    bucket, stream = process.backend.bucket, (await process.streams.find(path)).stream
    assert bucket is not None
    table = process.store._table
    while await archiving.archive(table, bucket, stream, Most(entries), process.clock()):
        pass


async def trim(process: Process, path: str) -> None:
    clock_of(process).pass_s(process.settings.trim_grace)
    await archiving.trim(process.store._table, path, process.clock(), process.settings.trim_grace)


async def name_of(process: Process, path: str) -> Name:
    name = await archiving.name_of(process.store._table, path)
    assert name is not None
    return name


async def plan(process: Process, path: str, keep: Keep = KEEP) -> Plan | None:
    bucket = process.backend.bucket
    assert bucket is not None
    return await retention.plan(
        process.store._table, bucket, await name_of(process, path), keep, process.clock(),
        process.settings.trim_grace,
    )  # fmt: skip


async def retain(process: Process, path: str, keep: Keep = KEEP) -> Removed | None:
    found = await plan(process, path, keep)
    if found is None:
        return None
    due = process.clock() + process.settings.trim_grace * 1000
    return await retention.carry_out(process.store._table, found, due)


async def hot(process: Process) -> list[int]:
    return [int(item["s"]["S"]) for item in await process.items("C")]


async def cold(process: Process) -> list[tuple[int, int]]:
    found = [layout.manifest_of(item) for item in await process.items("S")]
    return [(each.first, each.stop) for each in found]


async def read(process: Process, path: str, position: int = BEGINNING) -> bytes:
    bodies: list[bytes] = []
    while True:
        view = await process.streams.view(path, position)
        bodies += view.bodies
        if view.up_to_date:
            return b"".join(bodies)
        position = view.end


@contextmanager
def trimmed_before(slot: int, offset: int) -> Iterator[None]:
    """The error says where the stream begins."""
    with pytest.raises(OffsetTrimmed) as caught:
        yield
    assert parse(caught.value.earliest)[:2] == (slot, offset)


async def assert_begins(process: Process, path: str, slot: int, offset: int) -> None:
    """Every slot before is gone, and -1 is this one."""
    for n in range(slot):
        with trimmed_before(slot, offset):
            await process.streams.view(path, n)
    assert (await process.streams.view(path, BEGINNING)).start_offset() == offset


NUMBERS = [b"%d" % number for number in range(20)]
TEXT = b"".join(NUMBERS)


# What goes


async def test_whole_segments_go_and_then_single_slots(process: Process, start: Start) -> None:
    await fill(process, "a", *NUMBERS)
    await compact(process, "a", 3)
    assert (await cold(process))[-1] == (15, 18)
    stranger = await start(process.clock, chunk_bytes=1024)
    assert await read(stranger, "a") == TEXT
    # Two days are eight slots: 0 to 11 are too old, 12 to 14 are in one segment.
    done = await retain(process, "a")
    assert done == Removed(items=12 + 4, objects=4, bytes=14)
    assert await cold(process) == [(12, 15), (15, 18)]
    assert await hot(process) == list(range(12, 20))
    name = await name_of(process, "a")
    assert (name.earliest, name.archived, name.trimmed) == (12, 18, 12)
    for each in (process, stranger):
        await assert_begins(each, "a", 12, 14)
        assert await read(each, "a") == TEXT[14:]


async def test_a_segment_of_which_one_slot_is_to_stay_stays_whole(process: Process) -> None:
    await fill(process, "a", *NUMBERS)
    await compact(process, "a", 13)
    assert await plan(process, "a") is None
    clock_of(process).pass_s(DAY / 4)
    assert await retain(process, "a") == Removed(items=13 + 1, objects=1, bytes=16)
    await assert_begins(process, "a", 13, 16)


async def test_slots_that_are_in_no_segment_go_one_by_one(process: Process) -> None:
    await fill(process, "a", *NUMBERS)
    # The length of the first of them is not looked at.
    assert await retain(process, "a") == Removed(items=12, objects=0, bytes=13)
    assert await hot(process) == list(range(12, 20))
    await assert_begins(process, "a", 12, 14)
    name = await name_of(process, "a")
    assert (name.earliest, name.archived, name.trimmed) == (12, 12, 12)
    assert await plan(process, "a") is None


async def test_a_segments_time_is_that_of_its_entries_not_that_of_its_making(
    process: Process,
) -> None:
    await fill(process, "a", *NUMBERS)
    clock_of(process).pass_s(DAY)
    await compact(process, "a", 8)
    found = await plan(process, "a")
    assert found is not None
    assert [(each.first, each.stop) for each in found.segments] == [(0, 8), (8, 16)]


async def test_bytes_are_counted_from_the_end(process: Process) -> None:
    await fill(process, "a", *[b"x" * 100] * 20)
    await compact(process, "a", 3)
    clock_of(process).pass_s(DAY)
    found = await plan(process, "a", Keep(None, 1000))
    assert found is not None
    assert found.first == 9
    assert await plan(process, "a", Keep(None, 2000)) is None


async def test_the_last_entry_stays_and_the_stream_goes_on(process: Process, start: Start) -> None:
    await fill(process, "a", *NUMBERS)
    await compact(process, "a", 3)
    clock_of(process).pass_s(100 * DAY)
    await retain(process, "a")
    assert (await cold(process), await hot(process)) == ([], [19])
    assert await read(process, "a") == b"19"
    other = await start(process.clock)
    for each in (process, other):
        await each.streams.append("a", Append(b"-more", "text/plain"))
    assert await read(process, "a") == b"19-more-more"


async def test_a_closed_stream_keeps_its_end(process: Process) -> None:
    await fill(process, "a", b"one", b"two")
    await process.streams.append("a", Append(b"", close=True))
    clock_of(process).pass_s(100 * DAY)
    await retain(process, "a")
    assert await hot(process) == [2]
    view = await process.streams.view("a", BEGINNING)
    assert (list(view.bodies), view.closed) == ([], True)
    assert (view.end, view.offset) == (2, 6)


async def test_nothing_that_is_younger_than_the_grace_period_goes(process: Process) -> None:
    """A writer might still believe that its slot is empty: then it must not be."""
    await fill(process, "a", *NUMBERS)
    brief = Keep(1, 1)
    # A day's grace is four slots.
    await retain(process, "a", brief)
    assert await hot(process) == [16, 17, 18, 19]
    await compact(process, "a", 1)
    assert await retain(process, "a", brief) is None
    clock_of(process).pass_s(DAY / 4)
    await retain(process, "a", brief)
    assert await hot(process) == [17, 18, 19]


async def test_objects_go_a_grace_period_later(process: Process) -> None:
    await fill(process, "a", LARGE, LARGE, b"small", LARGE, b"last")
    await compact(process, "a", 2)
    clock_of(process).pass_s(100 * DAY)
    bucket: Any = process.backend.bucket
    keys = [item["k"]["S"] for item in await process.items("C") if "k" in item]
    keys += [item["object_key"]["S"] for item in await process.items("S")]
    assert await retain(process, "a") == Removed(items=4 + 2, objects=3 + 2, bytes=6005)
    await process.streams.sweep()
    for key in keys:
        assert await bucket.get(key)
    clock_of(process).pass_s(process.settings.trim_grace)
    await process.streams.sweep()
    assert await process.items("B") == []
    for key in keys:
        with pytest.raises(DamagedData, match="is missing"):
            await bucket.get(key)


# What stays


async def test_a_stream_with_forks_is_left_alone_as_is_one_that_is_kept_for_them(
    process: Process,
) -> None:
    await fill(process, "a", *NUMBERS)
    await compact(process, "a", 3)
    await process.streams.create("b", Create(fork=ForkFrom("a", 15)))
    clock_of(process).pass_s(100 * DAY)
    before = await process.items()
    assert await plan(process, "a") is None
    await process.streams.delete("a")
    deleted = await process.items()
    assert len(deleted) == len(before) + 1
    assert await plan(process, "a") is None
    assert await read(process, "b") == b"".join(NUMBERS[:15])
    await process.streams.create("c", Create(fork=ForkFrom("b", 3)))
    await process.streams.delete("b")
    # Soft-deleted now, it still counts.
    assert (await name_of(process, "a")).forked == 1
    assert await plan(process, "a") is None
    assert await read(process, "c") == b"012"
    with pytest.raises(StreamGone):
        await process.streams.view("a", BEGINNING)


async def test_a_fork_that_is_faster_stops_retention(process: Process) -> None:
    await fill(process, "a", *NUMBERS)
    found = await plan(process, "a")
    assert found is not None
    await process.streams.create("b", Create(fork=ForkFrom("a", 3)))
    before = await process.items()
    assert await retention.carry_out(process.store._table, found, 0) is None
    assert await process.items() == before
    assert await read(process, "b") == b"012"


async def test_a_fork_that_loses_to_retention_gets_the_earliest_offset(
    process: Process, start: Start
) -> None:
    other = await start(process.clock)
    await fill(process, "a", *NUMBERS)
    assert await read(other, "a") == TEXT
    create = other.store.create
    late = True

    async def after_retention(*given: Any) -> Any:
        nonlocal late
        if late:
            late = False
            await retain(process, "a")
        return await create(*given)

    other.store.create = after_retention  # type: ignore[method-assign,assignment]
    with trimmed_before(12, 14):
        await other.streams.create("b", Create(fork=ForkFrom("a", 3)))
    assert not late
    assert await process.items("E") == []


async def test_a_deleted_stream_stops_retention(process: Process) -> None:
    await fill(process, "a", *NUMBERS)
    found = await plan(process, "a")
    assert found is not None
    await process.streams.delete("a")
    await process.streams.create("a", Create(content_type="text/plain"))
    before = await process.items()
    assert await retention.carry_out(process.store._table, found, 0) is None
    assert await process.items() == before


async def test_a_fork_begins_where_its_source_does(process: Process) -> None:
    await fill(process, "a", *NUMBERS)
    await retain(process, "a")
    for path, source, slot in (("b", "a", 15), ("c", "b", 14), ("d", "a", 12)):
        await process.streams.create(path, Create(fork=ForkFrom(source, slot)))
    await process.streams.append("b", Append(b"own", "text/plain"))
    for path, content in {"b": b"121314own", "c": b"1213", "d": b""}.items():
        assert await read(process, path) == content
        await assert_begins(process, path, 12, 14)
    for slot in (0, 11):
        with trimmed_before(12, 14):
            await process.streams.create("e", Create(fork=ForkFrom("a", slot)))


async def test_a_fork_loses_what_it_inherits_with_the_first_slot_of_its_own(
    process: Process,
) -> None:
    await fill(process, "a", b"a0", b"a1")
    await process.streams.create("b", Create(fork=ForkFrom("a", 2)))
    clock_of(process).pass_s(10 * DAY)
    for body in (b"b2", b"b3"):
        await process.streams.append("b", Append(body, "text/plain"))
    assert await plan(process, "b") is None
    assert await read(process, "b") == b"a0a1b2b3"
    clock_of(process).pass_s(10 * DAY)
    await retain(process, "b")
    await assert_begins(process, "b", 3, 6)
    assert await read(process, "b") == b"b3"
    assert await read(process, "a", 0) == b"a0a1"


# Killed anywhere, run again


class Killed(Exception):
    pass


class Mortal:
    """A caller that dies after some writes."""

    def __init__(self, caller: Any, writes: int) -> None:
        self._caller = caller
        self.left = writes

    async def call(self, operation: str, request: Any) -> dict[str, Any]:
        if operation not in ("GetItem", "Query"):
            if not self.left:
                raise Killed
            self.left -= 1
        answer: dict[str, Any] = await self._caller.call(operation, request)
        return answer

    async def close(self) -> None:
        await self._caller.close()


async def test_a_run_completes_what_an_interrupted_one_began(
    process: Process, start: Start
) -> None:
    await fill(process, "a", *NUMBERS[:6], LARGE, *NUMBERS[7:])
    await compact(process, "a", 3)
    table = process.store._table
    client, writes = table._client, 0
    while True:
        mortal = Mortal(client, writes)
        table._client = mortal
        try:
            await retain(process, "a")
            break
        except Killed:
            writes += 1
        finally:
            table._client = client
        # Nothing is in the middle: what can be read has no hole, and says where it begins.
        reader = await start(process.clock, chunk_bytes=1024)
        view = await reader.streams.view("a", BEGINNING)
        assert view.bodies[0] == (NUMBERS[12] if writes > 1 else NUMBERS[0])
        assert (await read(reader, "a")).endswith(b"".join(NUMBERS[12:]))
        # As far as a run came is kept: it is the next write that is the last one now.
        writes = 1
    assert await cold(process) == [(12, 15), (15, 18)]
    assert await hot(process) == list(range(12, 20))
    name = await name_of(process, "a")
    assert (name.earliest, name.archived, name.trimmed) == (12, 18, 12)
    assert await plan(process, "a") is None


async def test_two_runs_at_once_do_as_much_as_one(process: Process, start: Start) -> None:
    other = await start(process.clock)
    await fill(process, "a", *NUMBERS)
    await compact(process, "a", 3)
    await asyncio.gather(retain(process, "a"), retain(other, "a"))
    assert await cold(process) == [(12, 15), (15, 18)]
    assert await hot(process) == list(range(12, 20))
    await assert_begins(process, "a", 12, 14)


async def test_a_segment_that_was_merged_meanwhile_stays(process: Process) -> None:
    await fill(process, "a", *NUMBERS)
    await compact(process, "a", 6)
    clock_of(process).pass_s(DAY / 4)
    found = await plan(process, "a")
    assert found is not None
    assert found.first == 12
    table, bucket = process.store._table, process.backend.bucket
    assert bucket is not None
    olds = await segments.all_segments(table, found.name.stream.id)
    merged = await archiving.upload_merged(bucket, olds[1:])
    assert await segments.replace(table, olds[1:], merged, process.clock())
    await retention.carry_out(table, found, process.clock())
    assert await cold(process) == [(6, 18)]
    await assert_begins(process, "a", 12, 14)
    assert await read(process, "a") == b"".join(NUMBERS[12:])
    assert await plan(process, "a") is None
    clock_of(process).pass_s(10 * DAY)
    await retain(process, "a")
    assert await cold(process) == []


# Compaction goes on


async def archive_next(process: Process, path: str, first: int, entries: Sequence[bytes]) -> int:
    """Commit the segment of some entries as compaction would; what `check` says of it."""
    stream = (await process.streams.find(path)).stream
    items = [layout.entry_of(item) for item in await process.items("C")]
    kept = {entry.slot: entry for entry in items if entry.slot >= first}
    before = kept[first]
    start = before.offset - before.length, before.size - before.length
    records = [
        Record(n, kept[n].offset, kept[n].size, int(kept[n].item["a"]["N"]), body)
        for n, body in enumerate(entries, first)
    ]
    segment = seal(stream.id, stream.config.mode, start, records)
    bucket, table = process.backend.bucket, process.store._table
    assert bucket is not None
    manifest = await segments.upload(bucket, unpack(segment), process.clock())
    ahead = await segments.check(table, stream, manifest, start[0])
    if ahead == 0:
        assert await segments.commit(table, stream, manifest)
    return ahead


async def test_compaction_goes_on_after_slots_went_that_were_in_no_segment(
    process: Process,
) -> None:
    await fill(process, "a", *NUMBERS)
    await compact(process, "a", 5)
    clock_of(process).pass_s(2 * DAY - DAY / 2)
    await retain(process, "a")
    # 15 to 17 went, and only they were in no segment.
    assert (await cold(process), await hot(process)) == ([], [18, 19])
    for body in (b"20", b"21"):
        await process.streams.append("a", Append(body, "text/plain"))
    before = await read(process, "a")
    assert await archive_next(process, "a", 19, [b"19", b"20"]) == -1
    assert await archive_next(process, "a", 18, [b"18", b"19"]) == 0
    assert (await name_of(process, "a")).archived == 20
    await compact(process, "a", 1)
    await trim(process, "a")
    assert (await cold(process), await hot(process)) == ([(18, 20), (20, 21)], [21])
    assert await read(process, "a") == before
    await assert_begins(process, "a", 18, 26)


async def test_a_segment_of_slots_that_just_went_is_too_late(process: Process) -> None:
    await fill(process, "a", *NUMBERS)
    stream = (await process.streams.find("a")).stream
    table, bucket = process.store._table, process.backend.bucket
    assert bucket is not None
    late = await archiving.upload(table, bucket, stream, Most(6), process.clock())
    assert late is not None
    assert (late.manifest.first, late.manifest.stop) == (0, 6)
    later = late.manifest._replace(first=6, stop=14, begin=6)
    await retain(process, "a")
    assert not await segments.commit(table, stream, late.manifest)
    assert await segments.check(table, stream, later, 6) == 6
    with pytest.raises(BadSegment):
        await segments.check(table, stream, late.manifest, 1)
    assert await cold(process) == []


async def test_slots_that_are_archived_meanwhile_do_not_go(process: Process) -> None:
    await fill(process, "a", *NUMBERS)
    found = await plan(process, "a")
    assert found is not None
    await compact(process, "a", 15)
    assert await retention.carry_out(process.store._table, found, 0) is None
    assert await read(process, "a") == TEXT
    assert await hot(process) == list(range(20))


# What it costs


async def test_the_calls_of_retention(process: Process) -> None:
    await fill(process, "a", *NUMBERS)
    await compact(process, "a", 3)
    process.spent()
    found = await plan(process, "a", Keep(100 * DAY * 1000, None))
    assert found is None
    # The name, for this test; the segments; the last entry.
    assert process.spent()[0] == {"GetItem": 1, "Query": 2}
    found = await plan(process, "a")
    assert found is not None
    process.spent()
    assert await retention.carry_out(process.store._table, found, process.clock())
    # Name twice; each of four segments with a claim; slots counted, read, and removed.
    assert process.spent()[0] == Counter(
        UpdateItem=2, TransactWriteItems=4, Query=2, BatchWriteItem=6
    )
    assert await plan(process, "a") is None


# Over HTTP


async def test_over_http_removed_slots_are_410_and_minus_one_begins_at_the_rest(
    process: Process,
) -> None:
    await fill(process, "a", *[b"%d" % (number % 10) * 600 for number in range(20)])
    await compact(process, "a", 3)
    await trim(process, "a")
    application = Application(process.settings, process.store, process.clock)
    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url="http://t/v1/stream") as http:
        assert (await http.get("/a")).text == "0" * 600 + "1" * 600
        epoch = (await process.streams.find("a")).stream.config.epoch
        earliest = token(15, 9000, epoch)
        await retain(process, "a")
        # The same process remembers the segment of slot 0, but that is not to be seen.
        for parameters in ({}, {"offset": "-1"}, {"offset": earliest}):
            got = await http.get("/a", params=parameters)
            assert (got.status_code, got.text) == (200, "5" * 600)
            assert got.headers["stream-next-offset"] == token(16, 9600, epoch)
        for offset in (START, token(14, 8400, epoch)):
            got = await http.get("/a", params={"offset": offset})
            assert got.status_code == 410
            assert got.json()["error"]["code"] == "OFFSET_TRIMMED"
            assert earliest in got.json()["error"]["message"]
