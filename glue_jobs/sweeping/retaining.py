"""Streams whose time is over, and streams that are to keep less than they have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import orjson
from pyspark.sql import DataFrame

from glue_jobs.shared.workers import Backend, Row, for_each
from glue_jobs.sweeping.findings import FINDINGS, finding
from tailrace.log.expiry import stored_deadline
from tailrace.log.retention import Keep, Piece, Retention, lets_go
from tailrace.log.state import State
from tailrace.settings import Settings
from tailrace.store.dynamodb.layout import Name, name_of
from tailrace.store.dynamodb.retention import carry_out, foresee, plan

AT_ONCE: Final = 8
"""Streams that a worker looks at, or removes slots of, at once."""


def retained(streams: DataFrame, settings: Settings, now: int, *, dry: bool) -> DataFrame:
    """Of names, each with what the table has of its chain, those that lose something.

    One that has expired is only told of here: dropping it is up to the store."""
    rules, grace = Retention.parse(settings.retention), settings.trim_grace

    async def judge(backend: Backend, row: Row) -> Sequence[Row]:
        name = name_of(orjson.loads(row["item"]))
        path = name.stream.path
        deadline = stored_deadline(name.stream.config, name.accessed)
        if name.tombstone is None and deadline is not None and deadline <= now:
            return [finding("expired", row["chain"], path, 0 if name.forked else 1, 0, 0)]
        keep = rules.keep(path)
        if keep is None or not _suspect(name, row, keep, now, grace):
            return []
        found = await plan(backend.table, backend.bucket, name, keep, now, grace)
        if found is None:
            return []
        done = (
            await foresee(backend.table, found)
            if dry
            else await carry_out(backend.table, found, now + grace * 1000)
        )
        if done is None or not done.items:
            return []
        return [finding("retention", row["chain"], f"{path} before slot {found.first}", *done)]

    return for_each(streams.repartition("chain"), settings, FINDINGS, judge, AT_ONCE)


def _suspect(name: Name, row: Row, keep: Keep, now: int, grace: int) -> bool:
    """Whether it is worth a look: mostly the scan has seen that nothing is to go."""
    if row["segments"] or name.let_go < name.earliest:
        return True
    if row["first"] is None:
        return False
    state = State(row["last"] + 1, 0, row["largest"], 0)
    return lets_go(keep, state, Piece(row["first"] + 1, row["oldest"], row["smallest"]), now, grace)
