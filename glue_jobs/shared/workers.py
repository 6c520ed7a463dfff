"""Runs functions with access to DynamoDB and S3 over Arrow batches in Spark's workers."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from itertools import islice
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from tailrace.settings import Settings
from tailrace.store.dynamodb.bodies import Bucket
from tailrace.store.dynamodb.provision import connect
from tailrace.store.dynamodb.table import Table

Row = Mapping[str, Any]


class Backend(NamedTuple):
    """A worker's connections to DynamoDB and S3."""

    table: Table
    bucket: Bucket


async def connect_backend(settings: Settings) -> Backend:
    connection = await connect(settings, check_table=False)
    assert connection.bucket is not None, "the driver has checked it"
    return Backend(Table(connection.client, settings.table), connection.bucket)


_cache: dict[tuple[Settings, str | None], tuple[asyncio.Runner, Backend]] = {}
"""This worker's connections, cached until it exits: Spark gives it one task after another, and
connecting takes longer than most of them."""


def _get_backend(settings: Settings, region: str | None) -> tuple[asyncio.Runner, Backend]:
    if (settings, region) not in _cache:
        if region:
            os.environ["AWS_REGION"] = os.environ["AWS_DEFAULT_REGION"] = region
        runner = asyncio.Runner()
        _cache[settings, region] = runner, runner.run(connect_backend(settings))
    return _cache[settings, region]


Call = Callable[[Backend, Iterator[pa.RecordBatch]], AsyncIterator[Sequence[Row]]]


def map_partitions(
    frame: DataFrame, settings: Settings, schema: T.StructType, call: Call
) -> DataFrame:
    """Apply `call` to each partition of a frame."""
    # The workers' environment may lack it.
    region = os.environ.get("AWS_REGION")
    # Spark would take two frames with equal plans for the same, and reuse the cached rows of the
    # first. But the store changes between them, so each plan gets a nonce.
    nonce = secrets.token_hex(8)

    def each(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _ = nonce
        arrow = arrow_schema(schema)
        runner, backend = _get_backend(settings, region)
        rows = call(backend, iter(batches))
        # Spark pulls batches one by one; nothing runs in between.
        while (batch := runner.run(_next(rows))) is not None:
            if batch:
                yield pa.RecordBatch.from_pylist(list(batch), arrow)

    return frame.mapInArrow(each, schema)


async def _next(rows: AsyncIterator[Sequence[Row]]) -> Sequence[Row] | None:
    return await anext(rows, None)


def map_rows(
    frame: DataFrame,
    settings: Settings,
    schema: T.StructType,
    call: Callable[[Backend, Row], Awaitable[Sequence[Row]]],
    at_once: int,
) -> DataFrame:
    """Apply `call` to each row of a frame, to `at_once` rows concurrently."""

    async def every(
        backend: Backend, batches: Iterator[pa.RecordBatch]
    ) -> AsyncIterator[Sequence[Row]]:
        rows = (row for batch in batches for row in batch.to_pylist())
        async for results in gather_batches((call(backend, row) for row in rows), at_once):
            yield results

    return map_partitions(frame, settings, schema, every)


async def gather_batches(
    calls: Iterable[Awaitable[Sequence[Row]]], at_once: int
) -> AsyncIterator[Sequence[Row]]:
    """Yield the results of calls, `at_once` of which run concurrently."""
    rest = iter(calls)
    while some := list(islice(rest, at_once)):
        results = await asyncio.gather(*some)
        yield [row for each in results for row in each]


def arrow_schema(schema: T.StructType) -> pa.Schema:
    return pa.schema([(field.name, _ARROW[type(field.dataType)]) for field in schema.fields])


_ARROW: Mapping[type[T.DataType], pa.DataType] = {
    T.StringType: pa.string(),
    T.BinaryType: pa.binary(),
    T.LongType: pa.int64(),
    T.IntegerType: pa.int32(),
    T.BooleanType: pa.bool_(),
}
