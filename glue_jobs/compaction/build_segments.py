"""Builds segments from entries and uploads them: one for each full cell of the grid.

Rows are sorted by chain and slot, and all rows of a cell are in one partition. A worker holds one
cell at a time, whose size is bounded; the result for a cell does not depend on other cells.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from glue_jobs.shared.workers import Backend, Row, map_partitions
from tailrace.errors import DamagedData
from tailrace.limits import SEGMENT_SLOTS
from tailrace.log.content import Mode, length
from tailrace.log.slots import split
from tailrace.log.state import Part
from tailrace.segments.format import Authors, BadSegment, Parts
from tailrace.segments.merge import Grid
from tailrace.settings import Settings
from tailrace.store.codec import parts_of, state_of
from tailrace.store.dynamodb.bodies import read_body
from tailrace.store.dynamodb.segments import upload

UPLOADS: Final = 8
"""Objects that a worker uploads concurrently."""

CELLS: Final = (
    T.StructType()
    .add("cell", T.LongType())
    .add("chain", T.StringType())
    .add("mode", T.StringType())
    .add("n", T.LongType())
    .add("offset", T.LongType())
    .add("size", T.LongType())
    .add("length", T.LongType())
    .add("at", T.LongType())
    .add("body", T.BinaryType())
    .add("key", T.StringType())
    .add("rest", T.StringType())
    .add("parts", T.StringType())
)
"""An entry and its cell."""

SEGMENTS: Final = (
    T.StructType()
    .add("chain", T.StringType())
    .add("first", T.LongType())
    .add("stop", T.LongType())
    .add("key", T.StringType())
    .add("data_bytes", T.LongType())
    .add("index_bytes", T.LongType())
    .add("index_checksum", T.LongType())
    .add("committed_at", T.LongType())
    .add("level", T.LongType())
    .add("begin", T.LongType())
    .add("offset", T.LongType())
    .add("size", T.LongType())
    .add("begin_offset", T.LongType())
    .add("refused", T.StringType())
)
"""The fields of a manifest and the offset before the first slot, or the reason for a refusal."""


class Rules(NamedTuple):
    """A cell becomes a segment when it is full, or has enough messages or bytes."""

    grid: Grid
    messages: int
    bytes: int
    now: int

    @classmethod
    def of(cls, settings: Settings, now: int) -> Rules:
        return cls(
            Grid(settings.segment_target_bytes, SEGMENT_SLOTS),
            settings.segment_max_messages,
            settings.segment_max_bytes,
            now,
        )


def select_unarchived(entries: DataFrame) -> DataFrame:
    """Select the entries of named chains that are in no segment."""
    return entries.where("n >= archived")


def assign_cells(entries: DataFrame, grid: Grid) -> DataFrame:
    """Partition entries by cell, in order; the cells of one chain are spread over workers."""
    cells = entries.withColumn("row", F.floor((F.col("size") - F.col("length")) / grid.bytes))
    cells = cells.withColumn("column", F.floor(F.col("n") / grid.slots))
    cells = cells.withColumn("cell", F.xxhash64("chain", "row", "column"))
    cells = cells.repartition("cell").sortWithinPartitions("chain", "n")
    return cells.select(CELLS.names)


def build_segments(cells: DataFrame, settings: Settings, rules: Rules) -> DataFrame:
    """Build and upload segments; return a row for each, and for each refused cell."""
    return map_partitions(cells, settings, SEGMENTS, partial(_build_all, rules=rules))


async def _build_all(
    backend: Backend, batches: Iterator[pa.RecordBatch], rules: Rules
) -> AsyncIterator[Sequence[Row]]:
    pending: list[Awaitable[Row]] = []
    for cell in _cells(batches):
        result = await _build_segment(backend, cell, rules)
        if isinstance(result, Parts):
            pending.append(_upload(backend, result, rules.now))
        elif result is not None:
            yield [result]
        if len(pending) >= UPLOADS:
            yield await asyncio.gather(*pending)
            pending = []
    yield await asyncio.gather(*pending)


def _cells(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows of each cell, which may span batches."""
    held: list[pa.RecordBatch] = []
    cell = None
    for batch in batches:
        cells = batch.column("cell").to_numpy()
        edges = [0, *(np.flatnonzero(np.diff(cells)) + 1), len(cells)]
        for begin, end in pairwise(edges):
            if begin == end:
                continue
            if held and cells[begin] != cell:
                yield pa.Table.from_batches(held)
                held = []
            cell = cells[begin]
            held.append(batch.slice(begin, end - begin))
    if held:
        yield pa.Table.from_batches(held)


async def _build_segment(backend: Backend, cell: pa.Table, rules: Rules) -> Parts | Row | None:
    """Build a cell's segment; a row with the reason if it is refused; None if not full yet."""
    n = cell.column("n").to_numpy()
    duplicates = np.flatnonzero(np.diff(n) == 0)
    if len(duplicates):  # Exports may overlap; a slot has the same entry in all of them.
        cell = cell.take(np.delete(np.arange(len(n)), duplicates + 1))
        n = cell.column("n").to_numpy()
    chain = cell.column("chain")[0].as_py()
    mode = Mode(cell.column("mode")[0].as_py())
    sizes = cell.column("size").to_numpy()
    first, begin = int(n[0]), int(sizes[0]) - cell.column("length")[0].as_py()
    end = rules.grid.cell(int(n[-1]) + 1, int(sizes[-1]))
    full = end != rules.grid.cell(first, begin)
    if not full and len(n) < rules.messages and int(sizes[-1]) - begin < rules.bytes:
        return None
    try:
        bodies = await _bodies(backend, cell)
        return _parts(chain, mode, n, sizes, cell, bodies)
    except (BadSegment, DamagedData) as error:
        return {"chain": chain, "first": first, "stop": int(n[-1]) + 1, "refused": str(error)}


async def _bodies(backend: Backend, cell: pa.Table) -> list[bytes]:
    bodies: list[bytes | None] = cell.column("body").to_pylist()
    large = [i for i, body in enumerate(bodies) if body is None]
    keys = cell.column("key")
    for at in range(0, len(large), UPLOADS):
        places = large[at : at + UPLOADS]
        fetched = await asyncio.gather(
            *(read_body(backend.bucket, keys[i].as_py()) for i in places)
        )
        for i, body in zip(places, fetched, strict=True):
            bodies[i] = body
    return [body for body in bodies if body is not None]


def _parts(
    chain: str, mode: Mode, n: Any, sizes: Any, cell: pa.Table, bodies: list[bytes]
) -> Parts:
    """Build the parts of a segment from its entries and their bodies, which it may change; raise
    BadSegment if they are not consecutive, or do not consist of their appends."""
    slot_lengths = np.fromiter(map(len, bodies), np.int64, len(bodies))
    offsets, times = cell.column("offset").to_numpy(), cell.column("at").to_numpy()
    offset = int(offsets[0]) - _first_step(mode, cell, bodies[0])
    size = int(sizes[0]) - int(slot_lengths[0])
    slot_steps = np.diff(offsets, prepend=offset)
    pauses = np.diff(times, prepend=0)
    follows = (
        (np.diff(n, prepend=n[0] - 1) == 1)
        & (np.diff(sizes, prepend=size) == slot_lengths)
        & (slot_steps >= 0)
        & (pauses >= 0)
    )
    if not follows.all():
        slot = int(n[np.flatnonzero(~follows)[0]])
        raise BadSegment(f"slot {slot} of {chain} does not follow the one before it")
    lengths, steps, counts, authors = array("Q"), array("Q"), array("Q"), Authors()
    for i, appends in enumerate(_appends(cell, slot_lengths, slot_steps)):
        if _total(appends) != (slot_lengths[i], slot_steps[i]):
            raise BadSegment(f"slot {n[i]} of {chain} does not consist of its appends")
        counts.append(len(appends))
        for part in appends:
            lengths.append(part.length)
            steps.append(part.step)
            authors.add(part.author)
        if mode is Mode.JSON and len(appends) > 1:
            bodies[i] = b",".join(split(bodies[i], appends))
    data = (b"," if mode is Mode.JSON else b"").join(bodies)
    return Parts(
        int(chain, 16), mode, int(n[0]), offset, size, lengths, steps,
        array("Q", pauses.astype(np.uint64).tobytes()), *authors.columns(), data, counts,
    )  # fmt: skip


def _first_step(mode: Mode, cell: pa.Table, body: bytes) -> int:
    """By how much the first entry of a cell advances the offset."""
    parts = cell.column("parts")[0].as_py()
    return length(mode, body) if parts is None else _total(parts_of(parts.encode()))[1]


def _appends(cell: pa.Table, lengths: Any, steps: Any) -> Iterator[Sequence[Part]]:
    """Yield the appends of each entry of a cell."""
    texts = (cell.column(name).to_pylist() for name in ("parts", "rest"))
    for parts, rest, size, step in zip(*texts, lengths.tolist(), steps.tolist(), strict=True):
        if parts is not None:
            yield parts_of(parts.encode())
        else:
            produced = rest is not None and '"w":1' in rest
            author = state_of(0, 0, 0, 0, rest.encode()).author if produced else None
            yield [Part(size, step, author)]


def _total(appends: Sequence[Part]) -> tuple[int, int]:
    """Return length and step of all appends together."""
    return sum(part.length for part in appends), sum(part.step for part in appends)


async def _upload(backend: Backend, parts: Parts, now: int) -> Row:
    row = (await upload(backend.bucket, parts, now))._asdict()
    return row | {"chain": f"{parts.chain:016x}", "begin_offset": parts.offset}
