"""The export on Spark: every message of history once, whatever was killed when."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from devtools.engines.ministack import Ministack
from devtools.processes import ROOT, fresh_name
from glue_jobs import export_history
from glue_jobs.exporting import plans
from glue_jobs.exporting.export_lease import KEY, Plan
from glue_jobs.exporting.files import write_files
from glue_jobs.exporting.messages import COLUMNS, PARTITIONS
from glue_jobs.exporting.plans import record_progress
from glue_jobs.exporting.summary import Refused, Summary
from glue_jobs.shared.job import start_job
from tailrace.log.append import Append
from tailrace.log.create import Create, ForkFrom
from tailrace.log.state import Producer
from tailrace.segments.merge import Grid
from tailrace.settings import Settings
from tailrace.store.dynamodb import actions, layout, trimming
from tailrace.streams import Streams
from tests.integration.glue.earlier import ARCHIVED, BEGUN, store_earlier
from tests.integration.glue.lab import BYTES, DAY, JSON, TEXT, Lab
from tests.support import archiving
from tests.support.archiving import ENDLESS, Most

START: Final = 1_790_000_000_000
"""2026-09-21, in the afternoon."""

NONE: Final = Refused()

Message = tuple[Any, ...]
"""The columns of a message in order, and its day."""


class Killed(BaseException):
    """A fault that hits a run."""


class Shop:
    """Streams that are written, archived and exported, and what has been written so far."""

    def __init__(self, lab: Lab, database: str) -> None:
        self.lab = lab
        self.database = database
        self.lease = "0.5"
        self.now = START
        self.streams = Streams(lab.store, lab.settings, lambda: self.now)
        self.s3, self.glue = boto3.client("s3"), boto3.client("glue")
        self.written: dict[str, list[Message]] = {}
        self._kinds: dict[str, tuple[int, str]] = {}

    async def create(self, path: str, kind: str, fork: ForkFrom | None = None) -> None:
        await self.streams.create(path, Create(content_type=kind, fork=fork))
        await self.add(path, kind)

    async def add(self, path: str, kind: str) -> None:
        """Expect what a stream that exists will have."""
        self._kinds[path] = (await self.streams.find(path)).stream.id, kind
        self.written[path] = []

    async def append(
        self, path: str, body: bytes, messages: Sequence[bytes] = (), by: Producer | None = None
    ) -> None:
        kind = self._kinds[path][1]
        before = (await self.streams.find(path)).state
        await self.streams.append(path, Append(body, kind, producer=by))
        self.wrote(path, before.slot, before.offset, body, messages, by)

    async def append_together(self, path: str, *appends: tuple[bytes, Producer | None]) -> None:
        """Append what shares a slot, each one message."""
        kind, before = self._kinds[path][1], (await self.streams.find(path)).state
        bodies = (Append(body, kind, producer=by) for body, by in appends)
        await asyncio.gather(*(self.streams.append(path, body) for body in bodies))
        offset = before.offset
        for i, (body, by) in enumerate(appends):
            self.wrote(path, before.slot, offset, body, by=by, first=i)
            offset += 1 if kind == JSON else len(body)

    def wrote(
        self, path: str, slot: int, offset: int, body: bytes, messages: Sequence[bytes] = (),
        by: Producer | None = None, first: int = 0, at: datetime | None = None,
    ) -> None:  # fmt: skip
        """`first`: how many messages of the slot are before these. `at`: when, if not now."""
        chain, kind = self._kinds[path]
        at = at or datetime.fromtimestamp(self.now / 1000, UTC)
        about = at.replace(tzinfo=None), kind, *(by or (None, None, None))
        for i, message in enumerate(messages or [body], first):
            step = 1 if kind == JSON else len(message)
            binary = kind == BYTES or b"\xff" in message
            bodies = (None, message) if binary else (message.decode(), None)
            place = path, f"{chain:016x}", slot, i, offset, offset + step
            self.written[path].append((*place, *about, *bodies, at.date()))
            offset += step

    async def archive(self, path: str, entries: int = 3) -> int:
        """The first slot that is in no segment: the last ones of a stream are not."""
        stream = (await self.streams.find(path)).stream
        table, bucket = self.lab.store._table, self.lab.bucket
        while await archiving.archive(table, bucket, stream, Most(entries), self.now):
            pass
        name = await archiving.name_of(table, path)
        assert name is not None
        return name.archived

    async def exported(self, path: str) -> int:
        name = await archiving.name_of(self.lab.store._table, path)
        assert name is not None
        return name.exported

    async def expected(self, *paths: str) -> list[Message]:
        """Everything that is in segments."""
        ends = {path: await self.archive(path) for path in paths or self.written}
        return sorted(
            row for path, end in ends.items() for row in self.written[path] if row[2] < end
        )

    @property
    def argv(self) -> list[str]:
        flags = ["--database", self.database, "--buckets", "3", "--lease", self.lease]
        return [*self.lab.flags, *flags]

    def export(self, *flags: str) -> Summary:
        argv, extend = [*self.argv, *flags], export_history.add_arguments
        try:
            with start_job(export_history.NAME, "", argv, extend) as job:
                return export_history.run(job)
        except SystemExit as ended:
            raise ended.__cause__ or ended from None

    # What Athena would see.

    def partitions(self) -> list[tuple[list[str], str]]:
        pages = self.glue.get_paginator("get_partitions")
        found = pages.paginate(DatabaseName=self.database, TableName="messages")
        return [
            (each["Values"], each["StorageDescriptor"]["Location"])
            for page in found
            for each in page["Partitions"]
        ]

    def files(self) -> Iterator[str]:
        """The keys of the files of all partitions that are registered."""
        for values, location in self.partitions():
            prefix = location.removeprefix(f"s3://{self.lab.settings.bucket}/")
            named = "/".join(f"{key.name}={v}" for key, v in zip(PARTITIONS, values, strict=True))
            assert prefix == f"export/messages/{named}/"
            yield from self.lab.objects(prefix)

    def frame(self, folder: Path) -> DataFrame:
        for key in self.files():
            (folder / key).parent.mkdir(parents=True, exist_ok=True)
            self.s3.download_file(self.lab.settings.bucket, key, str(folder / key))
        assert self.lab.spark is not None
        return self.lab.spark.read.parquet(str(folder / "export/messages"))

    async def messages(self, keys: Iterable[str] | None = None) -> list[Message]:
        """The same without Spark, which takes longer for it."""
        found: list[Message] = []
        for key in self.files() if keys is None else keys:
            data = pa.BufferReader(await self.lab.bucket.get(key))
            for row in pq.ParquetFile(data).read().to_pylist():
                day = row["time"].date()
                found.append((*(row | {"time": row["time"].replace(tzinfo=None)}).values(), day))
        return sorted(found)


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


@pytest.fixture
def shop(lab: Lab, ministack: Ministack, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", ministack.url)
    # Small enough for several parts of a plan, and several segments in one.
    monkeypatch.setattr(plans, "PART_BYTES", 4000)
    return Shop(lab, fresh_name("export"))


async def fill(shop: Shop) -> None:
    """Streams of each kind, over three days; some bodies have objects of their own."""
    for path, kind in {"json/ä": JSON, "text": TEXT, "bytes": BYTES}.items():
        await shop.create(path, kind)
    for i in range(13):
        shop.now += DAY // 5
        batch = [b'{"n":[%d,{"k":"a,b]"}]}' % i, b'"\\ud800"', b"1e999"]
        await shop.append("json/ä", b" [ %b ] " % b" , ".join(batch), batch)
        await shop.append("json/ä", b'"%b"' % (b"x" * 700 * (i % 4)))
        await shop.append(
            "text", b"text %d" % i * 90 * (i % 3 + 1), by=Producer("p", i // 4, i % 4)
        )
        await shop.append("text", b"caf\xff" if i % 2 else "café".encode())
        await shop.append("bytes", bytes(range(i * 10)) + b"\0")
        for path in ("json/ä", "text", "bytes"):
            authors = Producer("x", 0, i), None, Producer("y", 3, i)
            await shop.append_together(
                path, *((b"%d" % (10**k), by) for k, by in enumerate(authors))
            )


async def add_earlier(shop: Shop) -> None:
    await store_earlier(shop.lab.store._table, shop.lab.bucket, "earlier")
    await shop.add("earlier", JSON)
    now, offset = shop.now, 0
    for slot, (after, messages) in enumerate(ARCHIVED):
        shop.now = BEGUN + after
        by = None if slot else Producer("till-7", 3, 41)
        shop.wrote("earlier", slot, offset, b"", messages, by)
        offset += len(messages)
    shop.now = now


async def test_every_message_is_exported_once_and_as_it_was_written(
    shop: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await fill(shop)
    await add_earlier(shop)
    await shop.create("fork", JSON, ForkFrom("json/ä", 3, 2))
    # What it takes of an append of its source is its own; what is before that is not.
    copied = [row for row in shop.written["json/ä"] if row[2] == 3][:2]
    shop.wrote("fork", 3, 7, b"", [row[-3].encode() for row in copied], at=copied[0][6])
    for i in range(4):
        await shop.append("fork", b"%d" % i)
    expected = await shop.expected()
    assert {row[0] for row in expected} == {"json/ä", "text", "bytes", "fork", "earlier"}

    done = await asyncio.to_thread(shop.export)
    seen = shop.frame(tmp_path)
    rows = seen.select(*(column.name for column in COLUMNS), "day").collect()
    assert sorted(tuple(map(_plain, row)) for row in rows) == expected
    assert (done.messages, done.streams) == (len(expected), 5)
    assert (done.gone, done.held, done.damaged) == (0, NONE, NONE)
    kept = {(str(row[-1]), str(crc32(row[1].encode()) % 3)) for row in expected}
    assert {(day, bucket) for (day, bucket, _), _ in shop.partitions()} == kept
    assert done.partitions == len(shop.partitions()) == len(kept)
    assert done.files > done.partitions, "some are of several parts of the plan"
    check_schema(shop, seen)
    assert done.metrics == {"history_exported_total": len(expected)}

    # Segments are merged, so that some have both slots that were exported and such that were not.
    for path in ("text", "json/ä"):
        for i in range(7):
            await shop.append(path, b'"more %d"' % i)
        await shop.archive(path)
        chain = (await shop.streams.find(path)).stream.id
        await archiving.merge(shop.lab.store._table, shop.lab.bucket, chain, ENDLESS, 0)
        assert len(await shop.lab.manifests(path)) < 8
    more = await shop.expected()
    assert await asyncio.to_thread(export_history.main, shop.argv) == 0
    count = len(more) - len(expected)
    assert capsys.readouterr().out.startswith(f"exported {count} messages of 2 streams")
    assert count > 10
    assert await shop.messages() == more
    runs = {values[2] for values, _ in shop.partitions()}
    assert len(runs - {*done.finished}) == 1
    assert [key for key in shop.lab.objects("export/") if "/_" in key] == [KEY]


def check_schema(shop: Shop, seen: DataFrame) -> None:
    table = shop.glue.get_table(DatabaseName=shop.database, Name="messages")["Table"]
    columns = table["StorageDescriptor"]["Columns"] + table["PartitionKeys"]
    # Spark finds the last three in the names of folders, and guesses their types.
    assert dict(seen.dtypes) == {column["Name"]: column["Type"] for column in columns}
    assert [column["Comment"] for column in columns] == [c.about for c in (*COLUMNS, *PARTITIONS)]
    bucket = (F.crc32("incarnation") % 3).cast("int")
    wrong = (F.col("bucket") != bucket) | (F.col("day") != F.to_date("time"))
    assert seen.where(wrong).count() == 0


def test_the_documentation_has_every_column_and_flag() -> None:
    page = (ROOT / "docs/history.md").read_text()
    section = page.partition("\n## export-history\n")[2].partition("\n## ")[0]
    for column in (*COLUMNS, *PARTITIONS):
        assert f"| `{column.name}` | {column.kind} |" in section
    parser = argparse.ArgumentParser()
    export_history.add_arguments(parser)
    flags = [each.option_strings[-1] for each in parser._actions if each.help != argparse.SUPPRESS]
    for flag in flags[1:]:
        assert f"| `{flag}` |" in section


async def small(shop: Shop, paths: str = "ab") -> None:
    """Streams of two segments, each of which is a part of the plan."""
    for path in paths:
        await shop.create(path, TEXT)
        for i in range(7):
            shop.now += DAY // 4
            await shop.append(path, b"%d" % i * 1400)
    await shop.expected()


async def killed(
    shop: Shop, everything: Sequence[Message], owner: Any, name: str, at: Callable[..., Any]
) -> None:
    """A run that ends in the middle of something, after which nothing may be there twice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, at)
        with pytest.raises(Killed):
            await asyncio.to_thread(shop.export)
    found = await shop.messages()
    assert len(set(found)) == len(found)
    ends = {path: await shop.exported(path) for path in "ab"}
    assert {row for row in everything if row[2] < ends[row[0]]} <= set(found)


def writing(spark: SparkSession, plan: Plan, settings: Settings) -> None:
    write_files(spark, plan._replace(parts=plan.parts[:2]), settings).count()
    raise Killed


def noting(spark: SparkSession, plan: Plan, settings: Settings) -> None:
    record_progress(spark, plan._replace(parts=plan.parts[-1:]), settings).count()
    raise Killed


async def merge_and_remove(shop: Shop) -> None:
    """The segments of a plan are merged, and the replaced objects go."""
    for path in "ab":
        chain = (await shop.streams.find(path)).stream.id
        olds = await shop.lab.manifests(path)
        grid = Grid(olds[-1].size, 1 << 60)
        await archiving.merge(shop.lab.store._table, shop.lab.bucket, chain, grid, 0)
        assert len(await shop.lab.manifests(path)) == 1
        await shop.lab.bucket.delete([old.key for old in olds])


async def finished(shop: Shop, everything: Sequence[Message]) -> None:
    """A run after those that were killed does all that is left."""
    done = await asyncio.to_thread(shop.export)
    assert len(done.finished) == 1
    assert {values[2] for values, _ in shop.partitions()} == {*done.finished}
    assert await shop.messages() == everything
    assert [await shop.exported(path) for path in "ab"] == [6, 6]
    assert [key for key in shop.lab.objects("export/") if "/_" in key] == [KEY]


async def test_a_run_that_is_killed_is_finished_by_the_next(shop: Shop) -> None:
    """At more steps in tests/slow."""
    await small(shop)
    everything = await shop.expected()
    await killed(shop, everything, export_history, "write_files", writing)
    await merge_and_remove(shop)
    await killed(shop, everything, export_history, "record_progress", noting)
    await finished(shop, everything)


async def test_damaged_segments_stop_a_run_and_gaps_hold_a_stream_back(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All of a stream in one part, so that a file could have one half of it.
    monkeypatch.setattr(plans, "PART_BYTES", 1 << 20)
    await small(shop, "abcd")
    for i in range(4):
        await shop.append("c", b"more %d" % i)
    everything = await shop.expected()
    s3, bucket, table = shop.s3, shop.lab.settings.bucket, shop.lab.store._table
    whole = {}
    for path in "ab":
        key = (await shop.lab.manifests(path))[1].key
        whole[path] = key, await shop.lab.bucket.get(key)
        s3.put_object(Bucket=bucket, Key=key, Body=whole[path][1].replace(b"3", b"4", 1))
    # The second of three segments is missing, and of another stream the first, by retention.
    hole, taken = (await shop.lab.manifests("c"))[1], (await shop.lab.manifests("d"))[0]
    item = await table.get(layout.segment_key(hole.chain, hole.first))
    assert item is not None
    await table.transact([actions.remove_segment(hole), actions.remove_segment(taken)])
    name = await archiving.name_of(table, "d")
    assert name is not None
    await trimming.advance_pointer(table, name, layout.RETAINED, taken.stop)

    done = await asyncio.to_thread(shop.export)
    assert [row[:3] for row in done.damaged.shown] == [("a", 3, 6), ("b", 3, 6)]
    assert "its data is damaged" in str(done)
    assert [row[:3] for row in done.held.shown] == [("c", hole.first, hole.stop)]
    assert "run the job `audit`" in str(done)
    assert shop.partitions() == []
    assert [await shop.exported(path) for path in "abcd"] == [0, 0, 0, 0]

    # One is restored, one deleted. Without the catalogue files are all there is.
    s3.put_object(Bucket=bucket, Key=whole["a"][0], Body=whole["a"][1])
    s3.delete_object(Bucket=bucket, Key=whole["b"][0])
    await shop.streams.delete("b")
    done = await asyncio.to_thread(shop.export, "--catalogue", "false")
    assert (done.damaged, done.gone) == (NONE, 3)
    assert "skipped 3 slots" in str(done)
    assert [row[:3] for row in done.held.shown] == [("c", hole.first, hole.stop)]
    assert [await shop.exported(path) for path in "acd"] == [6, hole.first, 6]
    kept = [row for row in everything if not (row[0] == "b" and row[2] >= 3)]
    kept = [row for row in kept if not (row[0] == "d" and row[2] < taken.stop)]
    assert await shop.messages(shop.lab.objects("export/messages/")) == [
        row for row in kept if row[0] != "c" or row[2] < hole.first
    ]

    await table.put_new(item)
    after = await asyncio.to_thread(shop.export, "--catalogue", "false")
    assert (after.held, after.gone) == (NONE, 0)
    assert await shop.messages(shop.lab.objects("export/messages/")) == kept
    assert shop.partitions() == []
