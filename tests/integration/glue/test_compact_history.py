"""Compaction on Spark: what it must never change, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from glue_jobs.compaction.build_segments import assign_cells
from tailrace.log.append import Append
from tailrace.segments.format import unpack
from tailrace.segments.merge import Grid
from tests.integration.glue.earlier import store_earlier
from tests.integration.glue.lab import BYTES, DAY, JSON, TEXT, Lab


async def test_every_read_is_the_same_after_compaction_merging_and_trimming(lab: Lab) -> None:
    kinds = {"json": JSON, "text": TEXT, "bytes": BYTES}
    for path, kind in kinds.items():
        await lab.fill(path, kind, 22, by="writer" if kind == TEXT else None, together=3)
    await lab.fork("fork", "text", 7)
    await lab.streams.append("fork", Append(b"own", TEXT))
    await lab.fork("within", "bytes", 5, 2)
    await lab.streams.append("json", Append(b"", close=True))
    for path in ("closed", "deleted", "grown"):
        await lab.fill(path, TEXT, 5)
    await lab.fill("busy", TEXT, 8)
    await lab.streams.append("closed", Append(b"", close=True))
    await lab.streams.delete("deleted")
    await lab.fill("holed", TEXT, 9)
    await store_earlier(lab.store._table, lab.bucket, "earlier")
    for _ in range(3):
        bodies = [Append(b'"%b"' % (b"x" * 300), JSON)] * 3
        await asyncio.gather(*(lab.streams.append("earlier", each) for each in bodies))
    paths = (*kinds, "fork", "within", "closed", "grown", "holed", "earlier")
    assert max([len(await lab.hot(path)) for path in kinds]) < 22, "appends share slots"
    before = {path: await lab.everything(path) for path in paths}
    hole = await dig(lab, "holed", 2)

    done = await lab.compact()
    assert (done.streams, done.lost, done.merged, done.trimmed) == (7, 0, 2, 0)
    # A hole is refused, and nothing of the stream is lost.
    assert {row[0] for row in done.refused} == {"holed"}
    assert any("does not follow" in row[3] for row in done.refused)
    assert done.waiting >= 1
    assert (len(await lab.hot("holed")), await lab.manifests("holed")) == (8, [])
    for path in kinds:
        manifests = await lab.manifests(path)
        assert len(manifests) > 1
        assert all(
            (one.stop, one.size) == (two.first, two.begin) for one, two in pairwise(manifests)
        )
    reads = {path: await lab.everything(path) for path in paths if path != "holed"}
    assert reads == {path: before[path] for path in reads}
    # Entries that list no appends, and segments of version 1 and 2, became one segment.
    (whole,) = await lab.manifests("earlier")
    assert (whole.first, whole.level) == (0, 1)
    counts = unpack(await lab.bucket.get(whole.key)).counts
    assert (sum(counts), max(counts[:7]), max(counts)) == (7 + 9, 1, 3)

    await lab.store._table.put_new(hole)
    for i in range(4):
        await lab.append("grown", b"%d" % i * 100)
    before["grown"] = await lab.everything("grown")
    async with in_use(lab, "busy"):
        again = await lab.compact(later=DAY + 1)
    assert (again.refused, again.lost, again.merged) == ([], 0, 1)
    assert {path: await lab.everything(path) for path in paths} == before
    for path in kinds:
        last = (await lab.manifests(path))[-1].stop
        tail = (await lab.streams.find(path)).state.slot
        assert await lab.hot(path) == list(range(min(last, tail - 1), tail))
    assert await lab.hot("closed") == [5]
    assert (await lab.hot("busy"))[0] == 7
    (merged,) = await lab.manifests("grown")
    assert (merged.first, merged.stop, merged.level) == (0, 9, 1)
    # The replaced objects are there for those who still read them, and marked to go.
    assert len(lab.objects(f"segments/{merged.chain:016x}/")) == 3
    assert [item for item in await lab.items("B") if f"{merged.chain:016x}" in item["s"]["S"]]


async def dig(lab: Lab, path: str, slot: int) -> dict[str, Any]:
    """The item of a slot, which is not in the table any more."""
    chain = (await lab.streams.find(path)).stream.id
    (item,) = [i for i in await lab.items(f"C{chain:016x}") if int(i["s"]["S"]) == slot]
    await lab.store._table.delete({"p": item["p"], "s": item["s"]})
    return item


@asynccontextmanager
async def in_use(lab: Lab, path: str) -> AsyncIterator[None]:
    """Somebody writes to a stream all the time, and somebody reads what is written."""
    done = asyncio.Event()
    tail = (await lab.streams.find(path)).state.slot
    sent: list[bytes] = []

    async def write() -> None:
        while not done.is_set():
            body = b"%06d" % len(sent)
            await lab.streams.append(path, Append(body, TEXT))
            sent.append(body)
            await asyncio.sleep(0.02)

    async def read() -> None:
        at, seen = tail, b""
        while not done.is_set() or at < tail + len(sent):
            view = await lab.streams.view(path, at)
            seen += b"".join(view.bodies)
            at = view.end
            await asyncio.sleep(0.02)
        assert seen == b"".join(sent)

    async with asyncio.TaskGroup() as group:
        group.create_task(write())
        group.create_task(read())
        try:
            yield
        finally:
            done.set()
    assert sent


async def test_an_export_is_as_good_as_the_table(lab: Lab, tmp_path: Path) -> None:
    for path, kind in {"a": JSON, "b": BYTES}.items():
        await lab.fill(path, kind, 9)
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


def test_a_stream_with_most_of_the_data_is_spread(spark: SparkSession) -> None:
    rows = [("big", n, 100 * n + 100, 100) for n in range(900)]
    rows += [(f"small{i}", 0, 100, 100) for i in range(100)]
    schema = "chain string, n long, size long, length long"
    frame = spark.createDataFrame(rows, schema)
    empty = dict.fromkeys(("mode", "body", "key", "rest", "parts"), F.lit(None).cast("string"))
    entries = frame.withColumns({**empty, "offset": F.col("size"), "at": F.lit(0)})
    cells = assign_cells(entries, Grid(1 << 30, 100))
    spread = cells.where("chain = 'big'").groupBy("cell").agg(F.count("*").alias("rows")).collect()
    assert sorted(row.rows for row in spread) == [100] * 9


def _write(file: Path, lines: Sequence[Mapping[str, object]]) -> None:
    file.write_bytes(gzip.compress(b"".join(orjson.dumps(line) + b"\n" for line in lines)))
