"""The metadata of all items but names: bodies are reduced to their lengths and checksums."""

from __future__ import annotations

import binascii
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Final

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from glue_jobs.shared.items import PARTS_PER_CORE
from glue_jobs.shared.job import Job
from glue_jobs.shared.workers import Backend, Row, map_partitions
from tailrace.aws.client.failures import Item
from tailrace.log.slots import split
from tailrace.log.state import Part
from tailrace.store.codec import parts_of
from tailrace.store.dynamodb.layout import object_key_of

NUMBERS: Final[Mapping[str, str]] = {
    "o": "offset",
    "z": "size",
    "a": "at",
    "l": "length",
    "d": "due",
    "stop_slot": "stop",
    "data_bytes": "length",
    "index_bytes": "index_bytes",
    "index_checksum": "index_checksum",
    "start_size": "begin",
    "end_offset": "offset",
    "end_size": "size",
    "committed_at": "at",
}
"""Columns of attributes of entries, segments and upload intents, which
`tailrace.store.dynamodb.layout` explains."""

METADATA: Final = T.StructType(
    [
        T.StructField("kind", T.StringType()),
        T.StructField("chain", T.StringType()),
        T.StructField("s", T.StringType()),
        T.StructField("n", T.LongType()),
        T.StructField("key", T.StringType()),
        *(T.StructField(column, T.LongType()) for column in dict.fromkeys(NUMBERS.values())),
        T.StructField("checksum", T.LongType()),
        T.StructField("steps", T.LongType()),
        T.StructField("torn", T.BooleanType()),
        T.StructField("uneven", T.BooleanType()),
        T.StructField("end", T.LongType()),
        T.StructField("gone", T.BooleanType()),
    ]
)
"""A row for each item. `kind` is the letter of its partition; `n` is null where the sort key is no
slot; `length` is null where there is no data; `checksum` is that of a body inside its item. Of an
entry that lists its appends: by how much they advance the offset (`steps`), whether they are not
what its body consists of (`torn`), and whether some do not advance the offset by their length."""


def read_metadata(job: Job, *, checksums: bool) -> DataFrame:
    parts = PARTS_PER_CORE * job.spark.sparkContext.defaultParallelism
    frame = job.spark.range(parts, numPartitions=parts).withColumn("parts", F.lit(parts))

    async def scan(
        backend: Backend, batches: Iterator[pa.RecordBatch]
    ) -> AsyncIterator[Sequence[Row]]:
        for batch in batches:
            for row in batch.to_pylist():
                async for page in backend.table.scan(row["id"], row["parts"]):
                    yield [_row(item, checksums) for item in page if item["p"]["S"][0] != "N"]

    return map_partitions(frame, job.settings, METADATA, scan)


def entries(scanned: DataFrame) -> DataFrame:
    return scanned.where("kind = 'C'").select(
        *("chain", "s", "n", "offset", "size", "at", "length", "key", "checksum"),
        *("steps", "torn", "uneven", "end", "gone"),
    )


def manifests(scanned: DataFrame) -> DataFrame:
    return scanned.where("kind = 'S'").select(
        "chain",
        F.col("n").alias("first"),
        "stop",
        "key",
        F.col("length").alias("data_bytes"),
        "index_bytes",
        "index_checksum",
        "begin",
        "offset",
        "size",
    )


def edges(scanned: DataFrame) -> DataFrame:
    return scanned.where("kind = 'E'").select(
        F.col("chain").alias("parent"), F.col("s").alias("fork")
    )


def claims(scanned: DataFrame) -> DataFrame:
    return scanned.where("kind = 'B'").select(F.col("s").alias("key"))


def _row(item: Item, checksums: bool) -> Row:
    partition, s = item["p"]["S"], item["s"]["S"]
    row: dict[str, Any] = {"kind": partition[0], "chain": partition[1:], "s": s}
    for name, column in NUMBERS.items():
        if name in item:
            row[column] = int(item[name]["N"])
    if row["kind"] not in "CS":
        return row
    row["n"] = int(s) if len(s) == 16 and s.isascii() and s.isdecimal() else None
    row["key"] = object_key_of(item)
    if "b" in item:
        packed = item["b"]["B"]
        row["length"] = len(packed) // 4 * 3 - packed[-2:].count("=")
    if row["kind"] == "C":
        rest = orjson.loads(item["r"]["S"]) if "r" in item else {}
        row["end"], row["gone"] = rest.get("e"), "g" in rest
        parts = parts_of(item["m"]["S"].encode()) if "m" in item else ()
        if parts:
            row |= _appends(parts, row.get("length"))
        if checksums and "b" in item:
            row["checksum"] = body_checksum(binascii.a2b_base64(item["b"]["B"]), parts)
    return row


def _appends(parts: Sequence[Part], length: int | None) -> Row:
    """Return the columns of an entry that lists its appends; `length`: of its body."""
    return {
        "steps": sum(part.step for part in parts),
        "torn": sum(part.length for part in parts) != length
        or any(min(part.length, part.step) < 1 for part in parts),
        "uneven": any(part.length != part.step for part in parts),
    }


def body_checksum(body: bytes, parts: Sequence[Part]) -> int:
    """As `checksum`, of an entry that lists its appends, or else has one."""
    return checksum(split(body, parts), [part.step for part in parts])


def checksum(bodies: Sequence[bytes], steps: Sequence[int]) -> int:
    """Return the CRC-32 of the appends of a slot, and of where they end if they are several."""
    data = zlib.crc32(b"".join(bodies))
    ends = [*map(len, bodies), *steps]
    return data if len(bodies) == 1 else zlib.crc32(orjson.dumps(ends), data)
