"""One engine after the other: everything that is measured there, in order."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bench.dynamodb.lab import Lab, Site
from bench.dynamodb.operations import OPERATIONS
from bench.dynamodb.races import DISTANCE, other_races, slot_races
from bench.dynamodb.results import Measured, Run
from bench.dynamodb.spread import Spread, engine_spreads, simulated_spreads
from bench.dynamodb.waiting import QUIET_SECONDS, Delivery, Waiting, deliveries, waiting, wake


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of everything."""

    divisor: int
    """Of the repetitions of each operation."""
    waits: int
    """Waiting readers at once, and rounds of them."""
    samples: int
    """Deliveries of each kind in virtual time, and appends of each spread."""
    rounds: int
    """Logs that many write to; one far away takes as long as three near ones."""
    calls: int
    """Of each client."""


FULL = Scale(divisor=1, waits=8, samples=400, rounds=4, calls=4000)
QUICK = Scale(divisor=50, waits=2, samples=20, rounds=1, calls=320)
LEAST = 3


async def measure(site: Site, scale: Scale) -> Run:
    async with Lab.open(site) as lab:
        found = []
        for operation in OPERATIONS:
            if operation.needs_bucket and not lab.has_bucket:
                say(f"no bucket, so no “{operation.title}”")
                continue
            say(operation.title)
            times = max(LEAST, operation.times // scale.divisor)
            found.append(Measured.of(operation.title, await operation.run(lab, times)))
        found += await _woken(lab, scale.waits)
        slots, others = [], []
        spreads: list[Spread] = []
        for far, rounds in ((False, scale.rounds), (True, 1)):
            if far and site.on_aws:
                break
            where = "some milliseconds away" if far else "as near as it is"
            say(f"many writers, DynamoDB {where}")
            slots += await slot_races(lab, rounds, far=far)
            say(f"other designs, DynamoDB {where}")
            others += await other_races(lab, rounds, far=far)
        if not site.on_aws:
            say("requests spread over environments")
            spreads = await engine_spreads(lab, DISTANCE, scale.samples // 2)
        return Run(site.name, found, slots, others, spreads)


class Simulated(NamedTuple):
    """The measurements in virtual time."""

    deliveries: Sequence[Delivery]
    waiting: Waiting
    spreads: Sequence[Spread]


def simulated(scale: Scale) -> Simulated:
    say("in virtual time: waiting readers")
    late = deliveries(scale.samples)
    units = waiting(140.0)
    say("in virtual time: requests spread over environments")
    return Simulated(late, units, simulated_spreads(scale.samples))


async def _woken(lab: Lab, waits: int) -> list[Measured]:
    found = []
    for silence, when in ((0.0, "soon after the last"), (QUIET_SECONDS, "hours after the last")):
        title = f"waiting reader gets an append, {when}"
        say(title)
        found.append(Measured.of(title, await wake(lab, silence, waits, waits)))
    return found


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
