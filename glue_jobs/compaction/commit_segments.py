"""Commits uploaded segments to their chains, one after another in order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import groupby
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from glue_jobs.shared.workers import Backend, Row, gather_batches, map_partitions
from tailrace.clock import system_clock
from tailrace.limits import UNCOMMITTED_SEGMENT_SECONDS
from tailrace.segments.format import BadSegment
from tailrace.segments.reader import Manifest
from tailrace.settings import Settings
from tailrace.store.codec import stream_of
from tailrace.store.dynamodb.segments import check, commit

AT_ONCE: Final = 16
"""Chains that a worker commits concurrently."""

COMMITS: Final = (
    T.StructType()
    .add("chain", T.StringType())
    .add("path", T.StringType())
    .add("first", T.LongType())
    .add("stop", T.LongType())
    .add("bytes", T.LongType())
    .add("outcome", T.StringType())
    .add("reason", T.StringType())
)
"""Per segment: `committed`, `lost` to a concurrent run, or `refused` with a reason."""


def commit_segments(segments: DataFrame, settings: Settings) -> DataFrame:
    """Commit segments of named chains: chains in parallel, segments of a chain in order."""
    ordered = segments.repartition("chain").sortWithinPartitions("chain", "first")
    return map_partitions(ordered, settings, COMMITS, _commit_all)


async def _commit_all(
    backend: Backend, batches: Iterator[pa.RecordBatch]
) -> AsyncIterator[Sequence[Row]]:
    rows = (row for batch in batches for row in batch.to_pylist())
    chains = (_commit_chain(backend, list(each)) for _, each in groupby(rows, lambda r: r["chain"]))
    async for outcomes in gather_batches(chains, AT_ONCE):
        yield outcomes


async def _commit_chain(backend: Backend, rows: Sequence[Row]) -> Sequence[Row]:
    """Commit a chain's segments. After one that fails, `check` refuses those that follow it."""
    outcomes: list[Row] = []
    for row in rows:
        outcome, reason = await _commit(backend, row)
        size = 0 if row["key"] is None else row["size"] - row["begin"]
        fields = {name: row[name] for name in ("chain", "path", "first", "stop")}
        outcomes.append({**fields, "bytes": size, "outcome": outcome, "reason": reason})
    return outcomes


async def _commit(backend: Backend, row: Row) -> tuple[str, str | None]:
    if row["refused"] is not None:
        return "refused", row["refused"]
    if system_clock() > row["committed_at"] + UNCOMMITTED_SEGMENT_SECONDS * 1000:
        return "refused", "its object is too old to commit: the sweep may remove it"
    chain = int(row["chain"], 16)
    stream = stream_of(chain, row["path"], row["config"].encode())
    # The grace period of its slots begins now, not when the object was written.
    manifest = manifest_of(row)._replace(committed_at=max(row["committed_at"], system_clock()))
    try:
        state = await check(backend.table, stream, manifest, row["begin_offset"])
    except BadSegment as error:
        return "refused", str(error)
    if state < 0:
        return "refused", f"slot {manifest.first + state} is neither archived nor in the table"
    if state > 0 or not await commit(backend.table, stream, manifest):
        return "lost", None
    return "committed", None


def manifest_of(row: Row) -> Manifest:
    values: dict[str, Any] = {name: row[name] for name in Manifest._fields}
    return Manifest(**{**values, "chain": int(row["chain"], 16)})
