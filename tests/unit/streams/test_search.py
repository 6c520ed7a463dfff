"""Which slot leads past an offset, and which was filled since a time."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.log.state import SlotInfo
from tailrace.streams import Streams
from tests.support.streams import Client, Clock, serving

JSON = "application/json"


class Counting:
    """A store that counts how often it is asked for a stamp."""

    def __init__(self, streams: Streams) -> None:
        self._stamp = streams.store.slot_info
        self.asked = 0
        store: Any = streams.store
        store.slot_info = self

    async def __call__(self, chain: int, n: int) -> SlotInfo:
        self.asked += 1
        return await self._stamp(chain, n)


async def fill(streams: Streams, clock: Clock, path: str, counts: list[int]) -> None:
    """Appends of so many messages each, a second apart."""
    await streams.create(path, Create(content_type=JSON))
    for count in counts:
        clock.pass_s(1)
        body = b"[%b]" % b",".join([b"0"] * count)
        await streams.append(path, Append(body, JSON))


def slots_after(counts: list[int]) -> list[int]:
    """By offset the slot that leads past it, beginning with offset 0."""
    found = [slot for slot, count in enumerate(counts) for _ in range(count)]
    return [*found, len(counts)]


@pytest.mark.parametrize("archived", [False, True])
async def test_every_offset_and_every_time_is_found(
    tmp_path: Path, clock: Clock, archived: bool
) -> None:
    counts = [random.choice((1, 1, 1, 2, 7)) for _ in range(30)]
    async with serving(tmp_path, clock, segment_max_messages=8) as streams:
        begin = clock.now
        await fill(streams, clock, "a", counts)
        if archived:
            store: Any = streams.store
            assert (await store.compact()).segments == 3
        tail = await streams.find("a")
        for offset, slot in enumerate(slots_after(counts)):
            assert await streams.slot_after(tail, offset) == slot
        for slot in range(30):
            written = begin + 1000 * (slot + 1)
            assert await streams.slot_since(tail, written) == slot
            assert await streams.slot_since(tail, written - 999) == slot
        assert await streams.slot_since(tail, 0) == 0
        assert await streams.slot_since(tail, clock.now + 1) == 30
        assert await streams.slot_after(tail, 10**6) == 30


async def test_the_search_finds_inherited_slots(streams: Streams, clock: Clock) -> None:
    client = Client(streams)
    await fill(streams, clock, "a", [1, 2, 3])
    await client.fork("b", "a")
    await streams.append("b", Append(b"[7,8]", JSON))
    await client.fork("c", "b", at=2)
    await streams.append("c", Append(b"9", JSON))
    for path, counts in (("b", [1, 2, 3, 2]), ("c", [1, 2, 1])):
        tail = await streams.find(path)
        for offset, slot in enumerate(slots_after(counts)):
            assert await streams.slot_after(tail, offset) == slot
    assert await streams.slot_since(await streams.find("c"), clock.now) == 2


async def test_with_one_message_per_append_two_reads_are_enough(
    streams: Streams, clock: Clock
) -> None:
    await fill(streams, clock, "a", [1] * 100)
    tail = await streams.find("a")
    counting = Counting(streams)
    for offset in range(1, 100):
        counting.asked = 0
        assert await streams.slot_after(tail, offset) == offset
        assert counting.asked <= 2


async def test_the_search_finds_new_slots_in_few_reads(streams: Streams, clock: Clock) -> None:
    await fill(streams, clock, "a", [1] * 500)
    tail = await streams.find("a")
    counting = Counting(streams)
    assert await streams.slot_since(tail, clock.now + 1) == 500
    assert counting.asked == 0
    assert await streams.slot_since(tail, clock.now - 2000) == 497
    assert counting.asked <= 5
    counting.asked = 0
    assert await streams.slot_since(tail, clock.now - 400_000) == 99
    assert counting.asked <= 20


async def test_the_search_skips_slots_that_retention_removed(tmp_path: Path, clock: Clock) -> None:
    settings: dict[str, Any] = {"segment_max_messages": 10, "retention": "**=20B"}
    async with serving(tmp_path, clock, **settings) as streams:
        await fill(streams, clock, "a", [1] * 50)
        store: Any = streams.store
        await store.compact()
        await store.maintenance.retain()
        tail = await streams.find("a")
        assert 0 < tail.earliest < 40
        assert await streams.slot_after(tail, 0) == tail.earliest
        assert await streams.slot_since(tail, 0) == tail.earliest
        assert await streams.slot_after(tail, 45) == 45


async def test_an_empty_stream_has_nothing_to_find(streams: Streams, clock: Clock) -> None:
    await fill(streams, clock, "a", [])
    tail = await streams.find("a")
    assert await streams.slot_after(tail, 0) == 0
    assert await streams.slot_since(tail, 0) == 0


async def test_a_watcher_of_a_path_notices_each_creation(streams: Streams, clock: Clock) -> None:
    with streams.watching("a") as created, streams.watching("a") as again:
        assert not created.is_set()
        await fill(streams, clock, "b", [])
        assert not created.is_set()
        await fill(streams, clock, "a", [])
        assert created.is_set()
        assert again.is_set()
        created.clear()
        await streams.create("a", Create(content_type=JSON))
        assert not created.is_set()
    assert streams._watchers == {}
