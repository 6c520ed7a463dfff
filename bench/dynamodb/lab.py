"""One engine to measure on: streams over its table, as one or many processes would have them."""

from __future__ import annotations

import itertools
import os
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from bench.dynamodb.ledger import Ledger, Objects
from devtools.engines.ministack import Engine, Ministack
from tailrace.aws.client.service_access import boto_client
from tailrace.clock import system_clock
from tailrace.log.append import Append, decide
from tailrace.log.create import Create
from tailrace.log.state import Config, State
from tailrace.settings import Settings
from tailrace.store.dynamodb import layout
from tailrace.store.dynamodb.provision import Backend
from tailrace.store.dynamodb.store import DynamoStore
from tailrace.streams import Streams

BINARY = "application/octet-stream"
SMALL = b"x" * 100


@dataclass(frozen=True, slots=True)
class Site:
    """An engine, and the table to use there."""

    name: str
    url: str
    settings: Settings
    on_aws: bool = False
    temporary: bool = False
    """Whether the table is removed afterwards."""


@contextmanager
def ministack() -> Iterator[Ministack]:
    with (
        TemporaryDirectory(prefix="bench-ministack-") as directory,
        Ministack(Path(directory)) as running,
    ):
        yield running


@contextmanager
def found_at(site: Site, local: Ministack) -> Iterator[None]:
    """Lets every client find the engine; S3 is ministack's unless the engine is AWS itself."""
    if site.on_aws:
        env = {"AWS_ENDPOINT_URL_DYNAMODB": site.url}
    else:
        env = Engine(site.name, site.url, local.url).env
    with patch.dict(os.environ, env):
        yield


class Clock:
    """The time of day, and more when it is set ahead."""

    def __init__(self) -> None:
        self.ahead = 0

    def __call__(self) -> int:
        return system_clock() + self.ahead


class Lab:
    streams: Streams
    """Those of a process that has been running for a while."""

    def __init__(self, site: Site, backend: Backend) -> None:
        self.settings = site.settings
        self.clock = Clock()
        self.has_bucket = backend.bucket is not None
        self._backend = backend
        self._numbers = itertools.count()
        self._others: list[Backend] = []

    @classmethod
    @asynccontextmanager
    async def open(cls, site: Site) -> AsyncIterator[Lab]:
        lab = cls(site, await Ledger.connect(site.settings))
        lab.streams = await lab.fresh()
        try:
            yield lab
        finally:
            for backend in (lab._backend, *lab._others):
                await backend.close()
                if isinstance(backend.bucket, Objects):
                    await backend.bucket.close()
            if site.temporary:
                boto_client("dynamodb", site.settings).delete_table(TableName=site.settings.table)

    async def fresh(self) -> Streams:
        """Those of a process that is connected, but has not seen any stream yet."""
        return await self._streams(self._backend)

    async def apart(self, distance: float = 0.0) -> Streams:
        """Those of another process, with connections of its own."""
        return await self._streams(await self.connect(distance))

    async def connect(self, distance: float = 0.0) -> Backend:
        backend = await Ledger.connect(self.settings, distance)
        self._others.append(backend)
        return backend

    def path(self) -> str:
        """One that was not used yet."""
        return f"bench/{next(self._numbers):06d}"

    async def stream(self, *, entries: int = 0, body: bytes = SMALL, ttl: int | None = None) -> str:
        path = self.path()
        await self.streams.create(path, Create(b"", BINARY, ttl=ttl))
        for _ in range(entries):
            await self.streams.append(path, append(body))
        return path

    async def _streams(self, backend: Backend) -> Streams:
        store = DynamoStore(self.settings, self.clock, backend)
        await store.open()
        return Streams(store, self.settings, self.clock)


def append(body: bytes) -> Append:
    return Append(body, BINARY)


def entry_item(body: bytes) -> dict[str, Any]:
    """The item of an entry in a stream that holds a gigabyte already."""
    now = system_clock()
    state = State(10_000_000, 1 << 30, 1 << 30, now)
    entry = decide(Config(BINARY, now), state, append(body), now).entry
    assert entry is not None
    return layout.entry_item(secrets.randbits(62), entry, secrets.token_hex(8), None)
