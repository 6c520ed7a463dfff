"""Orphans: chains without a name, and objects that nothing names.

Objects are listed, and names read, before the table is scanned; names are read again after it. So
everything that existed throughout was seen, and recent data is left out. But items move during the
scan, from an entry to a claim or into a segment. So workers check the table again with consistent
reads before they remove anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import groupby, islice
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from glue_jobs.shared.workers import Backend, Row, map_partitions, map_rows
from glue_jobs.sweeping.findings import FINDINGS, finding, to_findings
from tailrace.aws.client.failures import TransactionCanceled
from tailrace.clock import system_clock
from tailrace.log.state import Fork
from tailrace.segments.format import TRAILER_BYTES
from tailrace.settings import Settings
from tailrace.store.dynamodb import actions, layout, sweeping
from tailrace.store.dynamodb.bodies import Bodies
from tailrace.store.dynamodb.table import Table

AT_ONCE: Final = 8
"""Chains or edges that a worker removes concurrently."""

BATCH: Final = 10_000
"""Objects of a chain that are checked together: each check reads all keys that its items name."""

CLAIMS: Final = 32
"""Claims that are read concurrently."""

# Aggregates


def chains(scanned: DataFrame) -> DataFrame:
    """Aggregate items by chain."""
    entry, segment = F.col("kind") == "C", F.col("kind") == "S"
    size = F.coalesce("length", F.lit(0)) + F.coalesce(
        F.col("index_bytes") + TRAILER_BYTES, F.lit(0)
    )
    return (
        scanned.where("kind IN ('C', 'S', 'P')")
        .groupBy("chain")
        .agg(
            F.count(F.lit(1)).alias("items"),
            F.count(F.when(entry | segment, 1)).alias("slots"),
            F.count(F.when(segment, 1)).alias("segments"),
            F.count("key").alias("objects"),
            F.sum(size).alias("bytes"),
            F.max("at").alias("newest"),
            F.max("due").alias("due"),
            F.min(F.when(entry, F.col("n"))).alias("first"),
            F.max(F.when(entry, F.col("n"))).alias("last"),
            F.min(F.when(entry, F.col("at"))).alias("oldest"),
            F.min(F.when(entry, F.col("size"))).alias("smallest"),
            F.max(F.when(entry, F.col("size"))).alias("largest"),
        )
    )


def deleted_chains(chains: DataFrame, now: int) -> DataFrame:
    """Deleted chains whose tombstones are due."""
    due = chains.where(F.col("due") <= now)
    return to_findings(due, "deleted", *map(F.col, ("chain", "items", "objects", "bytes")))


def due_claims(scanned: DataFrame, listing: DataFrame, now: int) -> DataFrame:
    """Objects whose claims are due."""
    due = scanned.where((F.col("kind") == "B") & (F.col("due") <= now)).select(
        F.col("s").alias("key"), _chain_of("s").alias("chain")
    )
    objects = due.join(listing.select("key", "bytes"), on="key", how="left")
    there = F.col("bytes").isNotNull().cast("long")
    return to_findings(objects, "claims", F.col("key"), F.lit(1), there, F.col("bytes"))


# Orphans


def needed(*names: DataFrame) -> DataFrame:
    """Chains that have a name or are read by a fork."""
    frames = []
    for each in names:
        lineage = F.from_json(F.get_json_object("config", "$.fork[4]"), "ARRAY<ARRAY<BIGINT>>")
        inherited = each.select(F.explode(lineage).alias("ancestor")).select(
            F.lower(F.lpad(F.hex(F.col("ancestor")[0]), 16, "0")).alias("chain")
        )
        frames += [each.select("chain"), inherited]
    first, *rest = frames
    for frame in rest:
        first = first.union(frame)
    return first.distinct()


def orphan_chains(chains: DataFrame, needed: DataFrame, cutoff: int) -> DataFrame:
    """Chains, or producers without a chain, that are not needed and were not written to recently.

    Chains with a due tombstone are removed as deleted ones."""
    free = chains.join(needed, on="chain", how="left_anti").where("due IS NULL")
    return free.where((F.col("slots") == 0) | (F.col("newest") < cutoff)).select(
        "chain",
        F.when(F.col("slots") == 0, "orphan producers").otherwise("orphan chains").alias("kind"),
        *("items", "objects", "bytes"),
    )


def orphan_edges(
    scanned: DataFrame, chains: DataFrame, needed: DataFrame, names: DataFrame
) -> DataFrame:
    """Edges to forks that have neither a name nor entries, with the path of their source."""
    edges = scanned.where("kind = 'E'").select(F.col("chain").alias("parent"), "s")
    there = needed.union(chains.select("chain")).withColumnRenamed("chain", "s")
    paths = names.select(F.col("chain").alias("parent"), "path")
    lost = edges.join(there, on="s", how="left_anti").join(paths, on="parent", how="left")
    return lost.select("parent", F.col("s").alias("fork"), "path")


def orphan_objects(scanned: DataFrame, listing: DataFrame, cutoff: int) -> DataFrame:
    """Objects of chains that no item names and that were there for long."""
    named = scanned.where("key IS NOT NULL").select("key")
    named = named.union(scanned.where("kind = 'B'").select("s"))
    ours = listing.withColumn("chain", _chain_of("key")).where("chain != ''")
    old = ours.where(F.col("modified") < cutoff)
    return old.join(named, on="key", how="left_anti").select("chain", "key", "bytes")


def _chain_of(key: str) -> Column:
    return F.regexp_extract(key, "^(?:bodies|segments)/([0-9a-f]{16})/", 1)


# Removal


def erase_chains(orphans: DataFrame, settings: Settings, cutoff: int, *, dry: bool) -> DataFrame:
    """Remove the chains that are still orphans."""

    async def erase(backend: Backend, row: Row) -> Sequence[Row]:
        chain = int(row["chain"], 16)
        if not await _is_orphan(backend.table, chain, row["kind"], cutoff):
            return []
        items, objects = row["items"], row["objects"]
        if not dry:
            bodies = Bodies(backend.table, backend.bucket, system_clock)
            items, objects = await sweeping.erase(backend.table, bodies, chain)
        return [finding(row["kind"], row["chain"], row["chain"], items, objects, row["bytes"])]

    return map_rows(orphans.repartition("chain"), settings, FINDINGS, erase, AT_ONCE)


def remove_edges(orphans: DataFrame, settings: Settings, now: int, *, dry: bool) -> DataFrame:
    """Remove edges to missing forks, and their count in the source's name."""
    due = now + settings.trim_grace * 1000

    async def remove(backend: Backend, row: Row) -> Sequence[Row]:
        table, parent, fork = backend.table, int(row["parent"], 16), int(row["fork"], 16)
        if await _last_entry(table, fork) is not None:
            return []
        if not dry and row["path"] is None:
            await table.delete(layout.edge_key(parent, fork))
        elif not dry:
            edge = actions.remove_edge(Fork(row["path"], parent, 0, 0, ()), fork)
            try:
                await table.transact(edge)
            except TransactionCanceled:
                return []  # It was removed meanwhile.
            await sweeping.release(table, row["path"], parent, due)
        what = f"{row['path'] or row['parent']} to {row['fork']}"
        return [finding("orphan edges", row["parent"], what, 1, 0, 0)]

    return map_rows(orphans.repartition("fork"), settings, FINDINGS, remove, AT_ONCE)


def remove_objects(orphans: DataFrame, settings: Settings, *, dry: bool) -> DataFrame:
    """Remove the objects that are still not named by any item."""

    async def remove(
        backend: Backend, batches: Iterator[pa.RecordBatch]
    ) -> AsyncIterator[Sequence[Row]]:
        rows = (row for batch in batches for row in batch.to_pylist())
        for (chain, folder), group in groupby(rows, lambda row: (row["chain"], _folder(row))):
            while batch := list(islice(group, BATCH)):
                sizes = {row["key"]: row["bytes"] for row in batch}
                free = await _unnamed(backend.table, folder, int(chain, 16), [*sizes])
                if not free:
                    continue
                if not dry:
                    await backend.bucket.delete(free)
                size = sum(sizes[key] for key in free)
                yield [finding(f"orphan {folder}", chain, free[0], 0, len(free), size)]

    ordered = orphans.repartition("chain").sortWithinPartitions("chain", "key")
    return map_partitions(ordered, settings, FINDINGS, remove)


def _folder(row: Row) -> str:
    folder: str = row["key"].partition("/")[0]
    return folder


async def _is_orphan(table: Table, chain: int, kind: str, cutoff: int) -> bool:
    last = await _last_entry(table, chain)
    if kind == "orphan producers":
        manifests = layout.segment_partition(chain)
        page = await table.query(manifests, layout.slot_text(0), layout.LAST_SLOT, limit=1)
        return last is None and not page.items
    return last is None or ("d" not in last.item and int(last.item["a"]["N"]) < cutoff)


async def _last_entry(table: Table, chain: int) -> layout.Stored | None:
    partition = layout.chain_partition(chain)
    item = await table.last(partition, layout.slot_text(0), layout.LAST_SLOT)
    return None if item is None else layout.entry_of(item)


async def _unnamed(table: Table, folder: str, chain: int, keys: Sequence[str]) -> Sequence[str]:
    """Select the objects of a chain that no item names.

    A claim names an object before its entry is written and after it was removed. Either may happen
    while items are read, so claims are read before and after."""
    keys = await _unclaimed(table, keys)
    partition = f"{'C' if folder == 'bodies' else 'S'}{layout.id_text(chain)}"
    named: set[str] = set()
    if keys:
        async for page in table.all_keys(partition, "k, object_key"):
            named.update(filter(None, map(layout.object_key_of, page)))
    return await _unclaimed(table, [key for key in keys if key not in named])


async def _unclaimed(table: Table, keys: Sequence[str]) -> Sequence[str]:
    free: list[str] = []
    for begin in range(0, len(keys), CLAIMS):
        some = keys[begin : begin + CLAIMS]
        claims = await asyncio.gather(*(table.get(layout.upload_intent_key(key)) for key in some))
        free += [key for key, claim in zip(some, claims, strict=True) if claim is None]
    return free
