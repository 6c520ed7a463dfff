"""Applies retention rules to streams, and reports expired ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import orjson
from pyspark.sql import DataFrame

from glue_jobs.shared.workers import Backend, Row, map_rows
from glue_jobs.sweeping.findings import FINDINGS, finding
from tailrace.log.expiry import stored_deadline
from tailrace.log.retention import Keep, Piece, Retention, may_remove
from tailrace.log.state import State
from tailrace.settings import Settings
from tailrace.store.dynamodb.layout import Name, name_of
from tailrace.store.dynamodb.retention import carry_out, estimate, plan

AT_ONCE: Final = 8
"""Streams that a worker processes concurrently."""


def apply_retention(streams: DataFrame, settings: Settings, now: int, *, dry: bool) -> DataFrame:
    """Apply the rules to names, each with the aggregates of its chain; return findings.

    Expired streams are only reported here: the store removes them."""
    rules, grace = Retention.parse(settings.retention), settings.trim_grace

    async def apply(backend: Backend, row: Row) -> Sequence[Row]:
        name = name_of(orjson.loads(row["item"]))
        path = name.stream.path
        deadline = stored_deadline(name.stream.config, name.accessed)
        if name.tombstone is None and deadline is not None and deadline <= now:
            return [finding("expired", row["chain"], path, 0 if name.forked else 1, 0, 0)]
        keep = rules.keep(path)
        if keep is None or not _may_lose_slots(name, row, keep, now, grace):
            return []
        removal = await plan(backend.table, backend.bucket, name, keep, now, grace)
        if removal is None:
            return []
        done = (
            await estimate(backend.table, removal)
            if dry
            else await carry_out(backend.table, removal, now + grace * 1000)
        )
        if done is None or not done.items:
            return []
        return [finding("retention", row["chain"], f"{path} before slot {removal.first}", *done)]

    return map_rows(streams.repartition("chain"), settings, FINDINGS, apply, AT_ONCE)


def _may_lose_slots(name: Name, row: Row, keep: Keep, now: int, grace: int) -> bool:
    """Whether retention may apply: for most streams the scan has shown that it does not."""
    if row["segments"] or name.trimmed < name.earliest:
        return True
    if row["first"] is None:
        return False
    state = State(row["last"] + 1, 0, row["largest"], 0)
    return may_remove(
        keep, state, Piece(row["first"] + 1, row["oldest"], row["smallest"]), now, grace
    )
