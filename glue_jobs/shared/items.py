"""The table as a frame: from a parallel scan, or from the files of a point-in-time export.

A frame of items has a row per item and a column per attribute, by their names in
`tailrace.store.dynamodb.layout`.
"""

from __future__ import annotations

import binascii
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from glue_jobs.shared.job import Job
from glue_jobs.shared.workers import Backend, Row, map_partitions, map_rows
from tailrace.aws.client.failures import Item
from tailrace.limits import NAME_SHARDS
from tailrace.store.dynamodb.layout import id_text, name_of, name_partitions

ATTRIBUTES: Final[Mapping[str, str]] = (
    dict.fromkeys("pscrkgfm", "S") | dict.fromkeys("aozld", "N") | {"b": "B"}
)
"""Every attribute of entries but `t`, which only its writer needs, and its type in DynamoDB."""

_TYPES: Final = {"S": T.StringType(), "N": T.LongType(), "B": T.BinaryType()}

ITEMS: Final = T.StructType(
    [T.StructField(name, _TYPES[kind]) for name, kind in ATTRIBUTES.items()]
)

NAMES: Final = (
    T.StructType()
    .add("chain", T.StringType())
    .add("path", T.StringType())
    .add("config", T.StringType())
    .add("content_type", T.StringType())
    .add("mode", T.StringType())
    .add("base", T.LongType())
    .add("archived", T.LongType())
    .add("let_go", T.LongType())
    .add("exported", T.LongType())
    .add("earliest", T.LongType())
    .add("accessed", T.LongType())
    .add("forked", T.LongType())
    .add("tombstone", T.LongType())
    .add("item", T.StringType())
)
"""A row per name; `item` is the whole item as DynamoDB's JSON."""

PARTS_PER_CORE: Final = 2
"""Segments of a parallel scan: more than one per core, since they differ in size."""

NAMES_PAGE: Final = 1000

FEW_NAMES: Final = 500_000
"""Up to so many streams, joins broadcast the names to every worker."""


class Names(NamedTuple):
    """All named streams, as of the start of the job."""

    frame: DataFrame
    few: bool

    def join_to(self, chains: DataFrame, *columns: str) -> DataFrame:
        """Add columns of their names to rows of chains; drop chains without a name."""
        about = self.frame.select("chain", *columns)
        return chains.join(F.broadcast(about) if self.few else about, on="chain", how="inner")


def read_names(job: Job) -> Names:
    job.progress.step("reading names")
    parts = min(NAME_SHARDS, PARTS_PER_CORE * job.spark.sparkContext.defaultParallelism)
    shards = job.spark.range(NAME_SHARDS, numPartitions=parts)
    frame = map_rows(shards, job.settings, NAMES, _names, at_once=NAME_SHARDS).persist()
    return Names(frame, frame.count() <= FEW_NAMES)


def read_items(job: Job, export: str | None = None) -> DataFrame:
    """Read all items, from the table or from an export of it."""
    if export:
        return read_export(job.spark, export)
    parts = PARTS_PER_CORE * job.spark.sparkContext.defaultParallelism
    frame = job.spark.range(parts, numPartitions=parts).withColumn("parts", F.lit(parts))
    return map_partitions(frame, job.settings, ITEMS, _scan)


def read_export(spark: SparkSession, path: str) -> DataFrame:
    """Read the items of an export in DynamoDB's JSON, full or incremental."""
    image = T.StructType(
        [
            T.StructField(name, T.StructType([T.StructField(kind, T.StringType())]))
            for name, kind in ATTRIBUTES.items()
        ]
    )
    schema = T.StructType([T.StructField("Item", image), T.StructField("NewImage", image)])
    lines = (
        spark.read.schema(schema)
        .option("recursiveFileLookup", True)
        .option("pathGlobFilter", "*.json.gz")
        .json(path)
    )
    item = lines.select(F.coalesce("Item", "NewImage").alias("item")).where("item.p IS NOT NULL")
    return item.select(*(_value(name, kind).alias(name) for name, kind in ATTRIBUTES.items()))


def entries(items: DataFrame) -> DataFrame:
    """Select the entries that have data."""
    return items.where("p LIKE 'C%' AND (b IS NOT NULL OR k IS NOT NULL)").select(
        F.substring("p", 2, 16).alias("chain"),
        F.col("s").cast("long").alias("n"),
        F.col("o").alias("offset"),
        F.col("z").alias("size"),
        F.col("a").alias("at"),
        F.coalesce("l", F.length("b").cast("long")).alias("length"),
        F.col("b").alias("body"),
        F.col("k").alias("key"),
        F.col("r").alias("rest"),
        F.col("m").alias("parts"),
    )


def _value(name: str, kind: str) -> Any:
    value = F.col(f"item.{name}.{kind}")
    return {"S": value, "N": value.cast("long"), "B": F.unbase64(value)}[kind]


async def _scan(
    backend: Backend, batches: Iterator[pa.RecordBatch]
) -> AsyncIterator[Sequence[Row]]:
    for batch in batches:
        for row in batch.to_pylist():
            async for page in backend.table.scan(row["id"], row["parts"]):
                yield [_row(item) for item in page]


def _row(item: Item) -> Row:
    row: dict[str, Any] = {}
    for name, value in item.items():
        kind = ATTRIBUTES.get(name)
        if kind == "S":
            row[name] = value["S"]
        elif kind == "N":
            row[name] = int(value["N"])
        elif kind == "B":
            row[name] = binascii.a2b_base64(value["B"])
    return row


async def _names(backend: Backend, row: Row) -> Sequence[Row]:
    partition = name_partitions()[row["id"]]
    found: list[Row] = []
    start = None
    while True:
        page = await backend.table.begins(partition, "", NAMES_PAGE, start)
        for item in page.items:
            name = name_of(item)
            config = name.stream.config
            found.append(
                {
                    "chain": id_text(name.stream.id),
                    "path": name.stream.path,
                    "config": item["config"]["S"],
                    "content_type": config.content_type,
                    "mode": config.mode.value,
                    "base": config.base[0],
                    "archived": name.archived,
                    "let_go": name.trimmed,
                    "exported": name.exported,
                    "earliest": name.earliest,
                    "accessed": name.accessed,
                    "forked": name.forked,
                    "tombstone": name.tombstone,
                    "item": orjson.dumps(item).decode(),
                }
            )
        start = page.more
        if start is None:
            return found


def local_export(path: str, into: Path) -> str:
    """Download an export to a folder: outside of Glue, Spark cannot read S3."""
    import boto3

    bucket, _, prefix = path.removeprefix("s3://").partition("/")
    s3 = boto3.client("s3")
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    for page in pages:
        for found in page.get("Contents", ()):
            if found["Key"].endswith(".json.gz"):
                target = into / found["Key"].replace("/", "_")
                s3.download_file(bucket, found["Key"], str(target))
    return str(into)
