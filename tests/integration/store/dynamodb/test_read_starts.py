"""The last messages and those since an instant on DynamoDB: the same as in a list, in few reads."""

from __future__ import annotations

import random
from math import log2
from typing import cast

import pytest

from tailrace.log.append import Append
from tailrace.log.create import Create, ForkFrom
from tests.integration.store.dynamodb.conftest import Process, Start
from tests.integration.store.dynamodb.test_history import compact, let_go
from tests.support.archiving import Most
from tests.support.read_starts import JSON, check, check_forks, fill
from tests.support.streams import Clock

BYTES = "application/octet-stream"


@pytest.fixture
async def process(start: Start) -> Process:
    return await start(Clock(), chunk_bytes=1024, inline_bytes=1024)


@pytest.mark.parametrize(
    ("kind", "place"), [(JSON, "table"), (JSON, "both"), (JSON, "seam"), (BYTES, "seam")]
)
async def test_last_and_since_agree_with_a_list(process: Process, kind: str, place: str) -> None:
    clock, chance = cast("Clock", process.clock), random.Random(f"{place} {kind}")
    streams = process.streams
    model = await fill(streams, clock, "s", kind, chance, 15)
    slot = (await streams.find("s")).committed.slot
    await streams.create("fork", Create(fork=ForkFrom("s", slot // 2)))
    inherited = (await streams.find("fork")).committed.offset
    if place != "table":
        assert len(await compact(process, "s")) > 2
    if place == "seam":
        assert await let_go(process, "s") > 6
        clock.now = model[-1][0]
    await check(streams, "s", kind, model, clock)
    await check(streams, "fork", kind, model[:inherited], clock)
    await check_forks(streams, "s", kind, model, clock)


SLOTS = 200


@pytest.mark.parametrize("place", ["hot", "cold"])
async def test_the_reads_of_a_search_are_logarithmically_many(
    process: Process, start: Start, place: str
) -> None:
    clock = cast("Clock", process.clock)
    await process.streams.create("s", Create(content_type=JSON))
    times = []
    for number in range(SLOTS):
        clock.pass_s(1)
        times.append(clock.now)
        await process.streams.append("s", Append(b"%d" % number, JSON))
    if place == "cold":
        await compact(process, "s", Most(60))
        await let_go(process, "s")
    reader = await start(clock)
    # Observed: 6 calls hot and 8 cold. Where each append is a message, two slots say all.
    await reader.streams.read_last("s", 100)
    calls, written, read = reader.spent()
    assert written == 0
    assert calls.total() <= 8
    assert read <= 8
    # Observed: 19 calls hot and 23 cold.
    await reader.streams.read_since("s", times[SLOTS // 3])
    calls, written, read = reader.spent()
    assert written == 0
    assert calls.total() <= 2 * log2(SLOTS) + 8
    assert read <= 2 * log2(SLOTS) + 8
