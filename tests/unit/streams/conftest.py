from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tailrace.streams import Streams
from tests.support.streams import Client, Clock, serving


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
async def streams(data: Path, clock: Clock) -> AsyncIterator[Streams]:
    async with serving(data, clock) as streams:
        yield streams


@pytest.fixture
def client(streams: Streams) -> Client:
    return Client(streams)
