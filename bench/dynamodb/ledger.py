"""Every call on its way to DynamoDB or S3, noted down with what AWS bills for it."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from bench.dynamodb.units import lost_units, read_units
from bench.rows import TIMES
from tailrace.aws.client.failures import ConditionFailed, TransactionCanceled
from tailrace.aws.client.json_client import Call
from tailrace.settings import Settings
from tailrace.store.dynamodb.bodies import Bucket, S3Bucket
from tailrace.store.dynamodb.provision import Backend, connect
from tailrace.store.dynamodb.table import TableClient

S3_PUT = "S3 PUT"
S3_GET = "S3 GET"
THEN = " → "


class Made(NamedTuple):
    """A call that was made, and the units it consumed."""

    operation: str
    begin: float
    end: float
    read: float = 0.0
    write: float = 0.0


class Sample(NamedTuple):
    """One run of an operation."""

    seconds: float
    calls: Sequence[Made]


_trace: ContextVar[list[Made] | None] = ContextVar("trace", default=None)


@contextmanager
def traced() -> Iterator[list[Made]]:
    """The calls made from here on, by the tasks that begin in the meantime, too."""
    calls: list[Made] = []
    token = _trace.set(calls)
    try:
        yield calls
    finally:
        _trace.reset(token)


async def measured(work: Awaitable[object]) -> Sample:
    with traced() as calls:
        begin = time.perf_counter()
        await work
        return Sample(time.perf_counter() - begin, calls)


class Ledger:
    """Stands before a client and notes what goes through."""

    _client: TableClient
    _last: Call

    def __init__(self, distance: float) -> None:
        self._distance = distance

    @classmethod
    async def connect(cls, settings: Settings, distance: float = 0.0) -> Backend:
        """`distance`: seconds, about, that a call takes longer than it would on this machine."""
        ledger = cls(distance)
        backend = await connect(settings, ledger._meter)
        ledger._client = backend.client
        return Backend(ledger, None if backend.bucket is None else Objects(backend.bucket))

    async def call(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        begin = time.perf_counter()
        await self._travel()
        try:
            answer = await self._client.call(operation, request)
            # The meter was called in this very step of the loop: what it got is of this call.
            read, write = self._last.read_units, self._last.write_units
            await self._travel()
        except (ConditionFailed, TransactionCanceled) as failure:
            await self._travel()
            # Local engines do not say what a failure consumed.
            note(Made(operation, begin, time.perf_counter(), write=lost_units(request, failure)))
            raise
        if read:
            # Not every local engine goes by the size of what was read.
            read = max(read, read_units(request, answer))
        note(Made(operation, begin, time.perf_counter(), read, write))
        return answer

    async def close(self) -> None:
        await self._client.close()

    async def _travel(self) -> None:
        if self._distance:
            await asyncio.sleep(self._distance * random.uniform(0.25, 0.75))

    def _meter(self, call: Call) -> None:
        self._last = call


class Objects:
    """Stands before a bucket; what was put there can be removed at the end."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._keys: list[str] = []

    async def put(self, key: str, body: bytes) -> None:
        self._keys.append(key)
        begin = time.perf_counter()
        await self._bucket.put(key, body)
        note(Made(S3_PUT, begin, time.perf_counter()))

    async def get(self, key: str, begin: int = 0, end: int | None = None) -> bytes:
        sent = time.perf_counter()
        body = await self._bucket.get(key, begin, end)
        note(Made(S3_GET, sent, time.perf_counter()))
        return body

    async def delete(self, keys: Sequence[str]) -> None:
        await self._bucket.delete(keys)

    async def close(self) -> None:
        await self.delete(self._keys)
        if isinstance(self._bucket, S3Bucket):
            self._bucket.close()


def shape(calls: Sequence[Made]) -> str:
    """Which calls were made: `+` at the same time, `→` one after the other."""
    levels: list[tuple[Made, int]] = []
    for call in sorted(calls, key=lambda call: call.begin):
        before = [level for other, level in levels if other.end <= call.begin]
        levels.append((call, 1 + max(before, default=0)))
    steps: dict[int, Counter[str]] = {}
    for call, level in levels:
        steps.setdefault(level, Counter())[call.operation] += 1
    return THEN.join(
        " + ".join(
            name if times == 1 else f"{times} {TIMES} {name}" for name, times in sorted(at.items())
        )
        for _, at in sorted(steps.items())
    )


def note(call: Made) -> None:
    calls = _trace.get()
    if calls is not None:
        calls.append(call)
