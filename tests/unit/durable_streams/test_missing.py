"""Waits for streams that do not exist: bounded, shared, and over when the server stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tailrace.errors import TooManyRequests
from tailrace.limits import MISSING_WAITS_PER_CLIENT
from tailrace.protocols.durable_streams.missing import MissingStreams
from tailrace.streams import Streams
from tests.support.streams import Client, Clock, begun, ended, serving


@pytest.fixture
async def streams(tmp_path: Path) -> AsyncIterator[Streams]:
    async with serving(tmp_path / "data", Clock()) as streams:
        yield streams


async def test_a_client_waits_for_a_bounded_number_of_streams(streams: Streams) -> None:
    missing = MissingStreams(streams)
    waits = []
    for number in range(MISSING_WAITS_PER_CLIENT):
        missing.check("a")
        waits.append(await begun(missing.wait(f"s/{number}", "a", 60), 0))
    with pytest.raises(TooManyRequests):
        missing.check("a")
    missing.check("b")
    await Client(streams).create("s/0")
    assert await ended(waits.pop(0))
    missing.check("a")
    for wait in waits:
        wait.cancel()
    await asyncio.gather(*waits, return_exceptions=True)
    assert not missing._waits
    assert not missing._lookups


async def test_waits_for_one_stream_share_its_lookups(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing, lookups = MissingStreams(streams), 0
    find = streams.find

    async def counting(path: str) -> object:
        nonlocal lookups
        lookups += 1
        return await find(path)

    monkeypatch.setattr(streams, "find", counting)
    waits = [await begun(missing.wait("s", f"{number}", 60)) for number in range(5)]
    assert lookups == 1
    waits.pop().cancel()
    await Client(streams).create("s")
    assert [await ended(wait) for wait in waits] == [True] * 4


async def test_a_stopping_server_ends_the_waits(streams: Streams) -> None:
    missing = MissingStreams(streams)
    wait = await begun(missing.wait("s", "a", 60))
    streams.drain()
    assert not await ended(wait)
