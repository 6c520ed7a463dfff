"""The findings of a sweep: a row for everything that it removes, or would remove."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from glue_jobs.shared.workers import Row

KINDS: Final = {
    "expired": "Expired streams lose their names; their data goes at once or later, as deleted.",
    "deleted": "Deleted streams whose grace period is over.",
    "claims": "Objects that are no longer needed, and unused uploads.",
    "retention": "Slots past their stream's retention.",
    "orphan chains": "Entries and segments of no stream.",
    "orphan producers": "Producers of no chain.",
    "orphan edges": "Edges of forks that do not exist.",
    "orphan bodies": "Objects that no entry names.",
    "orphan segments": "Objects that no manifest names.",
}
"""In the order of the report."""

FINDINGS: Final = (
    T.StructType()
    .add("kind", T.StringType())
    .add("chain", T.StringType())
    .add("what", T.StringType())
    .add("items", T.LongType())
    .add("objects", T.LongType())
    .add("bytes", T.LongType())
)
"""`what`: the name of the finding in the report."""


class Amount(NamedTuple):
    """The total of one kind of findings."""

    kind: str
    streams: int
    items: int
    objects: int
    bytes: int
    examples: Sequence[str]
    """The first and the last by name; more would require sorting."""


def to_findings(
    frame: DataFrame, kind: str, what: Column, items: Column, objects: Column, size: Column
) -> DataFrame:
    """Convert rows with a chain to findings of a kind."""
    return frame.select(
        F.lit(kind).alias("kind"),
        "chain",
        what.alias("what"),
        items.cast("long").alias("items"),
        objects.cast("long").alias("objects"),
        F.coalesce(size, F.lit(0)).cast("long").alias("bytes"),
    )


def finding(kind: str, chain: str, what: str, items: int, objects: int, size: int) -> Row:
    """Build a finding in a worker."""
    values = (kind, chain, what, items, objects, size)
    return dict(zip(FINDINGS.fieldNames(), values, strict=True))


def amounts(findings: DataFrame) -> Sequence[Amount]:
    """Sum up the findings by kind; kinds without findings are left out."""
    rows = (
        findings.groupBy("kind")
        .agg(
            F.countDistinct("chain").alias("streams"),
            *(F.sum(name).alias(name) for name in ("items", "objects", "bytes")),
            F.array_distinct(F.array(F.min("what"), F.max("what"))).alias("examples"),
        )
        .collect()
    )
    return [Amount(*row) for row in sorted(rows, key=lambda row: [*KINDS].index(row.kind))]
