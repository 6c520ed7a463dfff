"""What belongs to nothing: chains without a name, and objects that nothing names.

Objects were listed, and names read, before the table was; names were read once more after it. So
whatever was there all the time was seen, and what is young is left out. Still, items move while
the table is read, from an entry to a claim or into a segment. Before anything goes, a worker asks
the table again, strongly consistent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import groupby, islice
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from glue_jobs.shared.workers import Backend, Row, for_each, over
from glue_jobs.sweeping.findings import FINDINGS, finding, found
from tailrace.aws.client.failures import TransactionCanceled
from tailrace.clock import system_clock
from tailrace.log.state import Fork
from tailrace.segments.format import TRAILER_BYTES
from tailrace.settings import Settings
from tailrace.store.dynamodb import actions, layout, sweeping
from tailrace.store.dynamodb.bodies import Bodies
from tailrace.store.dynamodb.table import Table

AT_ONCE: Final = 8
"""Chains or edges that a worker removes at once."""

BATCH: Final = 10_000
"""Objects of a chain that are looked at together: each time all that its items name is read."""

CLAIMS: Final = 32
"""Claims that are asked for at once."""

# What the table has


def chains(scanned: DataFrame) -> DataFrame:
    """Every chain that has items, with how many, and what is known of its entries."""
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


def deleted(chains: DataFrame, now: int) -> DataFrame:
    """Deleted chains whose tombstones say that they may go."""
    ripe = chains.where(F.col("due") <= now)
    return found(ripe, "deleted", *map(F.col, ("chain", "items", "objects", "bytes")))


def claims(scanned: DataFrame, listing: DataFrame, now: int) -> DataFrame:
    """Objects whose claims are due."""
    ripe = scanned.where((F.col("kind") == "B") & (F.col("due") <= now)).select(
        F.col("s").alias("key"), _chain_of("s").alias("chain")
    )
    objects = ripe.join(listing.select("key", "bytes"), on="key", how="left")
    there = F.col("bytes").isNotNull().cast("long")
    return found(objects, "claims", F.col("key"), F.lit(1), there, F.col("bytes"))


# What belongs to nothing


def needed(*names: DataFrame) -> DataFrame:
    """Chains that have a name, or that a fork reads through."""
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
    """Chains, or only producers of chains, that nobody needs and nobody wrote to for long.

    Those with a tombstone that has its time go by themselves."""
    free = chains.join(needed, on="chain", how="left_anti").where("due IS NULL")
    return free.where((F.col("slots") == 0) | (F.col("newest") < cutoff)).select(
        "chain",
        F.when(F.col("slots") == 0, "orphan producers").otherwise("orphan chains").alias("kind"),
        *("items", "objects", "bytes"),
    )


def orphan_edges(
    scanned: DataFrame, chains: DataFrame, needed: DataFrame, names: DataFrame
) -> DataFrame:
    """Edges of forks that have neither name nor entries, with the path of their source."""
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


# What is done about it


def erased(orphans: DataFrame, settings: Settings, cutoff: int, *, dry: bool) -> DataFrame:
    """Chains that are still what they seemed to be are removed."""

    async def erase(backend: Backend, row: Row) -> Sequence[Row]:
        chain = int(row["chain"], 16)
        if not await _is_orphan(backend.table, chain, row["kind"], cutoff):
            return []
        items, objects = row["items"], row["objects"]
        if not dry:
            bodies = Bodies(backend.table, backend.bucket, system_clock)
            items, objects = await sweeping.erase(backend.table, bodies, chain)
        return [finding(row["kind"], row["chain"], row["chain"], items, objects, row["bytes"])]

    return for_each(orphans.repartition("chain"), settings, FINDINGS, erase, AT_ONCE)


def cut(orphans: DataFrame, settings: Settings, now: int, *, dry: bool) -> DataFrame:
    """Edges that lead nowhere are removed, and no longer counted by the source's name."""
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
                return []  # It is gone.
            await sweeping.release(table, row["path"], parent, due)
        what = f"{row['path'] or row['parent']} to {row['fork']}"
        return [finding("orphan edges", row["parent"], what, 1, 0, 0)]

    return for_each(orphans.repartition("fork"), settings, FINDINGS, remove, AT_ONCE)


def removed(orphans: DataFrame, settings: Settings, *, dry: bool) -> DataFrame:
    """Objects that still nothing names are removed."""

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
    return over(ordered, settings, FINDINGS, remove)


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
    """Of objects of a chain those that no item names.

    An entry takes an object from its claim, and leaves it to another in the end; either may happen
    while items are read, so claims are asked for before and after."""
    keys = await _unclaimed(table, keys)
    partition = f"{'C' if folder == 'bodies' else 'S'}{layout.id_text(chain)}"
    named: set[str] = set()
    if keys:
        async for page in table.all_keys(partition, "k"):
            named.update(item["k"]["S"] for item in page if "k" in item)
    return await _unclaimed(table, [key for key in keys if key not in named])


async def _unclaimed(table: Table, keys: Sequence[str]) -> Sequence[str]:
    free: list[str] = []
    for begin in range(0, len(keys), CLAIMS):
        some = keys[begin : begin + CLAIMS]
        claims = await asyncio.gather(*(table.get(layout.claim_key(key)) for key in some))
        free += [key for key, claim in zip(some, claims, strict=True) if claim is None]
    return free
