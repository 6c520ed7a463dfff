"""Compaction on Spark: what it must never change, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import orjson
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from glue_jobs.compaction.sealing import in_cells
from tailrace.clock import system_clock
from tailrace.history.merging import Grid
from tailrace.log.append import Append
from tailrace.log.create import Create
from tests.glue.lab import BYTES, DAY, JSON, TEXT, Lab
from tests.store.dynamo.archiving import Most, archive


async def test_every_read_is_the_same_after_compaction_merging_and_trimming(lab: Lab) -> None:
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
        tail = (await lab.streams.find(path)).state.n
        assert await lab.hot(path) == list(range(min(last, tail - 1), tail))
    assert {path: await lab.everything(path) for path in paths} == before
    assert (await lab.compact(later=DAY + 2)).trimmed == 0


async def test_segments_grow_together_and_replaced_objects_stay_for_the_grace(lab: Lab) -> None:
    await lab.streams.create("a", Create(content_type=TEXT))
    bodies = [b"%02d-" % i for i in range(36)]
    for body in bodies[:-4]:
        await lab.streams.append("a", Append(body, TEXT))
    stream = (await lab.streams.find("a")).stream
    while await archive(lab.store._table, lab.bucket, stream, Most(4), system_clock()):
        pass
    assert len(await lab.manifests("a")) == 7  # The last entry is not for this tool.
    for body in bodies[-4:]:
        await lab.streams.append("a", Append(body, TEXT))
    done = await lab.compact()
    assert (done.entries, done.merged) == (8, 7)
    (merged,) = await lab.manifests("a")
    assert (merged.first, merged.stop, merged.level) == (0, 36, 1)
    assert list((await lab.streams.view("a", 0)).bodies) == bodies
    # The old objects are there for who still reads them, and marked to go.
    assert len(lab.objects("segments/")) == 9
    assert len(await lab.items("B")) == 8


async def test_a_hole_is_refused_and_nothing_is_lost(lab: Lab) -> None:
    for path in ("whole", "holed"):
        await lab.fill(path, TEXT, 9)
    chain = (await lab.streams.find("holed")).stream.id
    held = [item for item in await lab.items(f"C{chain:016x}") if int(item["s"]["S"]) == 2]
    await lab.store._table.delete({"p": held[0]["p"], "s": held[0]["s"]})
    done = await lab.compact()
    assert {row[0] for row in done.refused} == {"holed"}
    assert any("does not follow" in row[3] for row in done.refused)
    assert done.waiting >= 1
    assert done.streams == 1
    assert len(await lab.hot("holed")) == 8
    assert await lab.manifests("holed") == []
    # Put back, it goes on as if nothing had been.
    await lab.store._table.put_new(held[0])
    assert (await lab.compact()).refused == []
    assert (await lab.manifests("holed"))[0].first == 0


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


@pytest.mark.slow
async def test_two_runs_at_once_make_one_row_of_segments(lab: Lab) -> None:
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


async def test_an_export_is_as_good_as_the_table(lab: Lab, tmp_path: Path) -> None:
    for path, kind in {"a": JSON, "b": BYTES}.items():
        await lab.fill(path, kind, 21)
    before = {path: await lab.everything(path) for path in "ab"}
    held = await lab.items()
    data = tmp_path / "AWSDynamoDB" / "01-full" / "data"
    data.mkdir(parents=True)
    _write(data / "x.json.gz", [{"Item": item} for item in held])
    # An increment that overlaps with it, and one line about something removed.
    new = [{"Keys": {}, "NewImage": item} for item in held[::3]]
    _write(data / "y.json.gz", [*new, {"Keys": {"p": {"S": "C0"}, "s": {"S": "0"}}}])
    (data.parent / "manifest-summary.json").write_text("{}")
    flags = ["--segment-max-messages", "4", "--segment-target-bytes", "2048"]
    done = await lab.compact("--export", str(tmp_path), *flags)
    assert (done.streams, done.refused) == (2, [])
    assert {path: await lab.everything(path) for path in "ab"} == before
    assert (await lab.compact()).entries == 0


def test_a_stream_with_most_of_the_data_is_spread(spark: SparkSession) -> None:
    rows = [("big", n, 100 * n + 100, 100) for n in range(900)]
    rows += [(f"small{i}", 0, 100, 100) for i in range(100)]
    schema = "chain string, n long, size long, length long"
    frame = spark.createDataFrame(rows, schema)
    empty = dict.fromkeys(("mode", "body", "key", "rest"), F.lit(None).cast("string"))
    entries = frame.withColumns({**empty, "offset": F.col("size"), "at": F.lit(0)})
    cells = in_cells(entries, Grid(1 << 30, 100))
    spread = cells.where("chain = 'big'").groupBy("cell").agg(F.count("*").alias("rows")).collect()
    assert sorted(row.rows for row in spread) == [100] * 9


async def test_a_tombstone_and_what_is_closed_without_data_stay_where_they_are(lab: Lab) -> None:
    for path in ("closed", "deleted"):
        await lab.fill(path, TEXT, 5)
    await lab.streams.append("closed", Append(b"", close=True))
    before = await lab.everything("closed")
    await lab.streams.delete("deleted")
    assert (await lab.compact()).streams == 1
    assert await lab.everything("closed") == before
    assert (await lab.compact(later=DAY + 1)).trimmed == 5
    view = await lab.streams.view("closed", 0)
    assert await lab.everything("closed") == before
    assert not view.closed
    assert await lab.hot("closed") == [5]


def _write(file: Path, lines: Sequence[Mapping[str, object]]) -> None:
    file.write_bytes(gzip.compress(b"".join(orjson.dumps(line) + b"\n" for line in lines)))
