"""The cache of joined chunks: each view gets its own data, and memory is bounded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.log.offsets import Position
from tailrace.protocols.durable_streams import joined_bodies
from tailrace.protocols.durable_streams.joined_bodies import JoinedBodies, join
from tailrace.streams import Streams
from tests.support.streams import Clock, serving

JSON = "application/json"


@pytest.fixture
async def streams(tmp_path: Path) -> AsyncIterator[Streams]:
    async with serving(tmp_path / "data", Clock()) as streams:
        yield streams


async def test_every_part_of_a_stream_is_joined_as_without_a_cache(streams: Streams) -> None:
    cache = JoinedBodies()
    for path in ("a", "b"):
        await streams.create(path, Create(content_type=JSON))
        for number in range(12):
            await streams.append(path, Append(b'"%b%d"' % (path.encode(), number), JSON))
    for _ in range(2):
        for path in ("a", "b"):
            for slot in range(12):
                view = await streams.read(path, Position(slot), chunk_bytes=20)
                assert cache.join(view) == join(view)


async def test_the_cache_is_bounded(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined_bodies, "JOINED_BYTES", 800)
    cache = JoinedBodies()
    await streams.create("a", Create(content_type=JSON))
    for number in range(40):
        await streams.append("a", Append(b'"%025d"' % number, JSON))
    for slot in range(0, 38, 2):
        view = await streams.read("a", Position(slot), chunk_bytes=54)
        assert cache.join(view) is cache.join(view)
        assert cache._bytes == sum(len(each.body) for each in cache._chunks.values()) <= 800
    whole = await streams.read("a", Position(0))
    assert cache.join(whole) is not cache.join(whole)
