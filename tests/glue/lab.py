"""A store with streams in it, and the jobs that work on its table."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Self

from pyspark.sql import SparkSession

from glue_jobs import compact_history
from glue_jobs.shared.job import running
from tailrace.clock import system_clock
from tailrace.history.reader import Manifest
from tailrace.log.append import Append
from tailrace.log.content import joined
from tailrace.log.create import Create, ForkFrom
from tailrace.log.state import Producer
from tailrace.settings import Settings
from tailrace.store.dynamo.layout import manifest_of
from tailrace.store.dynamo.store import DynamoStore
from tailrace.streams import Streams
from tests.engines import fresh_name

JSON, TEXT, BYTES = "application/json", "text/plain", "image/png"

DAY: Final = 86_400_000

TINY: Final = (
    "--segment-max-messages", "4", "--segment-max-bytes", "1024", "--segment-target-bytes", "2048",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Lab:
    spark: SparkSession | None
    settings: Settings
    store: DynamoStore
    streams: Streams

    @classmethod
    @asynccontextmanager
    async def over(cls, spark: SparkSession | None, **more: Any) -> AsyncIterator[Self]:
        values = {"chunk_bytes": 1024, "inline_bytes": 1024, **more}
        settings = Settings(
            store="dynamodb", table=fresh_name("glue"), bucket=fresh_name("glue"), **values
        )
        store = DynamoStore(settings)
        await store.open()
        try:
            made = cls(spark, settings, store, Streams(store, settings))
            await made.bucket.put("made", b"")
            yield made
        finally:
            await store.close()

    @property
    def bucket(self) -> Any:
        assert self.store._backend is not None
        return self.store._backend.bucket

    @property
    def flags(self) -> list[str]:
        return ["--table", self.settings.table, "--bucket", self.settings.bucket]

    # Streams

    async def fill(self, path: str, kind: str, entries: int, *, by: str | None = None) -> None:
        """Bodies of several lengths: some have objects of their own, some pass a chunk."""
        await self.streams.create(path, Create(content_type=kind))
        for i in range(entries):
            body = b'"%b"' % (b"%d" % (i % 10) * (3, 200, 1500, 20)[i % 4])
            producer = Producer(by, 0, i) if by else None
            await self.streams.append(path, Append(body, kind, producer=producer))

    async def append(self, path: str, body: bytes) -> None:
        kind = (await self.streams.find(path)).stream.config.content_type
        await self.streams.append(path, Append(body, kind))

    async def fork(self, path: str, source: str, slot: int, sub_offset: int = 0) -> None:
        await self.streams.create(path, Create(fork=ForkFrom(source, slot, sub_offset)))

    async def everything(self, path: str) -> list[bytes]:
        """What a client that begins at any slot gets, chunk by chunk."""
        store = DynamoStore(self.settings)
        await store.open()
        try:
            return await _everything(Streams(store, self.settings), path)
        finally:
            await store.close()

    # The table and the bucket

    async def items(self, kind: str = "") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        async for page in self.store._table.scan(0, 1):
            found += [dict(item) for item in page if item["p"]["S"].startswith(kind)]
        return found

    async def manifests(self, path: str) -> list[Manifest]:
        chain = (await self.streams.find(path)).stream.id
        found = [manifest_of(item) for item in await self.items(f"S{chain:016x}")]
        return sorted(found, key=lambda manifest: manifest.first)

    async def hot(self, path: str) -> list[int]:
        """The slots that are in the table."""
        chain = (await self.streams.find(path)).stream.id
        return sorted(int(item["s"]["S"]) for item in await self.items(f"C{chain:016x}"))

    def objects(self, prefix: str = "") -> dict[str, int]:
        import boto3

        pages = boto3.Session().client("s3").get_paginator("list_objects_v2")
        found = pages.paginate(Bucket=self.settings.bucket, Prefix=prefix)
        return {each["Key"]: each["Size"] for page in found for each in page.get("Contents", ())}

    # Jobs

    async def compact(self, *flags: str, later: int = 0) -> compact_history.Summary:
        """Runs the job, as it would be `later` milliseconds from now."""
        argv = [*self.flags, *(flags or TINY), "--now", str(system_clock() + later)]
        return await asyncio.to_thread(compact, argv)


def compact(argv: Sequence[str]) -> compact_history.Summary:
    with running(compact_history.NAME, "", argv, compact_history.add_arguments) as job:
        return compact_history.run(job)


async def _everything(streams: Streams, path: str) -> list[bytes]:
    tail = await streams.find(path)
    seen = []
    for n in range(tail.settled.tail + 1):
        at = n
        while True:
            view = await streams.view(path, at)
            body = joined(tail.stream.config.mode, view.bodies)
            seen.append(b"%d %d %b %b" % (at, view.end, view.next_offset.encode(), body))
            if view.up_to_date or view.end == at:
                break
            at = view.end
    return seen
