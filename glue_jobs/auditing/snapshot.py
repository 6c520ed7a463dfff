"""The data that an audit has read from the store, prepared for the checks."""

from __future__ import annotations

from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from glue_jobs.auditing.columns import chain_text
from glue_jobs.auditing.verify_objects import VERIFIED
from glue_jobs.shared import metadata
from glue_jobs.shared.items import Names

NOT_RETAINED: Final = "coalesce(stop <= earliest, false)"
"""A condition on segments: they end before the earliest retained slot."""


class Snapshot(NamedTuple):
    """The store as the audit has read it."""

    streams: DataFrame
    """A row per name, with the expected beginning of its chain and the aggregates of `chains`."""
    chains: DataFrame
    """A row per chain that has items."""
    entries: DataFrame
    """Entries of named chains, with columns of their names."""
    manifests: DataFrame
    """Segments of named chains, without those that retention is about to remove."""
    edges: DataFrame
    claims: DataFrame
    listing: DataFrame
    archived_slots: DataFrame
    """The slots in segments; empty if segments were not read."""


def take_snapshot(names: Names, scanned: DataFrame, listing: DataFrame) -> Snapshot:
    """Prepare the data. The first two frames are small but costly, so they are persisted."""
    named = streams(names.frame)
    columns = named.select(
        "chain", "path", "mode", "base", "base_offset", "base_size", "archived", "let_go",
        "earliest",
    )  # fmt: skip
    columns = F.broadcast(columns) if names.few else columns
    aggregates = chains(scanned.join(columns, on="chain", how="left")).persist()
    return Snapshot(
        named.join(aggregates, on="chain", how="left").persist(),
        aggregates,
        metadata.entries(scanned).join(columns, on="chain"),
        metadata.manifests(scanned).join(columns, on="chain").where(f"NOT ({NOT_RETAINED})"),
        metadata.edges(scanned),
        metadata.claims(scanned),
        listing,
        names.frame.sparkSession.createDataFrame([], VERIFIED),
    )


def chains(scanned: DataFrame) -> DataFrame:
    """Aggregate items by chain: `first` and `last` slot in the table, `end` of its data, slot of
    the tombstone (`grave`, `leaving` if the chain is due for removal), and counts of segments,
    edges, and items other than edges."""
    entry = "kind = 'C'"

    def of(value: str, condition: str) -> Column:
        return F.expr(f"{value} FILTER (WHERE {condition})")

    # Numbers instead of structs, which Spark would have to sort.
    return (
        scanned.where("kind IN ('C', 'S', 'P', 'E')")
        .groupBy("chain")
        .agg(
            of("min(n)", f"{entry} AND (n >= earliest OR n < base)").alias("first"),
            of("max(n)", entry).alias("last"),
            of("max(n + 1)", f"{entry} AND length IS NOT NULL").alias("end"),
            of("max(n)", f"{entry} AND gone").alias("grave"),
            of("max(n)", f"{entry} AND gone AND due IS NOT NULL").alias("leaving"),
            of("count(1)", f"kind = 'S' AND NOT ({NOT_RETAINED})").alias("segments"),
            of("count(1)", "kind = 'E'").alias("edges"),
            of("count(1)", "kind != 'E'").alias("items"),
        )
    )


def streams(names: DataFrame) -> DataFrame:
    config = F.from_json("config", "base ARRAY<BIGINT>, fork ARRAY<STRING>")
    return names.withColumn("parsed", config).select(
        *("chain", "path", "mode", "base"),
        F.col("parsed.base")[1].alias("base_offset"),
        F.col("parsed.base")[2].alias("base_size"),
        *("archived", "let_go", "exported", "earliest", "forked", "tombstone"),
        chain_text(F.col("parsed.fork")[1].cast("long")).alias("parent"),
        F.from_json(F.col("parsed.fork")[4], "ARRAY<ARRAY<BIGINT>>").alias("lineage"),
    )
