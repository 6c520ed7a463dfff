"""The objects of the bucket as a frame, and the length of one object."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
from botocore.exceptions import ClientError
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from glue_jobs.shared.items import PARTS_PER_CORE
from glue_jobs.shared.job import Job
from glue_jobs.shared.workers import Backend, Row, map_partitions
from tailrace.aws.client.service_access import boto_client
from tailrace.settings import Settings
from tailrace.store.dynamodb.provision import LOCAL_BUCKET

FOLDERS: Final = ("bodies", "segments")
DIGITS: Final = "0123456789abcdef"
"""The first digit of a chain: S3 lists page by page, so prefixes are listed in parallel."""

LISTING: Final = (
    T.StructType()
    .add("key", T.StringType())
    .add("bytes", T.LongType())
    .add("modified", T.LongType())
)
"""`modified`: when the object was written, in milliseconds."""


def list_objects(job: Job) -> DataFrame:
    """List large bodies and segments, a row per object."""
    prefixes = job.spark.createDataFrame(
        [(f"{folder}/{digit}",) for folder in FOLDERS for digit in DIGITS], "prefix string"
    ).repartition(PARTS_PER_CORE * job.spark.sparkContext.defaultParallelism)
    settings = job.settings

    async def read(_: Backend, batches: Iterator[pa.RecordBatch]) -> AsyncIterator[Sequence[Row]]:
        for batch in batches:
            for row in batch.to_pylist():
                async for page in _pages(settings, row["prefix"]):
                    yield [_row(each) for each in page]

    return map_partitions(prefixes, settings, LISTING, read)


async def length(settings: Settings, key: str) -> int | None:
    """The length of an object; None if it does not exist."""
    try:
        response = await asyncio.to_thread(
            _client(settings).head_object, Bucket=bucket_name(settings), Key=key
        )
    except ClientError as error:
        if error.response["Error"]["Code"] in ("404", "NoSuchKey", "NoSuchBucket"):
            return None
        raise
    return int(response["ContentLength"])


def bucket_name(settings: Settings) -> str:
    return settings.bucket or LOCAL_BUCKET


def _row(entry: Any) -> Row:
    modified = int(entry["LastModified"].timestamp() * 1000)
    return {"key": entry["Key"], "bytes": entry["Size"], "modified": modified}


async def _pages(settings: Settings, prefix: str) -> AsyncIterator[Sequence[Any]]:
    request = {"Bucket": bucket_name(settings), "Prefix": prefix}
    while True:
        try:
            answer = await asyncio.to_thread(_client(settings).list_objects_v2, **request)
        except ClientError as error:
            if error.response["Error"]["Code"] == "NoSuchBucket":
                return  # A local bucket is created with the first object.
            raise
        yield answer.get("Contents", ())
        if not answer.get("IsTruncated"):
            return
        request["ContinuationToken"] = answer["NextContinuationToken"]


@lru_cache(maxsize=1)
def _client(settings: Settings) -> Any:
    return boto_client("s3", settings)
