"""Which segments an export is about: written down before it begins, in parts.

A part is an object with the segments of one bucket, or some of them: as much as one worker exports
at a time, to one file for each day. What is in a part is decided once, so that whoever exports it,
and however often, makes the same files.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from glue_jobs.exporting.turn import Plan
from glue_jobs.shared.items import PARTS_PER_CORE
from glue_jobs.shared.workers import Backend, Row, for_each, gathered, over
from tailrace.segments.reader import Manifest
from tailrace.settings import Settings
from tailrace.store.dynamodb import layout
from tailrace.store.dynamodb.layout import Name
from tailrace.store.dynamodb.segments import segments_from
from tailrace.store.dynamodb.table import Table
from tailrace.store.dynamodb.trimming import note

FOLDER: Final = "export/_plans/"

PART_BYTES: Final = 128 << 20
"""Bytes of segments at which a part ends: a file has about as many, before it is compressed."""

PART_SEGMENTS: Final = 4096
"""Segments at which a part ends, however small they are: each is a request to S3."""

AT_ONCE: Final = 16
"""Streams whose segments a worker asks for, or whose names it changes, at once."""

LOOKS: Final = 3
"""How often the segments of a stream are read when a merge went on meanwhile."""

PARTS: Final = (
    T.StructType()
    .add("part", T.StringType())
    .add("streams", T.LongType())
    .add("segments", T.LongType())
    .add("stream", T.StringType())
    .add("first", T.LongType())
    .add("stop", T.LongType())
    .add("refused", T.StringType())
)
"""A part of a plan; or slots that cannot be exported, nor can those after them, and why."""

NOTED: Final = T.StructType().add("streams", T.LongType())


class Piece(NamedTuple):
    """Slots of a stream that a segment has, as a part of a plan names them."""

    chain: str
    stream: str
    content_type: str
    bucket: int
    first: int
    stop: int
    key: str
    bytes: int


def planned(names: DataFrame, settings: Settings, run: str, buckets: int) -> DataFrame:
    """The parts that have everything in segments that was not exported."""
    most = PART_BYTES, PART_SEGMENTS

    async def plan(
        backend: Backend, batches: Iterator[pa.RecordBatch]
    ) -> AsyncIterator[Sequence[Row]]:
        rows = (row for batch in batches for row in batch.to_pylist())
        for _, each in groupby(rows, lambda row: row["bucket"]):
            part = _Part(backend, run, *most)
            async for found in gathered((_pieces(backend.table, row) for row in each), AT_ONCE):
                for row in found:
                    if "refused" in row:
                        yield [row]
                    elif part.add(Piece(**row)):
                        yield [await part.end()]
            if part.pieces:
                yield [await part.end()]

    wanted = in_buckets(names.where("archived > exported"), buckets).select(
        "chain", "path", "content_type", "exported", "earliest", "bucket"
    )
    ordered = wanted.repartition(buckets, "bucket").sortWithinPartitions("bucket", "chain")
    return over(ordered, settings, PARTS, plan)


def in_buckets(chains: DataFrame, buckets: int) -> DataFrame:
    return chains.withColumn("bucket", (F.crc32("chain") % buckets).cast("int"))


def noted(spark: SparkSession, plan: Plan, settings: Settings) -> DataFrame:
    """Names remember how far their streams are exported."""

    async def remember(backend: Backend, row: Row) -> Sequence[Row]:
        ends: dict[tuple[str, str], int] = {}
        for piece in await pieces(backend, plan, row["id"]):
            ends[piece.stream, piece.chain] = piece.stop
        calls = (_note(backend.table, *which, stop) for which, stop in ends.items())
        return [row async for some in gathered(calls, AT_ONCE) for row in some]

    few = min(len(plan.parts), PARTS_PER_CORE * spark.sparkContext.defaultParallelism)
    return for_each(parts(spark, plan, few), settings, NOTED, remember, at_once=1)


def parts(spark: SparkSession, plan: Plan, partitions: int) -> DataFrame:
    """The numbers of a plan's parts."""
    return spark.range(len(plan.parts), numPartitions=partitions)


async def pieces(backend: Backend, plan: Plan, part: int) -> Sequence[Piece]:
    """What is in a part, in order."""
    text = await backend.bucket.get(f"{FOLDER}{plan.run}/{plan.parts[part]}")
    return [Piece(*each) for each in orjson.loads(text)]


class _Part:
    """Pieces, until they are enough for a part."""

    def __init__(self, backend: Backend, run: str, most_bytes: int, most_pieces: int) -> None:
        self.pieces: list[Piece] = []
        self._backend = backend
        self._run = run
        self._most = most_bytes, most_pieces
        self._chain = ""
        self._streams = self._bytes = 0

    def add(self, piece: Piece) -> bool:
        """Whether they are enough."""
        self.pieces.append(piece)
        self._bytes += piece.bytes
        if piece.chain != self._chain:
            self._chain = piece.chain
            self._streams += 1
        return self._bytes >= self._most[0] or len(self.pieces) >= self._most[1]

    async def end(self) -> Row:
        # A name of its own: Spark may run a task again, and only what one of them says counts.
        part, done, streams = secrets.token_hex(12), self.pieces, self._streams
        await self._backend.bucket.put(
            f"{FOLDER}{self._run}/{part}", orjson.dumps([*map(list, done)])
        )
        self.pieces, self._streams, self._bytes = [], 0, 0
        return {"part": part, "streams": streams, "segments": len(done)}


async def _pieces(table: Table, row: Row) -> Sequence[dict[str, Any]]:
    """The segments from the first slot on that was not exported, as long as they follow."""
    n, earliest = row["exported"], row["earliest"]
    for _ in range(LOOKS):
        made: list[dict[str, Any]] = []
        end = n
        for manifest in await segments_from(table, int(row["chain"], 16), n):
            if manifest.first > max(end, earliest):
                break
            made.append(_piece(row, manifest, max(n, manifest.first))._asdict())
            end = manifest.stop
        else:
            return made
        # A merge puts one segment in the place of many, and a reader may see neither; retention
        # says what it takes before it does.
        name = await named(table, row["path"], row["chain"])
        if name is None:
            return []  # It was deleted meanwhile.
        earliest = name.earliest
    why = "these slots are in no segment: the job `audit` says more"
    hole = {"stream": row["path"], "first": end, "stop": manifest.first, "refused": why}
    return [*made, hole]


def _piece(row: Row, manifest: Manifest, first: int) -> Piece:
    return Piece(
        row["chain"], row["path"], row["content_type"], row["bucket"], first, manifest.stop,
        manifest.key, manifest.data_bytes,
    )  # fmt: skip


async def named(table: Table, path: str, chain: str) -> Name | None:
    """The name of a stream, unless it was deleted."""
    item = await table.get(layout.name_key(path))
    return layout.name_of(item) if item is not None and item["i"]["S"] == chain else None


async def _note(table: Table, path: str, chain: str, stop: int) -> Sequence[Row]:
    name = await named(table, path, chain)
    if name is None or name.exported >= stop:
        return []
    await note(table, name, "e", stop)
    return [{"streams": 1}]
