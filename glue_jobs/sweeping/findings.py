"""What a sweep finds: a row for each thing that goes, or would go, of any kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from glue_jobs.shared.workers import Row

KINDS: Final = {
    "expired": "Streams whose time is over lose their names; their data follows as deleted.",
    "deleted": "Deleted streams whose grace period is over.",
    "claims": "Objects that nothing needs any more, and uploads that nothing took.",
    "retention": "What streams keep no longer.",
    "orphan chains": "Entries and segments of no stream.",
    "orphan producers": "Producers of no chain.",
    "orphan edges": "Edges of forks that do not exist.",
    "orphan bodies": "Objects that no entry names.",
    "orphan segments": "Objects that no manifest names.",
}
"""In the order in which a report has them."""

FINDINGS: Final = (
    T.StructType()
    .add("kind", T.StringType())
    .add("chain", T.StringType())
    .add("what", T.StringType())
    .add("items", T.LongType())
    .add("objects", T.LongType())
    .add("bytes", T.LongType())
)
"""`what`: by which people know it."""


class Amount(NamedTuple):
    """All that was found of one kind."""

    kind: str
    streams: int
    items: int
    objects: int
    bytes: int
    examples: Sequence[str]
    """The first and the last of them, by name: more would have to be sorted."""


def found(
    frame: DataFrame, kind: str, what: Column, items: Column, objects: Column, size: Column
) -> DataFrame:
    """Rows that have a chain as findings of a kind."""
    return frame.select(
        F.lit(kind).alias("kind"),
        "chain",
        what.alias("what"),
        items.cast("long").alias("items"),
        objects.cast("long").alias("objects"),
        F.coalesce(size, F.lit(0)).cast("long").alias("bytes"),
    )


def finding(kind: str, chain: str, what: str, items: int, objects: int, size: int) -> Row:
    """A row of a worker."""
    values = (kind, chain, what, items, objects, size)
    return dict(zip(FINDINGS.fieldNames(), values, strict=True))


def amounts(findings: DataFrame) -> Sequence[Amount]:
    """What was found of each kind, of those of which something was."""
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
