"""Many appends to one log: by one or by eight processes, each with one or with many writers."""

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
from bench.dynamodb.ledger import Made, traced
from tailrace.aws.client.json_client import WRITES
from tailrace.errors import StoreUnavailable
from tailrace.store.dynamodb.provision import Backend
from tailrace.streams import Streams

DISTANCE = 0.005
"""Seconds to DynamoDB and back: what a call from a function in the same region takes, roughly."""

SLOTS = "slot chain"
TRANSACTION = "head and entry in a transaction"
ONE_ITEM = "one growing item"
OTHERS: dict[str, type[HeadAndEntry | Tip]] = {TRANSACTION: HeadAndEntry, ONE_ITEM: Tip}

Write = Callable[[], Awaitable[object]]


class Crowd(NamedTuple):
    """The writers of one log at the same time, and how much they write."""

    processes: int
    writers: int
    """In each process."""
    appends: int
    """To one log, by all of them."""
    logs: int = 1
    """One after the other, as many as it takes to get enough appends."""

    def __str__(self) -> str:
        processes = "1 process" if self.processes == 1 else f"{self.processes} processes"
        each = "" if self.processes == 1 else " each"
        return processes if self.writers == 1 else f"{processes}, {self.writers} writers{each}"


EMPTIED = TIP_BYTES // len(SMALL) + 1
"""Appends to one log after which the growing item was emptied once."""

ALONE, APART = Crowd(1, 1, EMPTIED), Crowd(8, 1, EMPTIED)
CROWDS = (ALONE, Crowd(8, 1, 48, logs=7), Crowd(1, 64, 3200), Crowd(8, 8, 384, logs=4))
"""Of the slot chain. Where processes read the tail, a log has some fifty slots: ministack's queries
take the longer the more entries a chain has, which AWS's do not."""


class Race(NamedTuple):
    """The average cost of one append."""

    design: str
    crowd: Crowd
    far: bool
    per_second: float
    p99: float
    """In milliseconds, from asking for the append to its acknowledgement."""
    attempts: float
    """Writes tried, lost ones included."""
    write: float
    read: float
    refused: int
    """Appends in all that were given up after too many lost attempts, and asked for again."""


async def slot_races(lab: Lab, rounds: int, *, far: bool) -> list[Race]:
    """The store itself, with everything it does besides."""
    apart = [await lab.apart(DISTANCE if far else 0.0) for _ in range(APART.processes)]

    async def begun(group: Sequence[Streams]) -> list[Write]:
        path = await lab.stream(entries=1)
        return [partial(streams.append, path, append(SMALL)) for streams in group]

    return [
        await _race(SLOTS, crowd, partial(begun, apart[: crowd.processes]), rounds, far=far)
        for crowd in CROWDS
    ]


async def other_races(lab: Lab, rounds: int, *, far: bool) -> list[Race]:
    connected = [await lab.connect(DISTANCE if far else 0.0) for _ in range(APART.processes)]

    async def begun(design: type[HeadAndEntry | Tip], group: Sequence[Backend]) -> list[Write]:
        log = secrets.randbits(62)
        logs = [design(each.client, lab.settings.table, log) for each in group]
        await logs[0].begin()
        return [partial(each.append, SMALL) for each in logs]

    return [
        await _race(
            name, crowd, partial(begun, design, connected[: crowd.processes]), rounds, far=far
        )
        for name, design in OTHERS.items()
        for crowd in (ALONE, APART)
    ]


async def _race(
    design: str,
    crowd: Crowd,
    begin: Callable[[], Awaitable[Sequence[Write]]],
    rounds: int,
    *,
    far: bool,
) -> Race:
    """`begin`: make a log, and how each process appends to it."""
    took: list[float] = []
    calls: list[Made] = []
    refused: list[StoreUnavailable] = []
    seconds = 0.0
    each = crowd.appends // (crowd.processes * crowd.writers)
    for _ in range(rounds * crowd.logs):
        writes = await begin()
        for write in writes:
            await write()
        with traced() as made:
            begun = time.perf_counter()
            found = await asyncio.gather(
                *(_timed(write, each, refused) for write in writes for _ in range(crowd.writers))
            )
            seconds += time.perf_counter() - begun
        took += itertools.chain.from_iterable(found)
        calls += made
    times = len(took)
    cuts = statistics.quantiles(took, n=100, method="inclusive")
    return Race(
        design,
        crowd,
        far,
        per_second=times / seconds,
        p99=cuts[98] * 1000,
        attempts=sum(call.operation in WRITES for call in calls) / times,
        write=sum(call.write for call in calls) / times,
        read=sum(call.read for call in calls) / times,
        refused=len(refused),
    )


async def _timed(write: Write, times: int, refused: list[StoreUnavailable]) -> list[float]:
    took = []
    for _ in range(times):
        begun = time.perf_counter()
        while True:
            try:
                await write()
            except StoreUnavailable as error:
                refused.append(error)
            else:
                break
        took.append(time.perf_counter() - begun)
    return took
