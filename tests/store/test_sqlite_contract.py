from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.settings import Settings
from tailrace.store.sqlite import SqliteStore
from tests.store.contract import Make, StoreContract


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
