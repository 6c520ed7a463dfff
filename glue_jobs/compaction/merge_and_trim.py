"""Merges small segments, and removes archived slots from the table."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

import orjson
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from glue_jobs.shared.workers import Backend, Row, map_rows
from tailrace.clock import system_clock
from tailrace.limits import SEGMENT_SLOTS
from tailrace.segments.format import unpack
from tailrace.segments.merge import Grid, merge, merges
from tailrace.segments.reader import Manifest
from tailrace.settings import Settings
from tailrace.store.dynamodb.layout import name_of
from tailrace.store.dynamodb.segments import replace, segments_from, upload
from tailrace.store.dynamodb.trimming import trim

REMOVED: Final = T.StructType().add("chain", T.StringType()).add("count", T.LongType())
"""How many segments, or slots in the table, a chain has lost."""

MERGES: Final = 2
"""Chains that a worker merges concurrently: each needs twice a cell of memory."""

TRIMS: Final = 8
"""Chains that a worker trims concurrently."""


def merge_segments(chains: DataFrame, settings: Settings, now: int) -> DataFrame:
    """Merge the segments of chains, each with the first slot that this run archived."""
    grid = Grid(settings.segment_target_bytes, SEGMENT_SLOTS)
    call = partial(_merge_chain, grid=grid, now=now, grace=settings.trim_grace)
    return map_rows(chains.repartition("chain"), settings, REMOVED, call, MERGES)


def trim_entries(names: DataFrame, settings: Settings, now: int) -> DataFrame:
    """Trim the streams that have slots both in segments and in the table."""
    trimmable = names.where("archived > let_go").select("chain", "item").repartition("chain")
    call = partial(_trim_chain, now=now, grace=settings.trim_grace)
    return map_rows(trimmable, settings, REMOVED, call, TRIMS)


async def _merge_chain(
    backend: Backend, row: Row, grid: Grid, now: int, grace: int
) -> Sequence[Row]:
    chain = int(row["chain"], 16)
    # A cell has at most so many slots: earlier cells are full, and were merged when they filled up.
    segments = await segments_from(backend.table, chain, max(0, row["first"] - SEGMENT_SLOTS))
    done = 0
    for olds in merges(segments, grid):
        merged = await _merge(backend, olds)
        # Readers that saw an old manifest may read it for that long. `now` may be hours old.
        due = max(now, system_clock()) + grace * 1000
        done += len(olds) - 1 if await replace(backend.table, olds, merged, due) else 0
    return [{"chain": row["chain"], "count": done}] if done else []


async def _trim_chain(backend: Backend, row: Row, now: int, grace: int) -> Sequence[Row]:
    now = max(now, system_clock())
    count = await trim(backend.table, name_of(orjson.loads(row["item"])), now, grace)
    return [{"chain": row["chain"], "count": count}] if count else []


async def _merge(backend: Backend, olds: Sequence[Manifest]) -> Manifest:
    segments = await asyncio.gather(*(backend.bucket.get(old.key) for old in olds))
    parts = merge([unpack(segment) for segment in segments])
    # The grace period of its slots is that of the latest of them.
    at = max(old.committed_at for old in olds)
    return await upload(backend.bucket, parts, at, max(old.level for old in olds) + 1)
