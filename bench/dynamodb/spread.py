"""Appends to one stream by many environments, over which Lambda spreads requests: their cost."""

from __future__ import annotations

import asyncio
import random
import statistics
from collections.abc import Sequence
from typing import Final, NamedTuple

from bench.dynamodb.lab import BINARY, SMALL, Lab, append
from bench.dynamodb.ledger import THEN, Made, shape, traced
from bench.dynamodb.virtual import process, simulate, table
from tailrace.aws.client.json_client import WRITES
from tailrace.log.create import Create
from tailrace.streams import Streams

ENVIRONMENTS: Final = (1, 2, 5, 20)
RATES: Final = (0.1, 1.0, 10.0)
"""Appends a second."""
ON_ENGINE: Final = 10.0
"""The same on an engine, where time passes."""

WARM_UP: Final = 20
"""Appends of each environment that are not counted."""


class Spread(NamedTuple):
    """The average of an append by environments that have used the stream before."""

    environments: int
    per_second: float
    simulated: bool
    write: float
    read: float
    attempts: float
    round_trips: float
    p50: float
    """In milliseconds."""
    p99: float


def simulated_spreads(appends: int) -> list[Spread]:
    """In virtual time, in which ten seconds between two appends are none."""
    return [
        _simulated(environments, per_second, appends)
        for environments in ENVIRONMENTS
        for per_second in RATES
    ]


async def engine_spreads(lab: Lab, distance: float, appends: int) -> list[Spread]:
    """All at the same time, each on a stream of its own."""
    group = [await lab.apart(distance) for _ in range(max(ENVIRONMENTS))]
    found = []
    for environments in ENVIRONMENTS:
        path = await lab.stream()
        found.append(_measure(group[:environments], path, ON_ENGINE, appends, simulated=False))
    return await asyncio.gather(*found)


def _simulated(environments: int, per_second: float, appends: int) -> Spread:
    async def main() -> Spread:
        shared = table()
        group = [(await process(shared)).streams for _ in range(environments)]
        await group[0].create("a", Create(b"", BINARY))
        return await _measure(group, "a", per_second, appends, simulated=True)

    return simulate(main)


async def _measure(
    group: Sequence[Streams], path: str, per_second: float, appends: int, *, simulated: bool
) -> Spread:
    """Requests come at random times, each to an environment chosen at random."""
    chance = random.Random(f"{len(group)} {per_second}")
    now = asyncio.get_running_loop().time

    async def request(streams: Streams) -> tuple[float, Sequence[Made]]:
        with traced() as calls:
            begun = now()
            await streams.append(path, append(SMALL))
            return now() - begun, calls

    async def requests(number: int) -> list[tuple[float, Sequence[Made]]]:
        sent = []
        for _ in range(number):
            await asyncio.sleep(chance.expovariate(per_second))
            sent.append(asyncio.ensure_future(request(chance.choice(group))))
        return await asyncio.gather(*sent)

    await requests(WARM_UP * len(group) if simulated else appends)
    found = await requests(appends)
    made = [call for _, calls in found for call in calls]
    cuts = statistics.quantiles((took for took, _ in found), n=100, method="inclusive")
    return Spread(
        len(group),
        per_second,
        simulated,
        write=sum(call.write for call in made) / appends,
        read=sum(call.read for call in made) / appends,
        attempts=sum(call.operation in WRITES for call in made) / appends,
        round_trips=sum(shape(calls).count(THEN) + 1 for _, calls in found if calls) / appends,
        p50=cuts[49] * 1000,
        p99=cuts[98] * 1000,
    )
