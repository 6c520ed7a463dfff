"""What an audit has read of the store, as the checks compare it."""

from __future__ import annotations

from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from glue_jobs.auditing.columns import chain_text
from glue_jobs.auditing.proving import PROVED
from glue_jobs.shared import metadata
from glue_jobs.shared.items import Names

LEFT: Final = "coalesce(stop <= earliest, false)"
"""Of segments: all of it is before what retention has left."""


class Facts(NamedTuple):
    """What was read of the store."""

    streams: DataFrame
    """A row for each name, with how its chain has to begin, and with what there is of it."""
    chains: DataFrame
    """A row for each chain that has items."""
    entries: DataFrame
    """Those of chains that have a name, with what is needed of it."""
    manifests: DataFrame
    """The same, without what retention is about to remove."""
    edges: DataFrame
    claims: DataFrame
    listing: DataFrame
    proved: DataFrame
    """What segments say; nothing, where they were not read."""


def facts(names: Names, scanned: DataFrame, listing: DataFrame) -> Facts:
    """Its first two are made of all items, and small: worth to be kept."""
    known = streams(names.frame)
    about = known.select(
        "chain", "path", "mode", "base", "base_offset", "base_size", "archived", "let_go",
        "earliest",
    )  # fmt: skip
    about = F.broadcast(about) if names.few else about
    found = chains(scanned.join(about, on="chain", how="left")).persist()
    return Facts(
        known.join(found, on="chain", how="left").persist(),
        found,
        metadata.entries(scanned).join(about, on="chain"),
        metadata.manifests(scanned).join(about, on="chain").where(f"NOT ({LEFT})"),
        metadata.edges(scanned),
        metadata.claims(scanned),
        listing,
        names.frame.sparkSession.createDataFrame([], PROVED),
    )


def chains(scanned: DataFrame) -> DataFrame:
    """Of items with the names of their chains: the first slot that is kept in the table and the
    last, the slot after the last that has data, the tombstone, the same if the chain goes after
    it; how many segments and edges there are, and items of all kinds but edges."""
    entry = "kind = 'C'"

    def of(value: str, condition: str) -> Column:
        return F.expr(f"{value} FILTER (WHERE {condition})")

    # Numbers, and no structures: those would have to be sorted.
    return (
        scanned.where("kind IN ('C', 'S', 'P', 'E')")
        .groupBy("chain")
        .agg(
            of("min(n)", f"{entry} AND (n >= earliest OR n < base)").alias("first"),
            of("max(n)", entry).alias("last"),
            of("max(n + 1)", f"{entry} AND length IS NOT NULL").alias("end"),
            of("max(n)", f"{entry} AND gone").alias("grave"),
            of("max(n)", f"{entry} AND gone AND due IS NOT NULL").alias("leaving"),
            of("count(1)", f"kind = 'S' AND NOT ({LEFT})").alias("segments"),
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
