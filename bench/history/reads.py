"""A chunk of the table beside a chunk of a segment."""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import replace
from typing import NamedTuple

from bench.history.data import KINDS, Made
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.settings import Settings
from tailrace.store.dynamodb.store import DynamoStore
from tailrace.streams import Streams

CHUNK_BYTES = 64 << 10
READS = 200
ENTRIES = 2_000
HOT, COLD = "bench/hot", "bench/1"


class Reads(NamedTuple):
    """Milliseconds of a chunk, at the median."""

    hot: float
    cold: float
    first: float
    """Of a segment whose index is not known."""


async def reads(settings: Settings, made: Made) -> Reads:
    settings = replace(settings, chunk_bytes=CHUNK_BYTES)
    store = DynamoStore(settings)
    await store.open()
    try:
        streams = Streams(store, settings)
        await streams.create(HOT, Create(content_type=KINDS[1]))
        for _ in range(ENTRIES):
            await streams.append(HOT, Append(b"x" * (made.bytes // made.appends), KINDS[1]))
        slots = (await streams.find(COLD)).committed.tail
        hot = await _median(streams, HOT, ENTRIES // 2)
        first = []
        for _ in range(READS // 10):
            stranger = DynamoStore(settings)
            await stranger.open()
            await Streams(stranger, settings).view(COLD, slots)  # It is connected now.
            first.append(await _read(Streams(stranger, settings), COLD, slots // 2))
            await stranger.close()
        cold = await _median(streams, COLD, slots // 2)
    finally:
        await store.close()
    return Reads(hot, cold, statistics.median(first))


async def _median(streams: Streams, path: str, slots: int) -> float:
    rng = random.Random(path)
    await _read(streams, path, 0)
    return statistics.median(
        [await _read(streams, path, rng.randrange(slots)) for _ in range(READS)]
    )


async def _read(streams: Streams, path: str, n: int) -> float:
    begun = time.perf_counter()
    view = await streams.view(path, n)
    took = (time.perf_counter() - begun) * 1000
    assert view.bodies or view.up_to_date
    return took
