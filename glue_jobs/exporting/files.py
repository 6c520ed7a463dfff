"""The files of an export: Parquet, one for each day and part of the plan."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from glue_jobs.exporting.messages import SCHEMA, messages
from glue_jobs.exporting.plans import Piece, named, parts, pieces
from glue_jobs.exporting.turn import Plan
from glue_jobs.shared.workers import Backend, Row, for_each
from tailrace.errors import StoreUnavailable
from tailrace.segments.format import BadSegment, Parts, unpack
from tailrace.settings import Settings
from tailrace.store.dynamodb.segments import TableManifests

FOLDER: Final = "export/messages/"

HELD_BYTES: Final = 64 << 20
"""Rows in memory, of all days of a part, at which some are written: the largest row group."""

READ_BYTES: Final = 64 << 20
READS: Final = 16
"""Segments that a worker reads at once: so many, and no more bytes."""

LOOKS: Final = 3
"""How often a segment is looked for that is merged away while it is read."""

REPEATED: Final = ["stream", "incarnation", "content_type", "producer_id"]
"""Columns whose values are worth a dictionary."""

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
"""A file; or slots that are in none, and why: without a reason they were deleted meanwhile."""

MISSING: Final = ("stream", "first", "stop", "refused")


def written(spark: SparkSession, plan: Plan, settings: Settings) -> DataFrame:
    """The files of all parts of a plan, of which those that are there already stay as they are."""

    async def write(backend: Backend, row: Row) -> Sequence[Row]:
        return await _write(backend, plan, row["id"])

    # Each is a task: a large one does not keep others waiting behind it.
    each = parts(spark, plan, len(plan.parts))
    return for_each(each, settings, FILES, write, at_once=1)


def place(day: str, bucket: int, run: str) -> str:
    """The folder of a partition, named as Hive does."""
    return f"{FOLDER}day={day}/bucket={bucket}/run={run}/"


class _Slots(NamedTuple):
    """Slots of a stream, and the segment that they were found in."""

    stream: str
    content_type: str
    first: int
    stop: int
    parts: Parts | None
    refused: str | None = None
    """Why they cannot be read. Without a reason they were deleted, and nobody misses them."""


async def _write(backend: Backend, plan: Plan, part: int) -> Sequence[Row]:
    days = _Days()
    missing: list[Row] = []
    wanted = await pieces(backend, plan, part)
    async for found in _found(backend, wanted):
        try:
            for day, rows in _messages(found):
                days.add(day, rows)
        except BadSegment as error:
            found = found._replace(parts=None, refused=str(error))
        if found.parts is None:
            missing.append({name: getattr(found, name) for name in MISSING})
    if any(row["refused"] for row in missing):
        # A file that is there stays as it is: this one would never get the rest of its slots.
        return missing
    bucket = wanted[0].bucket
    made = [
        (f"{place(day, bucket, plan.run)}{plan.parts[part]}.parquet", day, rows, data)
        for day, rows, data in days.end()
    ]
    await asyncio.gather(*(backend.bucket.put(key, data) for key, _, _, data in made))
    return missing + [
        {"day": day, "bucket": bucket, "messages": rows, "bytes": len(data)}
        for _, day, rows, data in made
    ]


def _messages(found: _Slots) -> Iterator[tuple[str, pa.Table]]:
    if found.parts is None:
        return iter(())
    return messages(found.parts, found.stream, found.content_type, found.first, found.stop)


class _Days:
    """The files of a part, a row group at a time."""

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
        """Days, the rows of each, and the file."""
        for day, rows in self._rows.items():
            self._write(day)
            sink, writer = self._files.pop(day)
            writer.close()
            yield day, rows, sink.getvalue().to_pybytes()

    def _write(self, day: str) -> None:
        if day not in self._files:
            sink = pa.BufferOutputStream()
            writer = pq.ParquetWriter(sink, SCHEMA, compression="zstd", use_dictionary=REPEATED)
            self._files[day] = sink, writer
        held = self._held.pop(day, [])
        del self._bytes[day]
        if held:
            self._files[day][1].write_table(pa.concat_tables(held))


async def _found(backend: Backend, wanted: Sequence[Piece]) -> AsyncIterator[_Slots]:
    """What a part names, in order."""
    for some in _handfuls(wanted):
        for found in await asyncio.gather(*(_read(backend, piece) for piece in some)):
            for slots in found:
                yield slots


def _handfuls(wanted: Sequence[Piece]) -> Iterator[Sequence[Piece]]:
    some: list[Piece] = []
    size = 0
    for piece in wanted:
        if some and (len(some) == READS or size + piece.bytes > READ_BYTES):
            yield some
            some, size = [], 0
        some.append(piece)
        size += piece.bytes
    yield some


async def _read(backend: Backend, piece: Piece) -> Sequence[_Slots]:
    made: list[_Slots] = []
    n, key = piece.first, piece.key
    while n < piece.stop:
        made.append(await _slots(backend, piece, n, key))
        n, key = made[-1].stop, ""
    return made


async def _slots(backend: Backend, piece: Piece, n: int, key: str) -> _Slots:
    """Slots from `n` on, from the object that the plan names, or from wherever they are by now."""
    about = piece.stream, piece.content_type, n
    chain = int(piece.chain, 16)
    why = "they are in no segment"
    for _ in range(LOOKS):
        if key:
            try:
                parts = await _segment(backend, key, chain, n)
                return _Slots(*about, min(piece.stop, parts.stop), parts)
            except BadSegment as error:
                why = f"{key}: {error}"
        manifest = await TableManifests(backend.table).covering(chain, n)
        key = "" if manifest is None else manifest.key
    name = await named(backend.table, piece.stream, piece.chain)
    if name is None:
        return _Slots(*about, piece.stop, None)
    if name.earliest > n:
        return _Slots(*about, min(piece.stop, name.earliest), None)
    return _Slots(*about, piece.stop, None, why)


async def _segment(backend: Backend, key: str, chain: int, n: int) -> Parts:
    try:
        parts = unpack(await backend.bucket.get(key))
    except StoreUnavailable as error:
        answer = getattr(error.__cause__, "response", {})
        if answer.get("Error", {}).get("Code") != "NoSuchKey":
            raise
        raise BadSegment("there is no such object") from error
    if parts.chain != chain or not parts.first <= n < parts.stop:
        raise BadSegment(f"it does not have slot {n} of {chain:016x}")
    return parts
