"""The plan of an export: its segments, stored in parts before the export begins.

A part is an object that lists segments of one bucket: as many as a worker exports at a time, to one
file per day. Its contents are fixed, so every attempt at exporting it creates the same files.
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

from glue_jobs.exporting.export_lease import Plan
from glue_jobs.shared.items import PARTS_PER_CORE
from glue_jobs.shared.workers import Backend, Row, gather_batches, map_partitions, map_rows
from tailrace.segments.reader import Manifest
from tailrace.settings import Settings
from tailrace.store.dynamodb import layout
from tailrace.store.dynamodb.layout import Name
from tailrace.store.dynamodb.segments import segments_from
from tailrace.store.dynamodb.table import Table
from tailrace.store.dynamodb.trimming import advance_pointer

FOLDER: Final = "export/_plans/"

PART_BYTES: Final = 128 << 20
"""The size of a part in bytes of segments: about that of a file before compression."""

PART_SEGMENTS: Final = 4096
"""The most segments of a part: each is a request to S3."""

AT_ONCE: Final = 16
"""Streams that a worker processes concurrently."""

MAX_READS: Final = 3
"""How often a stream's segments are read if concurrent merges interfere."""

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
"""A part of a plan; or slots that cannot be exported, with the reason, which end the export of
their stream."""

RECORDED: Final = T.StructType().add("streams", T.LongType())


class Piece(NamedTuple):
    """Slots of a stream in one segment, as listed in a part."""

    chain: str
    stream: str
    content_type: str
    bucket: int
    first: int
    stop: int
    key: str
    bytes: int


def plan_parts(names: DataFrame, settings: Settings, run: str, buckets: int) -> DataFrame:
    """Write parts with all archived slots that were not exported; return a row per part."""
    most = PART_BYTES, PART_SEGMENTS

    async def plan(
        backend: Backend, batches: Iterator[pa.RecordBatch]
    ) -> AsyncIterator[Sequence[Row]]:
        rows = (row for batch in batches for row in batch.to_pylist())
        for _, each in groupby(rows, lambda row: row["bucket"]):
            part = _Part(backend, run, *most)
            streams = (_unexported(backend.table, row) for row in each)
            async for batch in gather_batches(streams, AT_ONCE):
                for row in batch:
                    if "refused" in row:
                        yield [row]
                    elif part.add(Piece(**row)):
                        yield [await part.end()]
            if part.pieces:
                yield [await part.end()]

    unexported = assign_buckets(names.where("archived > exported"), buckets).select(
        "chain", "path", "content_type", "exported", "earliest", "bucket"
    )
    ordered = unexported.repartition(buckets, "bucket").sortWithinPartitions("bucket", "chain")
    return map_partitions(ordered, settings, PARTS, plan)


def assign_buckets(chains: DataFrame, buckets: int) -> DataFrame:
    return chains.withColumn("bucket", (F.crc32("chain") % buckets).cast("int"))


def record_progress(spark: SparkSession, plan: Plan, settings: Settings) -> DataFrame:
    """Store in names how far their streams are exported."""

    async def record(backend: Backend, row: Row) -> Sequence[Row]:
        ends: dict[tuple[str, str], int] = {}
        for piece in await read_pieces(backend, plan, row["id"]):
            ends[piece.stream, piece.chain] = piece.stop
        calls = (_record(backend.table, *stream, stop) for stream, stop in ends.items())
        return [row async for some in gather_batches(calls, AT_ONCE) for row in some]

    partitions = min(len(plan.parts), PARTS_PER_CORE * spark.sparkContext.defaultParallelism)
    return map_rows(part_numbers(spark, plan, partitions), settings, RECORDED, record, at_once=1)


def part_numbers(spark: SparkSession, plan: Plan, partitions: int) -> DataFrame:
    """The numbers of a plan's parts."""
    return spark.range(len(plan.parts), numPartitions=partitions)


async def read_pieces(backend: Backend, plan: Plan, part: int) -> Sequence[Piece]:
    """Read the pieces of a part, in order."""
    text = await backend.bucket.get(f"{FOLDER}{plan.run}/{plan.parts[part]}")
    return [Piece(*each) for each in orjson.loads(text)]


class _Part:
    """Collects the pieces of a part."""

    def __init__(self, backend: Backend, run: str, most_bytes: int, most_pieces: int) -> None:
        self.pieces: list[Piece] = []
        self._backend = backend
        self._run = run
        self._most = most_bytes, most_pieces
        self._chain = ""
        self._streams = self._bytes = 0

    def add(self, piece: Piece) -> bool:
        """Add a piece; return whether the part is full."""
        self.pieces.append(piece)
        self._bytes += piece.bytes
        if piece.chain != self._chain:
            self._chain = piece.chain
            self._streams += 1
        return self._bytes >= self._most[0] or len(self.pieces) >= self._most[1]

    async def end(self) -> Row:
        # A unique name: Spark may repeat a task, and the plan lists the parts of one attempt only.
        part, pieces, streams = secrets.token_hex(12), self.pieces, self._streams
        await self._backend.bucket.put(
            f"{FOLDER}{self._run}/{part}", orjson.dumps([*map(list, pieces)])
        )
        self.pieces, self._streams, self._bytes = [], 0, 0
        return {"part": part, "streams": streams, "segments": len(pieces)}


async def _unexported(table: Table, row: Row) -> Sequence[dict[str, Any]]:
    """List consecutive segments from the first unexported slot on; end with a refusal at a gap."""
    n, earliest = row["exported"], row["earliest"]
    for _ in range(MAX_READS):
        listed: list[dict[str, Any]] = []
        end = n
        for manifest in await segments_from(table, int(row["chain"], 16), n):
            if manifest.first > max(end, earliest):
                break
            listed.append(_piece(row, manifest, max(n, manifest.first))._asdict())
            end = manifest.stop
        else:
            return listed
        # A merge replaces many segments by one, and a read may see neither. Retention advances
        # `earliest` before it removes segments.
        name = await current_name(table, row["path"], row["chain"])
        if name is None:
            return []  # The stream was deleted meanwhile.
        earliest = name.earliest
    reason = "these slots are in no segment: run the job `audit`"
    gap = {"stream": row["path"], "first": end, "stop": manifest.first, "refused": reason}
    return [*listed, gap]


def _piece(row: Row, manifest: Manifest, first: int) -> Piece:
    return Piece(
        row["chain"], row["path"], row["content_type"], row["bucket"], first, manifest.stop,
        manifest.key, manifest.data_bytes,
    )  # fmt: skip


async def current_name(table: Table, path: str, chain: str) -> Name | None:
    """Get the name of a stream; None if it was deleted."""
    item = await table.get(layout.name_key(path))
    return layout.name_of(item) if item is not None and item["incarnation"]["S"] == chain else None


async def _record(table: Table, path: str, chain: str, stop: int) -> Sequence[Row]:
    name = await current_name(table, path, chain)
    if name is None or name.exported >= stop:
        return []
    await advance_pointer(table, name, layout.EXPORTED, stop)
    return [{"streams": 1}]
