"""Slots leave the table: after the grace period, never the last one, and nobody misses them."""

from __future__ import annotations

import asyncio
import random
from typing import Any, cast

import pytest

from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.log.offsets import parse
from tailrace.log.state import Stream
from tailrace.segments.merge import Grid
from tailrace.store.dynamodb import layout, segments, trimming
from tailrace.store.dynamodb.layout import slot_key
from tailrace.streams import Appended
from tests.integration.store.dynamodb.conftest import Process, Start
from tests.integration.store.dynamodb.test_history import compact, everything
from tests.integration.store.dynamodb.test_store import objects
from tests.support import archiving
from tests.support.archiving import Most
from tests.support.streams import Clock

GRACE = 86_400


@pytest.fixture
async def process(start: Start) -> Process:
    return await start(Clock(), chunk_bytes=1024, inline_bytes=1024, trim_grace=GRACE)


async def fill(process: Process, count: int, size: int = 2) -> Stream:
    """A stream with so many entries."""
    await process.streams.create("a", Create(content_type="image/png"))
    for i in range(count):
        await process.streams.append("a", Append(random.Random(i).randbytes(size), "image/png"))
    return (await process.streams.find("a")).stream


async def trim(process: Process) -> int:
    return await archiving.trim(process.store._table, "a", process.clock(), GRACE)


async def let_go_up_to(process: Process) -> int:
    name = await archiving.name_of(process.store._table, "a")
    assert name is not None
    return name.trimmed


async def slots(process: Process) -> list[int]:
    return sorted(int(item["s"]["S"]) for item in await process.items("C"))


def pass_s(process: Process, seconds: float) -> None:
    cast("Clock", process.clock).pass_s(seconds)


async def test_slots_go_a_grace_period_after_they_were_archived(process: Process) -> None:
    await fill(process, 8)
    assert await trim(process) == 0, "nothing is archived"
    await compact(process, "a", Most(3))
    pass_s(process, GRACE - 1)
    assert await trim(process) == 0
    assert await slots(process) == [*range(8)]
    pass_s(process, 1)
    assert await trim(process) == 6
    assert await slots(process) == [6, 7]
    assert await let_go_up_to(process) == 6


async def test_of_segments_that_came_one_after_the_other_only_the_old_ones_count(
    process: Process,
) -> None:
    await fill(process, 8)
    await compact(process, "a", Most(3))
    pass_s(process, GRACE / 2)
    await process.streams.append("a", Append(b"more", "image/png"))
    await process.streams.append("a", Append(b"and more", "image/png"))
    assert len(await compact(process, "a", Most(3))) == 1
    pass_s(process, GRACE / 2)
    assert await trim(process) == 6
    assert await let_go_up_to(process) == 6
    pass_s(process, GRACE / 2)
    assert await trim(process) == 3
    assert await slots(process) == [9]


async def test_of_ten_appends_in_a_slot_one_item_is_removed_and_each_is_read_on_from(
    process: Process,
) -> None:
    streams = process.streams
    await streams.create("a", Create(content_type="image/png"))
    appended: list[Appended] = []
    bodies = [b"<%d>" % number for number in range(31)]
    for begin in range(0, len(bodies), 10):
        requests = (Append(body, "image/png") for body in bodies[begin : begin + 10])
        appended += await asyncio.gather(*(streams.append("a", each) for each in requests))
    await compact(process, "a", Most(3))
    pass_s(process, GRACE)
    process.spent()
    assert await trim(process) == 3
    _, written, _ = process.spent()
    assert written == 3 + 1, "a tenth of a unit for each append, and one for the name"
    for following, each in enumerate(appended, 1):
        view = await streams.read("a", parse(each.next_offset))
        assert list(view.bodies) == bodies[following:]


async def test_the_last_entry_stays_even_if_it_was_archived(process: Process) -> None:
    """No compaction takes it, but trimming does not rely on that."""
    stream = await fill(process, 4)
    table, bucket = process.store._table, process.backend.bucket
    assert bucket is not None
    uploaded = await archiving.upload(table, bucket, stream, Most(3), process.clock())
    assert uploaded is not None
    assert await segments.commit(table, stream, uploaded.manifest._replace(stop=4))
    pass_s(process, GRACE)
    assert await trim(process) == 3
    assert await slots(process) == [3]
    assert await let_go_up_to(process) == 3
    assert await trim(process) == 0
    accepted = await process.streams.append("a", Append(b"x", "image/png"))
    assert accepted.slot == 5


async def test_a_merge_does_not_put_off_what_may_go(process: Process) -> None:
    stream = await fill(process, 8)
    await compact(process, "a", Most(3))
    pass_s(process, GRACE - 1)
    bucket = process.backend.bucket
    assert bucket is not None
    grid, due = Grid(1 << 40, 6), process.clock() + GRACE * 1000
    assert await archiving.merge(process.store._table, bucket, stream.id, grid, due)
    pass_s(process, 1)
    assert await trim(process) == 6


async def test_a_pointer_only_goes_up_and_only_for_its_stream(process: Process) -> None:
    await fill(process, 3)
    table = process.store._table
    name = await archiving.name_of(table, "a")
    assert name is not None
    for slot, noted in ((5, 5), (9, 9), (7, 9), (9, 9)):
        await trimming.advance_pointer(table, name, layout.TRIMMED, slot)
        assert await let_go_up_to(process) == noted
    await process.streams.delete("a")
    await trimming.advance_pointer(table, name, layout.TRIMMED, 10)
    assert await process.items("N") == []
    await fill(process, 1)
    await trimming.advance_pointer(table, name, layout.TRIMMED, 10)
    assert await let_go_up_to(process) == 0


async def test_a_repeated_trim_writes_nothing(process: Process) -> None:
    await fill(process, 8)
    await compact(process, "a", Most(3))
    pass_s(process, GRACE)
    assert await trim(process) == 6
    process.spent()
    for _ in range(2):
        assert await trim(process) == 0
        calls, written, _ = process.spent()
        assert written == 0
        assert set(calls) == {"GetItem", "Query"}


async def test_a_trim_that_was_cut_off_is_finished_by_the_next(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(process, 30)
    before = await everything(process, "a")
    await compact(process, "a", Most(10))
    pass_s(process, GRACE)

    async def crash(*_: Any) -> None:
        raise ConnectionError

    with monkeypatch.context() as patch:
        patch.setattr(trimming, "advance_pointer", crash)
        with pytest.raises(ConnectionError):
            await trim(process)
    assert await slots(process) == [*range(20, 30)]
    assert await let_go_up_to(process) == 0
    assert await everything(process, "a") == before
    assert await trim(process) == 0, "nothing was left to remove"
    assert await let_go_up_to(process) == 20


async def test_while_slots_go_in_any_order_every_chunk_is_the_same(process: Process) -> None:
    """Deletes are batched and sent side by side: some may be done when the job dies."""
    stream = await fill(process, 14, size=100)
    before = await everything(process, "a")
    await compact(process, "a", Most(4))
    for n in (0, 3, 5, 9, 11):
        await process.store._table.delete(slot_key(stream.id, n))
        assert await everything(process, "a") == before


async def test_objects_of_large_bodies_go_a_grace_period_after_their_slots(
    process: Process, start: Start
) -> None:
    await fill(process, 5, size=2000)
    before = await everything(process, "a")
    bodies = {item["k"]["S"] for item in await process.items("C")}
    (segment,) = await compact(process, "a", Most(4))
    pass_s(process, GRACE)
    reader = await start(process.clock, chunk_bytes=1024)
    bucket = reader.backend.bucket
    assert bucket is not None
    get, go, asked = bucket.get, asyncio.Event(), asyncio.Event()

    async def dawdle(key: str, begin: int = 0, end: int | None = None) -> bytes:
        asked.set()
        await go.wait()
        return await get(key, begin, end)

    bucket.get = dawdle  # type: ignore[method-assign]
    reading = asyncio.create_task(everything(reader, "a"))
    await asked.wait()
    assert await trim(process) == 4
    pass_s(process, GRACE - 1)
    await process.streams.sweep()
    assert set(await objects(process)) == bodies | {segment.key}
    go.set()
    assert await reading == before, "it had seen the entry, and found its object"
    pass_s(process, 1)
    await process.streams.sweep()
    (last,) = [item["k"]["S"] for item in await process.items("C")]
    assert set(await objects(process)) == {last, segment.key}
    assert await process.items("B") == []
    assert await everything(process, "a") == before


async def test_a_body_is_released_with_its_entry_or_not_at_all(process: Process) -> None:
    """Two who trim at once release each object, and neither loses one."""
    await fill(process, 5, size=2000)
    before = await everything(process, "a")
    await compact(process, "a", Most(4))
    pass_s(process, GRACE)
    await asyncio.gather(trim(process), trim(process))
    assert len(await process.items("B")) == 4
    assert await everything(process, "a") == before
    pass_s(process, GRACE)
    await process.streams.sweep()
    assert len(await objects(process)) == 2
    assert await everything(process, "a") == before


async def test_retention_removes_slots_that_are_in_no_segment(process: Process) -> None:
    stream = await fill(process, 6, size=2000)
    due = process.clock() + GRACE * 1000
    assert await trimming.remove_slots(process.store._table, stream.id, 4, due) == 4
    assert await slots(process) == [4, 5]
    assert len(await objects(process)) == 6
    pass_s(process, GRACE)
    await process.streams.sweep()
    assert len(await objects(process)) == 2
