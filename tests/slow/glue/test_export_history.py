"""The export on Spark, killed at each of its steps and beside another."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from glue_jobs import export_history
from glue_jobs.exporting.catalogue import Catalogue, Partition
from glue_jobs.exporting.export_lease import ExportLease, ExportUnderWay, Plan
from glue_jobs.exporting.files import FILES, write_files
from glue_jobs.exporting.plans import plan_parts
from glue_jobs.exporting.summary import Summary
from tailrace.settings import Settings
from tests.integration.glue.test_export_history import (
    Killed,
    Shop,
    finished,
    killed,
    merge_and_remove,
    noting,
    shop,
    small,
    writing,
)

__all__ = ["shop"]


async def test_a_run_that_is_killed_at_any_step_is_finished_by_the_next(shop: Shop) -> None:
    await small(shop)
    everything = await shop.expected()
    register, write = Catalogue.register, ExportLease.write

    def before(*_: Any) -> None:
        raise Killed

    def planning(*arguments: Any) -> None:
        assert plan_parts(*arguments).count() == 4
        raise Killed

    def registering(catalogue: Catalogue, partitions: Iterable[Partition]) -> None:
        register(catalogue, [*partitions][:2])
        raise Killed

    def ending(turn: ExportLease, plan: Plan) -> None:
        if plan.state == "done":
            raise Killed
        write(turn, plan)

    await killed(shop, everything, export_history, "plan_parts", planning)
    await killed(shop, everything, export_history, "write_files", before)
    await merge_and_remove(shop)
    await killed(shop, everything, export_history, "write_files", writing)
    await killed(shop, everything, Catalogue, "register", registering)
    await killed(shop, everything, export_history, "record_progress", noting)
    await killed(shop, everything, ExportLease, "write", ending)
    await finished(shop, everything)


async def test_a_second_run_exits_or_takes_over_an_expired_lease_without_harm(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    await small(shop)
    shop.lease = "60"
    take, look = ExportLease.acquire, ExportLease._read
    silence = 0.0
    turns: list[ExportLease] = []
    others: list[Summary] = []

    def remembered(turn: ExportLease, *arguments: Any) -> Plan:
        turns.append(turn)
        return take(turn, *arguments)

    def later(turn: ExportLease) -> Any:
        found = look(turn)
        return found and found._replace(age=found.age + silence)

    def meanwhile(spark: SparkSession, plan: Plan, settings: Settings) -> DataFrame:
        nonlocal silence
        files = write_files(spark, plan, settings).collect()
        if len(turns) == 1:
            with pytest.raises(ExportUnderWay, match=f"is running, run {plan.run}: wait"):
                shop.export()
            # It falls silent. One takes over, and then one more runs, before it goes on.
            turns[0]._released.set()
            silence = 60.0
            others.extend([shop.export(), shop.export()])
        return spark.createDataFrame(files, FILES)

    monkeypatch.setattr(ExportLease, "acquire", remembered)
    monkeypatch.setattr(ExportLease, "_read", later)
    monkeypatch.setattr(export_history, "write_files", meanwhile)
    with pytest.raises(ExportUnderWay, match="another export has taken over"):
        await asyncio.to_thread(shop.export)
    everything = await shop.expected()
    assert [other.messages for other in others] == [len(everything), 0]
    assert await shop.messages() == everything
