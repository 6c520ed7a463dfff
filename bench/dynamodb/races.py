"""Many appends to one log: by one writer, by eight processes, and by eight tasks of one process."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple

from bench.dynamodb.designs import TIP_BYTES, HeadAndEntry, Tip
from bench.dynamodb.lab import SMALL, Lab, append
from bench.dynamodb.ledger import Sample, measured, round_trips
from tailrace.aws.client.json_client import WRITES
from tailrace.errors import StoreUnavailable
from tailrace.store.dynamodb.provision import Backend
from tailrace.streams import Streams

WRITERS = 8
DISTANCE = 0.005
"""Seconds to DynamoDB and back: what a call from a function in the same region takes, roughly."""

APPENDS = TIP_BYTES // len(SMALL) + 1
"""To one log: so many that the growing item was emptied once. More would show how long ministack's
queries take in a long chain, which AWS's do not."""

ALONE = "1 process"
APART = f"{WRITERS} processes"
TOGETHER = f"{WRITERS} in one process"

SLOTS = "slot chain"
TRANSACTION = "head and entry in a transaction"
ONE_ITEM = "one growing item"
OTHERS: dict[str, type[HeadAndEntry | Tip]] = {TRANSACTION: HeadAndEntry, ONE_ITEM: Tip}

Write = Callable[[], Awaitable[object]]


class Race(NamedTuple):
    """The average cost of one append."""

    design: str
    writers: str
    far: bool
    per_second: float
    p99: float
    """In milliseconds, from asking for the append to its acknowledgement."""
    attempts: float
    """Writes tried, lost ones included."""
    write: float
    read: float
    round_trips: float
    refused: int
    """Appends in all that were given up after too many lost attempts, and asked for again."""


async def slot_races(lab: Lab, rounds: int, *, far: bool) -> list[Race]:
    """The store itself, with everything it does besides."""
    apart = [await lab.apart(DISTANCE if far else 0.0) for _ in range(WRITERS)]

    async def begun(group: Sequence[Streams]) -> list[Write]:
        path = await lab.stream(entries=1)
        return [partial(streams.append, path, append(SMALL)) for streams in group]

    return [
        await _race(SLOTS, label, partial(begun, group), rounds, far=far)
        for label, group in (
            (ALONE, apart[:1]),
            (APART, apart),
            (TOGETHER, apart[:1] * WRITERS),
        )
    ]


async def other_races(lab: Lab, rounds: int, *, far: bool) -> list[Race]:
    connected = [await lab.connect(DISTANCE if far else 0.0) for _ in range(WRITERS)]

    async def begun(design: type[HeadAndEntry | Tip], group: Sequence[Backend]) -> list[Write]:
        log = secrets.randbits(62)
        logs = [design(each.client, lab.settings.table, log) for each in group]
        await logs[0].begin()
        return [partial(each.append, SMALL) for each in logs]

    return [
        await _race(name, label, partial(begun, design, group), rounds, far=far)
        for name, design in OTHERS.items()
        for label, group in ((ALONE, connected[:1]), (APART, connected))
    ]


async def _race(
    design: str,
    writers: str,
    begin: Callable[[], Awaitable[Sequence[Write]]],
    rounds: int,
    *,
    far: bool,
) -> Race:
    samples: list[Sample] = []
    refused: list[StoreUnavailable] = []
    seconds = 0.0
    for _ in range(rounds):
        writes = await begin()
        for write in writes:
            await write()
        begun = time.perf_counter()
        each = APPENDS // len(writes)
        found = await asyncio.gather(*(_written(write, each, refused) for write in writes))
        seconds += time.perf_counter() - begun
        samples += itertools.chain.from_iterable(found)
    calls = [call for sample in samples for call in sample.calls]
    times = len(samples)
    cuts = statistics.quantiles((sample.seconds for sample in samples), n=100, method="inclusive")
    return Race(
        design,
        writers,
        far,
        per_second=times / seconds,
        p99=cuts[98] * 1000,
        attempts=sum(call.operation in WRITES for call in calls) / times,
        write=sum(call.write for call in calls) / times,
        read=sum(call.read for call in calls) / times,
        round_trips=sum(round_trips(sample.calls) for sample in samples) / times,
        refused=len(refused),
    )


async def _written(write: Write, times: int, refused: list[StoreUnavailable]) -> list[Sample]:
    async def persist() -> None:
        while True:
            try:
                await write()
            except StoreUnavailable as error:
                refused.append(error)
            else:
                return

    return [await measured(persist()) for _ in range(times)]
