"""Reads whole segments, and compares them with their manifests and with the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, islice, pairwise, repeat
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from glue_jobs.shared.metadata import checksum
from glue_jobs.shared.workers import Backend, Row, map_rows
from tailrace.errors import DamagedData, StoreUnavailable
from tailrace.log.content import Mode
from tailrace.segments.format import BadSegment, Parts, Trailer, unpack
from tailrace.segments.reader import Manifest
from tailrace.settings import Settings

AT_ONCE: Final = 3
"""Segments that a worker reads concurrently; each needs twice its size in memory."""

VERIFIED: Final = (
    T.StructType()
    .add("chain", T.StringType())
    .add("path", T.StringType())
    .add("key", T.StringType())
    .add("wrong", T.BooleanType())
    .add("n", T.LongType())
    .add("offset", T.LongType())
    .add("size", T.LongType())
    .add("at", T.LongType())
    .add("checksum", T.LongType())
)
"""A row per slot that may also be in the table, or one row for a damaged segment."""


def verify_objects(manifests: DataFrame, settings: Settings) -> DataFrame:
    """Verify segments, given as manifests with the path, mode and `let_go` of their streams."""

    async def verify(backend: Backend, row: Row) -> Sequence[Row]:
        columns = {name: row[name] for name in ("chain", "path", "key")}
        wrong = [{**columns, "wrong": True, "n": row["first"]}]
        if any(row[name] is None for name in Manifest._fields if name in row):
            return []  # The check `manifests` reports this.
        manifest = Manifest(
            **{name: row[name] for name in Manifest._fields if name in row and name != "chain"},
            chain=int(row["chain"], 16),
            committed_at=0,
        )
        try:
            parts = open_segment(await backend.bucket.get(row["key"]), manifest, Mode(row["mode"]))
        except (BadSegment, DamagedData, StoreUnavailable):
            return wrong
        return [{**columns, "wrong": False, **each} for each in segment_slots(parts, row["let_go"])]

    spread = manifests.repartition("key")
    return map_rows(spread, settings, VERIFIED, verify, AT_ONCE)


def open_segment(segment: bytes, manifest: Manifest, mode: Mode) -> Parts:
    """Unpack a segment; raise BadSegment if it is damaged or differs from its manifest."""
    parts, trailer = unpack(segment), Trailer.read(segment)
    offset, size = parts.end
    for field, value, expected in (
        ("its chain", f"{parts.chain:016x}", f"{manifest.chain:016x}"),
        ("its mode", parts.mode.value, mode.value),
        ("its first slot", parts.first, manifest.first),
        ("the slot after it", parts.stop, manifest.stop),
        ("the size before it", parts.size, manifest.begin),
        ("the offset after it", offset, manifest.offset),
        ("the size after it", size, manifest.size),
        ("the length of its data", trailer.data_bytes, manifest.data_bytes),
        ("the length of its index", trailer.index_bytes, manifest.index_bytes),
        ("the checksum of its index", trailer.index_checksum, manifest.index_checksum),
    ):
        if value != expected:
            raise BadSegment(f"{field} is {value}, but {expected} in its manifest")
    return parts


def segment_slots(parts: Parts, first: int) -> Iterator[Row]:
    """Yield the slots of a segment from `first` on."""
    offsets = list(accumulate(parts.steps, initial=parts.offset))
    sizes = list(accumulate(parts.lengths, initial=parts.size))
    bodies = parts.bodies()
    begins = accumulate(parts.counts or repeat(1, len(parts.pauses)), initial=0)
    slots = zip(
        range(parts.first, parts.stop), pairwise(begins), accumulate(parts.pauses), strict=True
    )
    for n, (begin, end), at in slots:
        held = list(islice(bodies, end - begin))
        if n >= first:
            yield {
                "n": n,
                "offset": offsets[end],
                "size": sizes[end],
                "at": at,
                "checksum": checksum(held, parts.steps[begin:end]),
            }
