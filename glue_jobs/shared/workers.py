"""What runs in Spark's workers: functions over Arrow batches that talk to DynamoDB and S3."""

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
    """DynamoDB and S3, as a worker has them."""

    table: Table
    bucket: Bucket


async def connected(settings: Settings) -> Backend:
    made = await connect(settings)
    assert made.bucket is not None, "the driver has looked at that"
    return Backend(Table(made.client, settings.table), made.bucket)


_held: dict[tuple[Settings, str | None], tuple[asyncio.Runner, Backend]] = {}
"""What this worker has: Spark gives it one task after the other, and connecting takes longer than
most of them. It ends with the worker."""


def _hold(settings: Settings, region: str | None) -> tuple[asyncio.Runner, Backend]:
    if (settings, region) not in _held:
        if region:
            os.environ["AWS_REGION"] = os.environ["AWS_DEFAULT_REGION"] = region
        runner = asyncio.Runner()
        _held[settings, region] = runner, runner.run(connected(settings))
    return _held[settings, region]


Call = Callable[[Backend, Iterator[pa.RecordBatch]], AsyncIterator[Sequence[Row]]]


def over(frame: DataFrame, settings: Settings, schema: T.StructType, call: Call) -> DataFrame:
    """What `call` makes of all rows of each partition of a frame."""
    # The environment of the workers may not have it.
    region = os.environ.get("AWS_REGION")
    # To Spark two frames with one plan are the same, and the second would be answered from what is
    # kept of the first. But what is outside of Spark changes: each look is one of its own.
    look = secrets.token_hex(8)

    def each(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _ = look
        made = arrow_schema(schema)
        runner, backend = _hold(settings, region)
        rows = call(backend, iter(batches))
        # Spark asks for batches one by one; in between nothing runs.
        while (found := runner.run(_next(rows))) is not None:
            if found:
                yield pa.RecordBatch.from_pylist(list(found), made)

    return frame.mapInArrow(each, schema)


async def _next(rows: AsyncIterator[Sequence[Row]]) -> Sequence[Row] | None:
    return await anext(rows, None)


def for_each(
    frame: DataFrame,
    settings: Settings,
    schema: T.StructType,
    call: Callable[[Backend, Row], Awaitable[Sequence[Row]]],
    at_once: int,
) -> DataFrame:
    """What `call` makes of each row of a frame, of some rows at once."""

    async def every(
        backend: Backend, batches: Iterator[pa.RecordBatch]
    ) -> AsyncIterator[Sequence[Row]]:
        rows = (row for batch in batches for row in batch.to_pylist())
        async for made in gathered((call(backend, row) for row in rows), at_once):
            yield made

    return over(frame, settings, schema, every)


async def gathered(
    calls: Iterable[Awaitable[Sequence[Row]]], at_once: int
) -> AsyncIterator[Sequence[Row]]:
    """What all calls make, of which some are under way at once."""
    rest = iter(calls)
    while some := list(islice(rest, at_once)):
        made = await asyncio.gather(*some)
        yield [row for each in made for row in each]


def arrow_schema(schema: T.StructType) -> pa.Schema:
    return pa.schema([(field.name, _ARROW[type(field.dataType)]) for field in schema.fields])


_ARROW: Mapping[type[T.DataType], pa.DataType] = {
    T.StringType: pa.string(),
    T.BinaryType: pa.binary(),
    T.LongType: pa.int64(),
    T.IntegerType: pa.int32(),
    T.BooleanType: pa.bool_(),
}
