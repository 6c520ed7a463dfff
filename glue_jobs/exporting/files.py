"""The Parquet files of an export, one for each day and part of the plan."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from glue_jobs.exporting.export_lease import Plan
from glue_jobs.exporting.messages import SCHEMA, messages
from glue_jobs.exporting.plans import Piece, current_name, part_numbers, read_pieces
from glue_jobs.shared.workers import Backend, Row, map_rows
from tailrace.errors import DamagedData
from tailrace.segments.format import BadSegment, Parts, unpack
from tailrace.settings import Settings
from tailrace.store.dynamodb.segments import covering

FOLDER: Final = "export/messages/"

HELD_BYTES: Final = 64 << 20
"""Buffered rows of a part at which a row group is written: the largest row group."""

READ_BYTES: Final = 64 << 20
READS: Final = 16
"""Limits of the segments that a worker reads concurrently."""

MAX_READS: Final = 3
"""How often a segment is looked up if concurrent merges remove it."""

DICTIONARY_COLUMNS: Final = ["stream", "incarnation", "content_type", "producer_id"]
"""Columns with repeated values, which compress well with a dictionary."""

FILES: Final = (
    T.StructType()
    .add("day", T.StringType())
    .add("bucket", T.IntegerType())
    .add("messages", T.LongType())
    .add("bytes", T.LongType())
    .add("stream", T.StringType())
    .add("first", T.LongType())
    .add("stop", T.LongType())
    .add("refused", T.StringType())
)
"""A file; or slots in no file, with the reason, or without one if they were deleted meanwhile."""

MISSING: Final = ("stream", "first", "stop", "refused")


def write_files(spark: SparkSession, plan: Plan, settings: Settings) -> DataFrame:
    """Write the files of all parts of a plan; files that exist are not replaced."""

    async def write(backend: Backend, row: Row) -> Sequence[Row]:
        return await _write(backend, plan, row["id"])

    # One task per part, so that a large part does not delay others.
    numbers = part_numbers(spark, plan, len(plan.parts))
    return map_rows(numbers, settings, FILES, write, at_once=1)


def partition_folder(day: str, bucket: int, run: str) -> str:
    """The folder of a partition in Hive's naming."""
    return f"{FOLDER}day={day}/bucket={bucket}/run={run}/"


class _Slots(NamedTuple):
    """Slots of a stream, and the segment that has them."""

    stream: str
    content_type: str
    first: int
    stop: int
    parts: Parts | None
    refused: str | None = None
    """Why they cannot be read; None if they were read, or were deleted meanwhile."""


async def _write(backend: Backend, plan: Plan, part: int) -> Sequence[Row]:
    days = _Days()
    missing: list[Row] = []
    pieces = await read_pieces(backend, plan, part)
    async for slots in _read_slots(backend, pieces):
        try:
            for day, rows in _messages(slots):
                days.add(day, rows)
        except BadSegment as error:
            slots = slots._replace(parts=None, refused=str(error))
        if slots.parts is None:
            missing.append({name: getattr(slots, name) for name in MISSING})
    if any(row["refused"] for row in missing):
        # Files are never replaced: this one could not get its missing slots later.
        return missing
    bucket = pieces[0].bucket
    files = [
        (f"{partition_folder(day, bucket, plan.run)}{plan.parts[part]}.parquet", day, rows, data)
        for day, rows, data in days.end()
    ]
    await asyncio.gather(*(backend.bucket.put(key, data) for key, _, _, data in files))
    return missing + [
        {"day": day, "bucket": bucket, "messages": rows, "bytes": len(data)}
        for _, day, rows, data in files
    ]


def _messages(slots: _Slots) -> Iterator[tuple[str, pa.Table]]:
    if slots.parts is None:
        return iter(())
    return messages(slots.parts, slots.stream, slots.content_type, slots.first, slots.stop)


class _Days:
    """Writes the files of a part, a row group at a time."""

    def __init__(self) -> None:
        self._held: dict[str, list[pa.Table]] = {}
        self._bytes: Counter[str] = Counter()
        self._rows: Counter[str] = Counter()
        self._files: dict[str, tuple[pa.BufferOutputStream, pq.ParquetWriter]] = {}

    def add(self, day: str, rows: pa.Table) -> None:
        self._held.setdefault(day, []).append(rows)
        self._bytes[day] += rows.nbytes
        self._rows[day] += len(rows)
        while self._bytes.total() > HELD_BYTES:
            self._write(self._bytes.most_common(1)[0][0])

    def end(self) -> Iterator[tuple[str, int, bytes]]:
        """Yield the days, each with its number of rows and its file."""
        for day, rows in self._rows.items():
            self._write(day)
            sink, writer = self._files.pop(day)
            writer.close()
            yield day, rows, sink.getvalue().to_pybytes()

    def _write(self, day: str) -> None:
        if day not in self._files:
            sink = pa.BufferOutputStream()
            writer = pq.ParquetWriter(
                sink, SCHEMA, compression="zstd", use_dictionary=DICTIONARY_COLUMNS
            )
            self._files[day] = sink, writer
        held = self._held.pop(day, [])
        del self._bytes[day]
        if held:
            self._files[day][1].write_table(pa.concat_tables(held))


async def _read_slots(backend: Backend, pieces: Sequence[Piece]) -> AsyncIterator[_Slots]:
    """Read the slots of pieces, in order."""
    for batch in _batches(pieces):
        for read in await asyncio.gather(*(_read(backend, piece) for piece in batch)):
            for slots in read:
                yield slots


def _batches(pieces: Sequence[Piece]) -> Iterator[Sequence[Piece]]:
    batch: list[Piece] = []
    size = 0
    for piece in pieces:
        if batch and (len(batch) == READS or size + piece.bytes > READ_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(piece)
        size += piece.bytes
    yield batch


async def _read(backend: Backend, piece: Piece) -> Sequence[_Slots]:
    read: list[_Slots] = []
    n, key = piece.first, piece.key
    while n < piece.stop:
        read.append(await _slots(backend, piece, n, key))
        n, key = read[-1].stop, ""
    return read


async def _slots(backend: Backend, piece: Piece, n: int, key: str) -> _Slots:
    """Read slots from `n` on, from the planned object or the segment that has them now."""
    about = piece.stream, piece.content_type, n
    chain = int(piece.chain, 16)
    reason = "they are in no segment"
    for _ in range(MAX_READS):
        if key:
            try:
                parts = await _segment(backend, key, chain, n)
                return _Slots(*about, min(piece.stop, parts.stop), parts)
            except BadSegment as error:
                reason = f"{key}: {error}"
        manifest = await covering(backend.table, chain, n)
        key = "" if manifest is None else manifest.key
    name = await current_name(backend.table, piece.stream, piece.chain)
    if name is None:
        return _Slots(*about, piece.stop, None)
    if name.earliest > n:
        return _Slots(*about, min(piece.stop, name.earliest), None)
    return _Slots(*about, piece.stop, None, reason)


async def _segment(backend: Backend, key: str, chain: int, n: int) -> Parts:
    try:
        parts = unpack(await backend.bucket.get(key))
    except DamagedData as error:
        raise BadSegment("the object does not exist") from error
    if parts.chain != chain or not parts.first <= n < parts.stop:
        raise BadSegment(f"it does not have slot {n} of {chain:016x}")
    return parts
