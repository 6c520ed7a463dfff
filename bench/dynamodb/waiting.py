"""Waiting for data: how late it is noticed, and what it costs when there is none."""

from __future__ import annotations

import asyncio
import random
import time
from typing import NamedTuple

from bench.dynamodb.lab import SMALL, Lab, append
from bench.dynamodb.ledger import Sample, traced
from tailrace.limits import POLL_MILLISECONDS
from tailrace.store.dynamodb.polling import SHARE
from tailrace.streams import Streams

PATIENCE = 60.0
MINUTE = 60.0


class Idle(NamedTuple):
    """Read units of one stream that somebody watches and nobody writes to."""

    seconds: float
    """For so long it was really watched."""
    first_minute: float
    """After an append."""
    per_minute: float
    """At the slowest pace."""


async def wake(lab: Lab, silence: float, at_once: int, rounds: int) -> list[Sample]:
    """From sending an append to having it elsewhere, on streams silent for some time."""
    writer = await lab.apart()
    samples: list[Sample] = []
    for _ in range(rounds):
        paths = [await lab.stream() for _ in range(at_once)]
        for path in paths:
            await writer.append(path, append(SMALL))
        samples += await asyncio.gather(*(_woken(lab, writer, path, silence) for path in paths))
    return samples


async def idle(lab: Lab, slow_seconds: float) -> Idle:
    """Watch until polls are slowest and for some time after; the rest is extrapolated."""
    slowest_after = lab.settings.poll_slowest / SHARE
    seconds = min(slowest_after + slow_seconds, MINUTE)
    view = await lab.streams.view(await lab.stream(entries=1), 1)
    with traced() as calls:
        begin = time.perf_counter()
        await lab.streams.store.wait(view.tail, view.end, seconds)
    slow = [call for call in calls if call.begin - begin > slowest_after]
    pace = (slow[-1].begin - slow[0].begin) / (len(slow) - 1)
    per_minute = slow[-1].read * MINUTE / pace
    rest = per_minute * (MINUTE - seconds) / MINUTE
    return Idle(seconds, sum(call.read for call in calls) + rest, per_minute)


async def _woken(lab: Lab, writer: Streams, path: str, silence: float) -> Sample:
    view = await lab.streams.view(path, 1)
    with traced() as calls:
        waiting = asyncio.create_task(lab.streams.follow(view.tail, view.end, PATIENCE))
    # At any moment between two polls.
    pause = max(POLL_MILLISECONDS / 1000, silence * SHARE)
    await asyncio.sleep(silence + random.uniform(0, pause))
    begin = time.perf_counter()
    await writer.append(path, append(SMALL))
    await waiting
    seconds = time.perf_counter() - begin
    return Sample(seconds, [call for call in calls if call.begin > begin])
