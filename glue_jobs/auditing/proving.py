"""Segments are read, whole, and compared with their manifests; then with what is in the table."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from glue_jobs.shared.workers import Backend, Row, for_each
from tailrace.errors import StoreUnavailable
from tailrace.log.content import Mode
from tailrace.segments.format import BadSegment, Parts, Trailer, unpack
from tailrace.segments.reader import Manifest
from tailrace.settings import Settings

AT_ONCE: Final = 3
"""Segments that a worker holds at once, each twice."""

PROVED: Final = (
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
"""A row for each slot that may be in the table as well, or one for a segment that is wrong."""


def proved(manifests: DataFrame, settings: Settings) -> DataFrame:
    """Manifests, each with the path and mode of its stream and `let_go`."""

    async def prove(backend: Backend, row: Row) -> Sequence[Row]:
        known = {name: row[name] for name in ("chain", "path", "key")}
        wrong = [{**known, "wrong": True, "n": row["first"]}]
        if any(row[name] is None for name in Manifest._fields if name in row):
            return []  # Where manifests are compared, this is told.
        manifest = Manifest(
            **{name: row[name] for name in Manifest._fields if name in row and name != "chain"},
            chain=int(row["chain"], 16),
            committed_at=0,
        )
        try:
            parts = opened(await backend.bucket.get(row["key"]), manifest, Mode(row["mode"]))
        except (BadSegment, StoreUnavailable):
            return wrong
        return [{**known, "wrong": False, **each} for each in slots(parts, row["let_go"])]

    spread = manifests.repartition("key")
    return for_each(spread, settings, PROVED, prove, AT_ONCE)


def opened(segment: bytes, manifest: Manifest, mode: Mode) -> Parts:
    """A segment taken apart; `BadSegment` when it is damaged, or not what its manifest says."""
    parts, trailer = unpack(segment), Trailer.read(segment)
    offset, size = parts.end
    for what, is_, said in (
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
        if is_ != said:
            raise BadSegment(f"{what} is {is_}, but for its manifest {said}")
    return parts


def slots(parts: Parts, first: int) -> Iterator[Row]:
    """The slots of a segment from `first` on."""
    columns = zip(
        range(parts.first, parts.stop),
        list(accumulate(parts.steps, initial=parts.offset))[1:],
        list(accumulate(parts.lengths, initial=parts.size))[1:],
        accumulate(parts.pauses),
        parts.bodies(),
        strict=True,
    )
    for n, offset, size, at, body in columns:
        if n >= first:
            checksum = zlib.crc32(body)
            yield {"n": n, "offset": offset, "size": size, "at": at, "checksum": checksum}
