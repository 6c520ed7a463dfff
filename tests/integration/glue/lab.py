"""A store with streams in it, and the jobs that work on its table."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, NamedTuple, Self

import boto3
from pyspark.sql import SparkSession

from devtools.dynamodb_simulator.bucket import MemoryBucket
from devtools.dynamodb_simulator.table import MemoryTable
from devtools.processes import fresh_name
from glue_jobs import compact_history
from glue_jobs.shared.job import start_job
from glue_jobs.shared.workers import Row
from tailrace.clock import system_clock
from tailrace.log.append import Append
from tailrace.log.content import Mode, join_bodies
from tailrace.log.create import Create, ForkFrom
from tailrace.log.state import Producer
from tailrace.segments.reader import Manifest
from tailrace.settings import Settings
from tailrace.store.dynamodb.layout import Stored, manifest_of
from tailrace.store.dynamodb.provision import Backend
from tailrace.store.dynamodb.store import DynamoStore
from tailrace.streams import Streams

JSON, TEXT, BYTES = "application/json", "text/plain", "image/png"

DAY: Final = 86_400_000

TINY: Final = (
    "--segment-max-messages", "4", "--segment-max-bytes", "1024", "--segment-target-bytes", "2048",
)  # fmt: skip


class Memory(NamedTuple):
    """DynamoDB and S3 of this process, for what needs no Spark."""

    table: MemoryTable
    bucket: MemoryBucket

    @classmethod
    def new(cls) -> Self:
        at_once = (0.0, 0.0)
        return cls(
            MemoryTable(random.Random(0), latency=at_once, lag=0.0),
            MemoryBucket(random.Random(0), latency=at_once),
        )

    def connect(self) -> Backend:
        return Backend(self.table.connect(), self.bucket.connect())


@dataclass(frozen=True)
class Lab:
    spark: SparkSession | None
    settings: Settings
    store: DynamoStore
    streams: Streams
    memory: Memory | None = None
    places: defaultdict[str, list[tuple[int, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """Slot and offset after each append of a stream that was filled, as its writer was told."""

    @classmethod
    @asynccontextmanager
    async def over(
        cls, spark: SparkSession | None, memory: Memory | None = None
    ) -> AsyncIterator[Self]:
        """A table and a bucket of its own: in memory, or where the environment says."""
        table, bucket = fresh_name("glue"), fresh_name("glue")
        settings = Settings(
            store="dynamodb", table=table, bucket=bucket, chunk_bytes=1024, inline_bytes=1024
        )
        async with _opened(settings, memory) as store:
            made = cls(spark, settings, store, Streams(store, settings), memory)
            await made.bucket.put("made", b"")
            yield made

    @property
    def bucket(self) -> Any:
        assert self.store._backend is not None
        return self.store._backend.bucket

    @property
    def flags(self) -> list[str]:
        return ["--table", self.settings.table, "--bucket", self.settings.bucket]

    # Streams

    async def fill(
        self, path: str, kind: str, count: int, *, by: str | None = None, together: int = 1
    ) -> None:
        """Append bodies of several lengths: some have objects of their own, some pass a chunk.

        `together`: how many are sent at once, and share a slot unless they are large. `by`: their
        producers, one for each of these."""
        await self.streams.create(path, Create(content_type=kind))
        for first in range(0, count, together):
            appended = await asyncio.gather(
                *(
                    self.streams.append(path, _append(i, kind, by, i - first, first // together))
                    for i in range(first, min(first + together, count))
                )
            )
            self.places[path] += [(each.slot, each.offset) for each in appended]

    async def append(self, path: str, body: bytes) -> None:
        kind = (await self.streams.find(path)).stream.config.content_type
        await self.streams.append(path, Append(body, kind))

    async def fork(self, path: str, source: str, slot: int, sub_offset: int = 0) -> None:
        await self.streams.create(path, Create(fork=ForkFrom(source, slot, sub_offset)))

    async def everything(self, path: str) -> list[bytes]:
        """The first chunk that a new client gets, from each slot and each place within one on."""
        async with _opened(self.settings, self.memory) as store:
            streams = Streams(store, self.settings)
            tail = await streams.find(path)
            slots = [(n, 0) for n in range(tail.committed.tail + 1)]
            places = pairwise([(0, 0), *self.places[path]])
            inside = [place for before, place in places if before[0] == place[0]]
            seen = []
            for n, after in [*slots, *inside]:
                view = await streams.view(path, n, after)
                body = join_bodies(tail.stream.config.mode, view.bodies)
                about = view.end, view.next_offset.encode(), view.up_to_date, view.closed
                seen.append(b"%d %d %b %d %d %b" % (n, *about, body))
            return seen

    # The table and the bucket

    async def items(self, kind: str = "") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        if self.memory is not None:
            found += map(dict, self.memory.table.items())
        else:
            async for page in self.store._table.scan(0, 1):
                found += map(dict, page)
        return [item for item in found if item["p"]["S"].startswith(kind)]

    async def manifests(self, path: str) -> list[Manifest]:
        chain = (await self.streams.find(path)).stream.id
        found = [manifest_of(item) for item in await self.items(f"S{chain:016x}")]
        return sorted(found, key=lambda manifest: manifest.first)

    async def hot(self, path: str) -> list[int]:
        """The slots that are in the table."""
        chain = (await self.streams.find(path)).stream.id
        return sorted(int(item["s"]["S"]) for item in await self.items(f"C{chain:016x}"))

    @cached_property
    def s3(self) -> Any:
        return boto3.Session().client("s3")

    def objects(self, prefix: str = "") -> dict[str, int]:
        pages = self.s3.get_paginator("list_objects_v2")
        found = pages.paginate(Bucket=self.settings.bucket, Prefix=prefix)
        return {each["Key"]: each["Size"] for page in found for each in page.get("Contents", ())}

    # Jobs

    async def compact(self, *flags: str, later: int = 0) -> compact_history.Summary:
        """Runs the job, as it would be `later` milliseconds from now."""
        argv = [*self.flags, *(flags or TINY), "--now", str(system_clock() + later)]
        return await asyncio.to_thread(compact, argv)


def _append(i: int, kind: str, by: str | None, place: int, seq: int) -> Append:
    body = b'"%b"' % (b"%d" % (i % 10) * (3, 200, 1500, 20)[i % 4])
    return Append(body, kind, producer=Producer(f"{by}{place}", 0, seq) if by else None)


def cell_row(chain: int, mode: Mode, entry: Stored) -> Row:
    """An entry as compaction reads it from the table, but for its cell."""
    return {
        "cell": 0,
        "chain": f"{chain:016x}",
        "mode": mode.value,
        "n": entry.slot,
        "offset": entry.offset,
        "size": entry.size,
        "length": entry.length,
        "at": entry.state.written_at,
        "body": None if entry.object_key else entry.body,
        "key": entry.object_key,
        "rest": entry.item["r"]["S"] if "r" in entry.item else None,
        "parts": entry.item["m"]["S"] if "m" in entry.item else None,
    }


def compact(argv: Sequence[str]) -> compact_history.Summary:
    with start_job(compact_history.NAME, "", argv, compact_history.add_arguments) as job:
        return compact_history.run(job)


@asynccontextmanager
async def _opened(settings: Settings, memory: Memory | None) -> AsyncIterator[DynamoStore]:
    store = DynamoStore(settings, backend=None if memory is None else memory.connect())
    await store.open()
    try:
        yield store
    finally:
        await store.close()
