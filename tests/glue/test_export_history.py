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

from glue_jobs import export_history
from glue_jobs.exporting import plans
from glue_jobs.exporting.catalogue import Catalogue, Partition
from glue_jobs.exporting.files import FILES, written
from glue_jobs.exporting.messages import COLUMNS, PARTITIONS
from glue_jobs.exporting.plans import noted, planned
from glue_jobs.exporting.summary import Refused, Summary
from glue_jobs.exporting.turn import KEY, ExportUnderWay, Plan, Turn
from glue_jobs.shared.job import running
from tailrace.history.merging import Grid
from tailrace.log.append import Append
from tailrace.log.create import Create, ForkFrom
from tailrace.log.state import Producer
from tailrace.settings import Settings
from tailrace.store.dynamo import actions, layout, trimming
from tailrace.streams import Streams
from tests.engines import Ministack, fresh_name
from tests.glue.lab import BYTES, DAY, JSON, TEXT, Lab
from tests.store.dynamo import archiving
from tests.store.dynamo.archiving import ENDLESS, Most

START: Final = 1_790_000_000_000
"""2026-09-21, in the afternoon."""

NONE: Final = Refused()

Message = tuple[Any, ...]
"""The columns of a message in order, and its day."""


class Killed(BaseException):
    """What happens to a run at a bad moment."""


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
        self._kinds[path] = (await self.streams.find(path)).stream.id, kind
        self.written[path] = []

    async def append(
        self, path: str, body: bytes, messages: Sequence[bytes] = (), by: Producer | None = None
    ) -> None:
        kind = self._kinds[path][1]
        before = (await self.streams.find(path)).state
        await self.streams.append(path, Append(body, kind, producer=by))
        self.wrote(path, before.n, before.offset, body, messages, by)

    def wrote(
        self, path: str, slot: int, offset: int, body: bytes, messages: Sequence[bytes] = (),
        by: Producer | None = None,
    ) -> None:  # fmt: skip
        chain, kind = self._kinds[path]
        at = datetime.fromtimestamp(self.now / 1000, UTC)
        about = at.replace(tzinfo=None), kind, *(by or (None, None, None))
        for i, message in enumerate(messages or [body]):
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
            with running(export_history.NAME, "", argv, extend) as job:
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


async def test_every_message_is_exported_once_and_as_it_was_written(
    shop: Shop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await fill(shop)
    await shop.create("fork", JSON, ForkFrom("json/ä", 2, 2))
    # What it takes of an append of its source is its own; what is before that is not.
    first = [row[-3].encode() for row in shop.written["json/ä"] if row[2] == 2][:2]
    shop.wrote("fork", 2, 4, b"", first)
    for i in range(4):
        await shop.append("fork", b"%d" % i)
    expected = await shop.expected()
    assert {row[0] for row in expected} == {"json/ä", "text", "bytes", "fork"}

    done = await asyncio.to_thread(shop.export)
    seen = shop.frame(tmp_path)
    rows = seen.select(*(column.name for column in COLUMNS), "day").collect()
    assert sorted(tuple(map(_plain, row)) for row in rows) == expected
    assert (done.messages, done.streams) == (len(expected), 4)
    assert (done.gone, done.held, done.damaged) == (0, NONE, NONE)
    kept = {(str(row[-1]), str(crc32(row[1].encode()) % 3)) for row in expected}
    assert {(day, bucket) for (day, bucket, _), _ in shop.partitions()} == kept
    assert done.partitions == len(shop.partitions()) == len(kept)
    assert done.files > done.partitions, "some are of several parts of the plan"
    check_schema(shop, seen)
    assert done.metrics == {"history_exported_total": len(expected)}

    assert await asyncio.to_thread(export_history.main, shop.argv) == 0
    assert capsys.readouterr().out.startswith("exported 0 messages of 0 streams")
    assert len(shop.partitions()) == done.partitions

    # Segments are merged, so that some have both slots that were exported and such that were not.
    for path in ("text", "json/ä"):
        for i in range(7):
            await shop.append(path, b'"more %d"' % i)
        await shop.archive(path)
        chain = (await shop.streams.find(path)).stream.id
        await archiving.merge(shop.lab.store._table, shop.lab.bucket, chain, ENDLESS, 0)
        assert len(await shop.lab.manifests(path)) < 8
    more = await shop.expected()
    after = await asyncio.to_thread(shop.export)
    assert after.messages == len(more) - len(expected) > 10
    assert await shop.messages() == more
    runs = {values[2] for values, _ in shop.partitions()}
    assert runs == {*done.finished, *after.finished}
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
    page = (Path(__file__).parents[2] / "docs/history.md").read_text()
    section = page.partition("\n## export-history\n")[2].partition("\n## ")[0]
    for column in (*COLUMNS, *PARTITIONS):
        assert f"| `{column.name}` | {column.kind} |" in section
    parser = argparse.ArgumentParser()
    export_history.add_arguments(parser)
    flags = [each.option_strings[-1] for each in parser._actions if each.help != argparse.SUPPRESS]
    for flag in flags[1:]:
        assert f"| `{flag}` |" in section


async def small(shop: Shop) -> None:
    """Two streams of two segments, each of which is a part of the plan."""
    for path in ("a", "b"):
        await shop.create(path, TEXT)
        for i in range(7):
            shop.now += DAY // 4
            await shop.append(path, b"%d" % i * 1400)
    await shop.expected()


async def test_a_run_that_is_killed_at_any_step_is_finished_by_the_next(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    await small(shop)

    async def killed(owner: Any, name: str, at: Callable[..., Any]) -> None:
        """A run that ends in the middle of something, after which nothing may be there twice."""
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, at)
            with pytest.raises(Killed):
                await asyncio.to_thread(shop.export)
        found = await shop.messages()
        assert len(set(found)) == len(found)
        ends = {path: await shop.exported(path) for path in "ab"}
        assert {row for row in everything if row[2] < ends[row[0]]} <= set(found)

    everything = await shop.expected()
    register, write = Catalogue.register, Turn.write

    def before(*_: Any) -> None:
        raise Killed

    def planning(*arguments: Any) -> None:
        assert planned(*arguments).count() == 4
        raise Killed

    def writing(spark: SparkSession, plan: Plan, settings: Settings) -> None:
        written(spark, plan._replace(parts=plan.parts[:2]), settings).count()
        raise Killed

    def registering(catalogue: Catalogue, partitions: Iterable[Partition]) -> None:
        register(catalogue, [*partitions][:2])
        raise Killed

    def noting(spark: SparkSession, plan: Plan, settings: Settings) -> None:
        noted(spark, plan._replace(parts=plan.parts[-1:]), settings).count()
        raise Killed

    def ending(turn: Turn, plan: Plan) -> None:
        if plan.state == "done":
            raise Killed
        write(turn, plan)

    await killed(export_history, "planned", planning)
    await killed(export_history, "written", before)
    # Its segments are merged, and the replaced objects go: it is read where it is now.
    for path in "ab":
        chain = (await shop.streams.find(path)).stream.id
        olds = await shop.lab.manifests(path)
        grid = Grid(olds[-1].size, 1 << 60)
        await archiving.merge(shop.lab.store._table, shop.lab.bucket, chain, grid, 0)
        assert len(await shop.lab.manifests(path)) == 1
        await shop.lab.bucket.delete([old.key for old in olds])
    await killed(export_history, "written", writing)
    await killed(Catalogue, "register", registering)
    await killed(export_history, "noted", noting)
    await killed(Turn, "write", ending)
    done = await asyncio.to_thread(shop.export)
    assert len(done.finished) == 1
    assert {values[2] for values, _ in shop.partitions()} == {*done.finished}
    assert await shop.messages() == everything
    assert [await shop.exported(path) for path in "ab"] == [6, 6]
    assert [key for key in shop.lab.objects("export/") if "/_" in key] == [KEY]


@pytest.mark.slow
async def test_a_second_run_ends_unless_the_first_seems_dead_and_then_that_does_no_harm(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    await small(shop)
    # S3 tells ages in whole seconds, and a busy machine renews late.
    shop.lease = "5"
    take = Turn.take
    turns: list[Turn] = []
    others: list[Summary] = []

    def remembered(turn: Turn, *arguments: Any) -> Plan:
        turns.append(turn)
        return take(turn, *arguments)

    def meanwhile(spark: SparkSession, plan: Plan, settings: Settings) -> DataFrame:
        files = written(spark, plan, settings).collect()
        if len(turns) == 1:
            with pytest.raises(ExportUnderWay, match=f"is under way, run {plan.run}: wait"):
                shop.export()
            # It falls silent. One takes over, and then one more runs, before it goes on.
            turns[0]._end.set()
            others.extend([shop.export(), shop.export()])
        return spark.createDataFrame(files, FILES)

    monkeypatch.setattr(Turn, "take", remembered)
    monkeypatch.setattr(export_history, "written", meanwhile)
    with pytest.raises(ExportUnderWay, match="another export has taken over"):
        await asyncio.to_thread(shop.export)
    everything = await shop.expected()
    assert [other.messages for other in others] == [len(everything), 0]
    assert await shop.messages() == everything


async def test_a_damaged_segment_stops_the_run_until_it_is_restored_or_deleted(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All of a stream in one part, so that a file could have one half of it.
    monkeypatch.setattr(plans, "PART_BYTES", 1 << 20)
    await small(shop)
    s3, bucket = shop.s3, shop.lab.settings.bucket
    whole = {}
    for path in "ab":
        key = (await shop.lab.manifests(path))[1].key
        whole[key] = await shop.lab.bucket.get(key)
        s3.put_object(Bucket=bucket, Key=key, Body=whole[key].replace(b"3", b"4", 1))
    everything = await shop.expected("a")

    done = await asyncio.to_thread(shop.export)
    assert [row[:3] for row in done.damaged.shown] == [("a", 3, 6), ("b", 3, 6)]
    assert "its data is damaged" in str(done)
    assert shop.partitions() == []
    assert [await shop.exported(path) for path in "ab"] == [0, 0]

    key, segment = whole.popitem()
    assert s3.delete_object(Bucket=bucket, Key=key)
    await shop.streams.delete("b")
    key, segment = whole.popitem()
    s3.put_object(Bucket=bucket, Key=key, Body=segment)
    done = await asyncio.to_thread(shop.export)
    assert (done.damaged, done.gone) == (NONE, 3)
    assert "left out 3 slots" in str(done)
    found = await shop.messages()
    assert [row for row in found if row[0] == "a"] == everything
    assert len(found) == len(set(found)) == 9


async def test_what_is_missing_holds_a_stream_back_unless_retention_took_it(shop: Shop) -> None:
    await small(shop)
    table = shop.lab.store._table
    for i in range(4):
        await shop.append("a", b"more %d" % i)
    everything = await shop.expected()
    # Of three segments of the one the second is missing, and of the other the first.
    hole, taken = (await shop.lab.manifests("a"))[1], (await shop.lab.manifests("b"))[0]
    item = await table.get(layout.segment_key(hole.chain, hole.first))
    assert item is not None
    await table.transact([actions.remove_segment(hole), actions.remove_segment(taken)])
    name = await archiving.name_of(table, "b")
    assert name is not None
    await trimming.note(table, name, "m", taken.stop)

    # Without the catalogue files are all there is.
    done = await asyncio.to_thread(shop.export, "--catalogue", "false")
    assert (done.damaged, done.gone) == (NONE, 0)
    assert [row[:3] for row in done.held.shown] == [("a", hole.first, hole.stop)]
    assert "the job `audit` says more" in str(done)
    kept = [row for row in everything if row[0] == "a" or row[2] >= taken.stop]
    assert await shop.messages(shop.lab.objects("export/messages/")) == [
        row for row in kept if row[0] == "b" or row[2] < hole.first
    ]
    assert await shop.exported("a") == hole.first

    await table.put_new(item)
    after = await asyncio.to_thread(shop.export, "--catalogue", "false")
    assert after.held == NONE
    assert await shop.messages(shop.lab.objects("export/messages/")) == kept
    databases = shop.glue.get_databases()["DatabaseList"]
    assert shop.database not in [each["Name"] for each in databases]
