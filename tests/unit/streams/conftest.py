from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tailrace.settings import Settings
from tailrace.store.sqlite.store import SqliteStore
from tailrace.streams import Streams
from tests.support.splitting import SplittingStore
from tests.support.streams import Client, Clock, over


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests over slots that hold one append, and over those that hold two.

    `whole_bodies` marks tests that count the sub-offset of a fork through a whole append."""
    if "store_kind" in metafunc.fixturenames:
        kinds = [SqliteStore, SplittingStore]
        if metafunc.definition.get_closest_marker("whole_bodies"):
            kinds.remove(SplittingStore)
        metafunc.parametrize("store_kind", kinds)


@pytest.fixture
async def streams(
    data: Path, clock: Clock, store_kind: type[SqliteStore]
) -> AsyncIterator[Streams]:
    settings = Settings(data=str(data))
    async with over(store_kind(settings), settings, clock) as streams:
        yield streams


@pytest.fixture
def client(streams: Streams) -> Client:
    return Client(streams)
