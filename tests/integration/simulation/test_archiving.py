"""History in the making: readers notice nothing, and whoever makes it may die at any call."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tailrace.log.append import Append
from tailrace.log.create import Create, ForkFrom
from tailrace.segments import merge
from tailrace.segments.format import unpack
from tailrace.store.dynamodb import layout
from tailrace.store.dynamodb.table import Table
from tailrace.streams import Streams
from tests.integration.simulation.archivist import Archivist
from tests.integration.simulation.stage import Stage, append, head, play
from tests.integration.simulation.world import GRACE, INLINE_BYTES, TABLE, TEXT

ENTRIES = 7


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few partitions to sweep, and segments that are merged soon."""
    monkeypatch.setattr(layout, "NAME_SHARDS", 2)
    monkeypatch.setattr(merge, "MERGE_SEGMENTS", 3)


class Mortal(Archivist):
    """Dies at one of its calls, which may have been carried out or not."""

    def __init__(self, stage: Stage, lives: int) -> None:
        super().__init__(stage.world)
        self.lives = lives
        self._table = Table(Counted(self, self._line), TABLE)
        self._bucket = Counted(self, self._bucket)  # type: ignore[assignment]

    def spend(self) -> None:
        self.lives -= 1
        if self.lives == 0:
            # Before it arrives, between its effect and the answer, or thereafter.
            asyncio.get_running_loop().call_later(self._chance.random() * 0.05, self.kill)


class Counted:
    """The table or the bucket as a process that can be killed reaches it."""

    def __init__(self, mortal: Mortal, line: Any) -> None:
        self._mortal = mortal
        self._line = line

    async def call(self, operation: str, request: Mapping[str, Any]) -> Any:
        self._mortal.spend()
        return await self._line.call(operation, request)

    async def put(self, key: str, body: bytes) -> None:
        self._mortal.spend()
        await self._line.put(key, body)

    async def get(self, key: str, begin: int = 0, end: int | None = None) -> Any:
        self._mortal.spend()
        return await self._line.get(key, begin, end)

    async def delete(self, keys: Sequence[str]) -> None:
        self._mortal.spend()
        await self._line.delete(keys)

    def cut(self) -> None:
        self._line.cut()

    async def close(self) -> None:
        await self._line.close()


async def fill(stage: Stage, entries: int = ENTRIES) -> list[bytes]:
    """The content of the stream: some of it too large for an item."""
    bodies = [b"<%d%b>" % (n, b"." * (INLINE_BYTES if n % 5 == 2 else 0)) for n in range(entries)]
    for body in bodies[1:]:
        await append(stage.other, body)
    return bodies


async def bodies(streams: Streams, start: int, path: str = "s") -> list[bytes]:
    found: list[bytes] = []
    while True:
        view = await streams.view(path, start)
        found += view.bodies
        if view.up_to_date:
            return found
        start = view.end


async def same(stage: Stage, expected: list[bytes], path: str = "s") -> None:
    for start in range(len(expected) + 1):
        assert await bodies(stage.warm, start, path) == expected[start:]


async def make_history(archivist: Archivist) -> None:
    """All that there is to do for one stream, from its entries to the last object that goes."""
    while await archivist.archive("s", 2):
        pass
    while await archivist.merge("s"):
        pass
    await asyncio.sleep(GRACE)
    await archivist.trim("s")
    await asyncio.sleep(GRACE)
    await archivist.sweep()


def left(stage: Stage, kind: str) -> list[str]:
    items = stage.world.table.items()
    return [item["s"]["S"] for item in items if item["p"]["S"].startswith(kind)]


def test_a_run_finishes_the_work_of_one_that_died_at_any_call() -> None:
    ended: set[bool] = set()

    async def story(stage: Stage, lives: int) -> None:
        expected = await fill(stage)
        mortal = Mortal(stage, lives)
        working = asyncio.create_task(make_history(mortal))
        await asyncio.wait((working,), timeout=3 * GRACE)
        await same(stage, expected)
        ended.add(working.done())
        if working.done():
            working.result()
        await make_history(Archivist(stage.world))
        await make_history(Archivist(stage.world))
        await same(stage, expected)
        assert left(stage, "C") == [f"{ENTRIES - 1:016d}"]
        assert left(stage, "B") == []
        named = list(filter(None, map(layout.object_key_of, stage.world.table.items())))
        assert named
        assert set(named) <= set(stage.world.objects)
        segments = [unpack(stage.world.objects[key]) for key in named if key.startswith("seg")]
        assert [body for parts in segments for body in parts.bodies()] == expected[:-1]
        await append(stage.warm, b"<more>")
        await same(stage, [*expected, b"<more>"])

    lives = 0
    while True not in ended:
        lives += 1
        ended.clear()
        play(lambda stage, lives=lives: story(stage, lives), seeds=1)  # type: ignore[misc]
    assert lives > 40, "it had as many calls to die at"  # 60


def test_readers_of_segments_that_are_being_merged_miss_nothing() -> None:
    """A query may see that a segment is gone, and not yet the one that has its slots."""

    async def story(stage: Stage) -> None:
        expected = await fill(stage, 9)
        archivist = Archivist(stage.world)
        while await archivist.archive("s"):
            pass
        await asyncio.sleep(GRACE)
        await archivist.trim("s")
        done = asyncio.Event()

        async def read(streams: Streams, start: int) -> None:
            while not done.is_set():
                assert await bodies(streams, start) == expected[start:]

        async with asyncio.TaskGroup() as group:
            for start in range(8):
                streams = (await stage.world.start(open_streams=100)).streams
                group.create_task(read(streams, start))
            while await archivist.merge("s"):
                pass
            done.set()
        assert len(left(stage, "S")) < 8

    play(story, seeds=15)


def test_a_fork_reads_through_what_its_source_has_become() -> None:
    async def story(stage: Stage) -> None:
        expected = await fill(stage)
        await stage.other.create("fork", Create(b"<own>", TEXT, fork=ForkFrom("s", 5, 1)))
        expected = [*expected[:5], b"<", b"<own>"]
        await stage.other.delete("s")
        dying = Mortal(stage, stage.world.chance.randint(1, 40))
        working = asyncio.create_task(make_history(dying))
        await asyncio.wait((working,), timeout=3 * GRACE)
        await same(stage, expected, "fork")
        await make_history(Archivist(stage.world))
        await same(stage, expected, "fork")
        await stage.other.delete("fork")
        for _ in range(3):
            await asyncio.sleep(GRACE)
            await stage.other.sweep()
        assert not [*stage.world.table.items()]

    play(story, seeds=20)


def test_a_stream_that_is_closed_and_archived_ends_where_it_did() -> None:
    async def story(stage: Stage) -> None:
        expected = await fill(stage)
        await stage.other.append("s", Append(b"", close=True))
        end = await head(stage.warm)
        await make_history(Archivist(stage.world))
        await same(stage, expected)
        view = await stage.warm.view("s", ENTRIES)
        assert (view.closed, view.next_offset) == (True, end)

    play(story)
