"""Streams among each other: forks and their sources, and which name a chain has."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from glue_jobs.auditing.columns import chain_text
from glue_jobs.auditing.problems import CONNECT, COUNT, LOOSE, PART, RESTORE, SWEEP, Problem
from glue_jobs.auditing.snapshot import Snapshot
from glue_jobs.auditing.store_probe import TRIES, StoreProbe
from tailrace.store.dynamodb import layout

# Suspects


def suspect_forks(snapshot: Snapshot) -> DataFrame:
    """Forks, and for each chain that they read through where it has to begin and to end."""
    forks = snapshot.streams.where("lineage IS NOT NULL")
    loose = forks.where("base != coalesce(get(lineage, size(lineage) - 1)[1], 0)").select(
        *("chain", "path"), F.col("base").alias("n"), F.lit(None).cast("string").alias("key")
    )
    through = forks.select("chain", "path", "lineage", F.posexplode("lineage")).select(
        *("chain", "path"),
        F.expr("col[1]").alias("n"),
        chain_text(F.expr("col[0]")).alias("key"),
        F.expr("coalesce(get(lineage, pos - 1)[1], 0)").alias("start"),
    )
    sources = snapshot.streams.selectExpr(
        "chain AS key", "base", "greatest(archived, coalesce(end, 0)) AS end"
    )
    apart = through.join(sources, on="key", how="left").where(
        "base IS NULL OR base != start OR end < n"
    )
    return loose.unionByName(apart.select("chain", "path", "n", "key"))


def suspect_edges(snapshot: Snapshot) -> DataFrame:
    forks = snapshot.streams.where("parent IS NOT NULL").select(
        "path", "parent", F.col("chain").alias("fork")
    )
    pair = ["parent", "fork"]
    without_edge = forks.join(snapshot.edges, on=pair, how="left_anti").selectExpr(
        "fork AS chain", "path", "parent AS key"
    )
    without_fork = snapshot.edges.join(forks, on=pair, how="left_anti").selectExpr(
        "parent AS chain", "CAST(NULL AS STRING) AS path", "fork AS key"
    )
    miscounted = snapshot.streams.where("forked != coalesce(edges, 0)")
    nothing = F.lit(None).cast("string")
    return without_edge.unionByName(without_fork).unionByName(
        miscounted.select("chain", "path", nothing.alias("key"))
    )


def suspect_twins(snapshot: Snapshot) -> DataFrame:
    paths = snapshot.streams.groupBy("chain").agg(
        F.min("path").alias("path"), F.max("path").alias("key")
    )
    return paths.where("path != key")


def suspect_orphans(snapshot: Snapshot) -> DataFrame:
    nameless = snapshot.chains.join(snapshot.streams, on="chain", how="left_anti")
    return nameless.where("items > 0 AND (leaving IS NULL OR leaving != last)")


# Rechecks


async def fork_problem(probe: StoreProbe) -> Problem | None:
    name = await probe.name()
    if name is None or name.stream.config.fork is None:
        return None
    lineage, base = name.stream.config.fork.lineage, name.stream.config.base[0]
    if not probe.key:
        end = lineage[-1].until if lineage else 0
        what = f"the fork begins here, but what it reads through ends at {end}"
        return Problem(base, what, RESTORE) if base != end else None
    start, source = 0, int(probe.key, 16)
    for ancestor in lineage:
        if ancestor.id == source:
            return await _short(probe, source, start, ancestor.until)
        start = ancestor.until
    return None


async def _short(probe: StoreProbe, source: int, start: int, until: int) -> Problem | None:
    """Of a chain that is read from one slot up to another."""
    of = f"slots {start} to {until - 1} are read from chain {probe.key}"
    name = await probe.name_of(probe.other, source)
    if name is None:
        return Problem(start, f"{of}, which has no name", RESTORE)
    if name.stream.config.base[0] != start:
        begins = name.stream.config.base[0]
        return Problem(start, f"{of}, which begins at {begins}", RESTORE)
    last = await probe.last(chain=source)
    end = name.archived
    if last is not None:
        end = max(end, last.slot + 1 if last.has_data else (last.state.end or last.slot))
    return None if end >= until else Problem(start, f"{of}, which ends at {end}", RESTORE)


async def edge_problem(probe: StoreProbe) -> Problem | None:
    if not probe.key:
        return await _count(probe)
    other = int(probe.key, 16)
    if await probe.has(layout.edge_key(probe.chain, other)):
        fork = await probe.name_of(probe.other, other)
        if fork and fork.stream.config.fork and fork.stream.config.fork.parent == probe.chain:
            return None
        return Problem(None, f"it has an edge to {probe.key}, which is no fork of it", LOOSE)
    edge, name = await probe.has(layout.edge_key(other, probe.chain)), await probe.name()
    if edge or name is None or name.stream.config.fork is None:
        return None
    return Problem(None, f"its source, chain {probe.key}, has no edge to it", CONNECT)


async def _count(probe: StoreProbe) -> Problem | None:
    for _ in range(TRIES):
        name, edges, again = (
            await probe.name(), await probe.count(f"E{probe.chain:016x}"), await probe.name(),
        )  # fmt: skip
        if name is None or again is None:
            return None
        # An edge comes and goes together with its count.
        if name.forked == again.forked:
            what = f"its name counts {name.forked} forks, but it has {edges} edges"
            return Problem(None, what, COUNT) if name.forked != edges else None
    return None


async def twin_problem(probe: StoreProbe) -> Problem | None:
    one, two = await probe.name(), await probe.name_of(probe.key, probe.chain)
    if one is None or two is None:
        return None
    return Problem(None, f"'{probe.key}' stands for the same chain, {probe.chain:016x}", PART)


async def orphan_problem(probe: StoreProbe) -> Problem | None:
    if probe.path is not None:
        return None  # It was created a moment ago.
    last = await probe.last()
    if last is not None and last.state.deleted and "d" in last.item:
        return None
    there = [await probe.any_in(f"{kind}{probe.chain:016x}") for kind in "CSP"]
    return Problem(None, "the chain has no name", SWEEP) if any(there) else None
