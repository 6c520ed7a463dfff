from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from pathlib import Path

import pytest

from tailrace.log.state import Entry, State, Stream
from tailrace.settings import Settings
from tailrace.store.sqlite.chain import Chain
from tailrace.store.sqlite.store import SqliteStore
from tests.support.store_contract import Make, StoreContract


class TestSqliteStore(StoreContract):
    @pytest.fixture
    def make(self, tmp_path: Path) -> Make:
        settings = Settings(data=str(tmp_path / "data"))
        return lambda: SqliteStore(settings)


class TestSqliteStoreWithoutMemory(StoreContract):
    """Nothing is kept in memory between requests: every read comes from the file."""

    @pytest.fixture
    def make(self, tmp_path: Path) -> Make:
        settings = Settings(data=str(tmp_path / "data"), hot_bytes=0, inline_bytes=1024)
        return lambda: SqliteStore(settings)


class CompactingStore(SqliteStore):
    """Compacts after every write."""

    async def create(self, stream: Stream, entries: Sequence[Entry]) -> Chain | None:
        created = await super().create(stream, entries)
        assert not (await self.compact()).failed
        return created

    def put(self, tail: Chain, before: State, entry: Entry) -> asyncio.Future[int | None]:
        return asyncio.ensure_future(self._compacted(super().put(tail, before, entry)))

    async def _compacted(self, putting: Awaitable[int | None]) -> int | None:
        slot = await putting
        assert not (await self.compact()).failed
        return slot


class TestSqliteStoreThatCompacts(StoreContract):
    """All but the last one or two entries of a stream are in segments."""

    @pytest.fixture
    def make(self, tmp_path: Path) -> Make:
        settings = Settings(
            data=str(tmp_path / "data"),
            hot_bytes=0,
            inline_bytes=1024,
            segment_max_messages=2,
        )
        return lambda: CompactingStore(settings)
