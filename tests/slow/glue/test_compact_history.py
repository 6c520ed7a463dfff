"""Compaction on Spark: more data, rivals, and clients that never pause."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from tailrace.log.append import Append
from tailrace.log.create import Create
from tests.integration.glue.lab import BYTES, DAY, JSON, TEXT, Lab


async def test_every_read_of_longer_streams_is_the_same(lab: Lab) -> None:
    for path, kind in {"json": JSON, "text": TEXT, "bytes": BYTES}.items():
        await lab.fill(path, kind, 41, by="writer" if kind == TEXT else None)
    await lab.fork("fork", "text", 17)
    await lab.streams.append("fork", Append(b"own", TEXT))
    await lab.fork("within", "bytes", 9, 2)
    await lab.streams.append("json", Append(b"", close=True))
    paths = ("json", "text", "bytes", "fork", "within")
    before = {path: await lab.everything(path) for path in paths}

    done = await lab.compact()
    assert (done.streams, done.refused, done.lost) == (3, [], 0)
    assert done.segments > 3
    assert {path: await lab.everything(path) for path in paths} == before

    for path in ("json", "text", "bytes"):
        for one, two in pairwise(await lab.manifests(path)):
            assert (one.stop, one.size) == (two.first, two.begin)

    again = await lab.compact(later=DAY + 1)
    assert (again.segments, again.refused) == (0, [])
    assert again.trimmed > 100
    for path in ("json", "text", "bytes"):
        last = (await lab.manifests(path))[-1].stop
        tail = (await lab.streams.find(path)).state.slot
        assert await lab.hot(path) == list(range(min(last, tail - 1), tail))
    assert {path: await lab.everything(path) for path in paths} == before
    assert (await lab.compact(later=DAY + 2)).trimmed == 0


async def test_writers_and_readers_do_not_notice(lab: Lab) -> None:
    await lab.streams.create("busy", Create(content_type=TEXT))
    done = asyncio.Event()
    sent: list[bytes] = []

    async def write() -> None:
        while not done.is_set():
            body = b"%06d" % len(sent)
            await lab.streams.append("busy", Append(body, TEXT))
            sent.append(body)

    async def read() -> None:
        at, seen = 0, b""
        while not done.is_set() or at < len(sent):
            view = await lab.streams.view("busy", at)
            seen += b"".join(view.bodies)
            at = view.end
            await asyncio.sleep(0)
        assert seen == b"".join(sent)

    writer, reader = asyncio.create_task(write()), asyncio.create_task(read())
    for later in (0, DAY + 1, 2 * DAY + 2):
        # Trimming as if a day had passed: the writer of this process knows its tail.
        assert (await lab.compact(later=later)).refused == []
    done.set()
    await asyncio.gather(writer, reader)
    assert (await lab.hot("busy"))[0] > 0
    assert b"".join((await lab.streams.view("busy", 0)).bodies)[:1020] == b"".join(sent)[:1020]


async def test_two_concurrent_runs_build_one_sequence_of_segments(lab: Lab) -> None:
    for path in ("a", "b"):
        await lab.fill(path, JSON, 40)
    before = [await lab.everything(path) for path in ("a", "b")]
    runs = await asyncio.gather(lab.compact(), lab.compact())
    assert [run.refused for run in runs] == [[], []]
    for path in ("a", "b"):
        made = await lab.manifests(path)
        assert made[0].first == 0
        assert all(one.stop == two.first for one, two in pairwise(made))
    assert [await lab.everything(path) for path in ("a", "b")] == before
