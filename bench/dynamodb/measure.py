"""One engine after the other: everything that is measured there, in order."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from bench.dynamodb.lab import Lab, Site
from bench.dynamodb.operations import OPERATIONS
from bench.dynamodb.races import other_races, slot_races
from bench.dynamodb.results import Measured, Run
from bench.dynamodb.waiting import idle, wake
from tailrace.limits import POLL_MILLISECONDS
from tailrace.store.dynamodb.polling import SHARE


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of everything."""

    divisor: int
    """Of the repetitions of each operation."""
    waits: int
    """Waiting readers at once, and rounds of them."""
    slow_seconds: float
    """For which an idle stream is watched at the slowest pace."""
    rounds: int
    """Logs that many write to; one far away takes as long as three near ones."""
    calls: int
    """Of each client."""


FULL = Scale(divisor=1, waits=8, slow_seconds=10.0, rounds=4, calls=4000)
QUICK = Scale(divisor=50, waits=2, slow_seconds=2.0, rounds=1, calls=320)
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
        say("an idle stream")
        watched = await idle(lab, scale.slow_seconds)
        slots, others = [], []
        for far, rounds in ((False, scale.rounds), (True, 1)):
            if far and site.on_aws:
                break
            where = "some milliseconds away" if far else "as near as it is"
            say(f"many writers, DynamoDB {where}")
            slots += await slot_races(lab, rounds, far=far)
            say(f"other designs, DynamoDB {where}")
            others += await other_races(lab, rounds, far=far)
        return Run(site.name, found, watched, slots, others)


async def _woken(lab: Lab, waits: int) -> list[Measured]:
    fastest, slowest = POLL_MILLISECONDS / 1000, lab.settings.poll_slowest
    found = []
    for silence, rounds in ((fastest / SHARE / 2, waits), (slowest / SHARE, 1)):
        say(f"waiting readers after {silence:g} s of silence")
        samples = await wake(lab, silence, waits * waits // rounds, rounds)
        title = f"waiting reader gets an append, {silence:g} s after the last"
        found.append(Measured.of(title, samples))
    return found


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
