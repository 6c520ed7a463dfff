"""Waiting for data: how late a reader gets it, and what it costs while there is none.

`wake` is measured on a real engine. The others go through the whole application in virtual time, so
that silence may last for hours, and a busy machine changes nothing.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from typing import Final, NamedTuple

from bench.dynamodb.lab import SMALL, Lab, append
from bench.dynamodb.ledger import Sample, traced
from bench.dynamodb.virtual import Exchange, process, simulate, table
from tailrace.app import Application
from tailrace.streams import Streams

PATIENCE: Final = 60.0
QUIET_SECONDS: Final = 2 * 3600.0
"""Silence after which polls are slowest."""

LONG_POLL: Final = "long-poll"
SSE: Final = "SSE"


class Delivery(NamedTuple):
    """From the acknowledgement of an append to its response to a reader, in milliseconds."""

    mode: str
    same_process: bool
    quiet: bool
    p50: float
    p99: float
    times: int


class Waiting(NamedTuple):
    """Read units a second of a stream that is long-polled all the time and not written to."""

    news: float
    """In the minutes after an append."""
    quiet: float
    """After hours."""


async def wake(lab: Lab, silence: float, at_once: int, rounds: int) -> list[Sample]:
    """From sending an append to having it elsewhere, on streams silent for some time."""
    writer = await lab.apart()
    samples: list[Sample] = []
    for _ in range(rounds):
        paths = [await lab.stream() for _ in range(at_once)]
        for path in paths:
            await writer.append(path, append(SMALL))
        lab.clock.ahead += round(silence * 1000)
        samples += await asyncio.gather(*(_woken(lab, writer, path) for path in paths))
    return samples


async def _woken(lab: Lab, writer: Streams, path: str) -> Sample:
    view = await lab.streams.view(path, 1)
    with traced() as calls:
        waiting = asyncio.create_task(lab.streams.follow(view.tail, view.end, PATIENCE))
    # At any moment between two polls.
    await asyncio.sleep(random.uniform(1, 2) * lab.settings.poll_slowest)
    begin = time.perf_counter()
    await writer.append(path, append(SMALL))
    await waiting
    seconds = time.perf_counter() - begin
    return Sample(seconds, [call for call in calls if call.begin > begin])


def deliveries(times: int) -> list[Delivery]:
    return [
        _delivery(mode, times, same_process=same_process, quiet=quiet)
        for mode in (LONG_POLL, SSE)
        for quiet in (False, True)
        for same_process in (True, False)
    ]


def _delivery(mode: str, times: int, *, same_process: bool, quiet: bool) -> Delivery:
    async def main() -> list[float]:
        shared = table()
        here = await process(shared)
        there = here if same_process else await process(shared)
        offset = await _create(here)
        late = []
        for _ in range(times):
            await asyncio.sleep(QUIET_SECONDS if quiet else random.uniform(0.1, 30))
            reading = asyncio.ensure_future(_read(here, mode, offset))
            await asyncio.sleep(random.uniform(2, 8))
            sent = Exchange(there, "POST", "a", SMALL)
            acknowledged = await sent.done()
            offset = sent.headers["stream-next-offset"]
            late.append(await reading - acknowledged)
        return late

    late = simulate(main)
    cuts = statistics.quantiles(late, n=100, method="inclusive")
    return Delivery(mode, same_process, quiet, cuts[49] * 1000, cuts[98] * 1000, times)


async def _read(app: Application, mode: str, offset: str) -> float:
    """Wait for data with one request; return when it was sent."""
    reading = Exchange(app, "GET", "a", offset=offset, live=mode.lower())
    if mode == LONG_POLL:
        return await reading.done()
    at = await reading.event(b"data")
    await reading.leave()
    return at


def waiting(seconds: float) -> Waiting:
    """A reader that asks again as soon as a long-poll has ended without data."""

    async def main() -> Waiting:
        app = await process(table())
        offset = await _create(app)
        news = await _units(app, offset, seconds)
        await asyncio.sleep(QUIET_SECONDS)
        return Waiting(news, await _units(app, offset, seconds))

    return simulate(main)


async def _units(app: Application, offset: str, seconds: float) -> float:
    now = asyncio.get_running_loop().time
    begun = now()
    with traced() as calls:
        while now() - begun < seconds:
            await Exchange(app, "GET", "a", offset=offset, live="long-poll").done()
    return sum(call.read for call in calls) / (now() - begun)


async def _create(app: Application) -> str:
    """Create the stream, and return where it ends."""
    await Exchange(app, "PUT", "a").done()
    sent = Exchange(app, "POST", "a", SMALL)
    await sent.done()
    return sent.headers["stream-next-offset"]
