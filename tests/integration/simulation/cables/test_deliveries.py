"""Deliveries to many subscribers in parts: whatever is killed or late, each client gets every
message once and in order, or is told to reconnect and continues at its position."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from functools import partial

import pytest

from devtools.dynamodb_simulator.loop import run
from devtools.dynamodb_simulator.network import Faults
from tailrace.protocols.action_cable.api_gateway import delivery_parts
from tests.integration.simulation.cables.world import Chances, Reader, World

FIRST = int(os.environ.get("TAILRACE_SEED", "0"))
SEEDS = max(1, int(os.environ.get("TAILRACE_SEEDS", "60")) // 20)
LAST = 12
READERS = 12
STEPS = 400_000

MISHAPS = {
    "none": Chances(),
    "killed": Chances(killed=0.15),
    "throttled": Chances(throttled=0.3),
    "repeated": Chances(repeated=0.3, unheard=0.1),
    "late": Chances(late=0.2, doubtful=0.01),
    "all": Chances(
        killed=0.05,
        throttled=0.05,
        repeated=0.05,
        unheard=0.05,
        late=0.05,
        doubtful=0.005,
        faults=Faults.some(0.005),
    ),
}


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(delivery_parts, "GATEWAY_PART_SUBSCRIBERS", 2)
    caplog.set_level(logging.CRITICAL)


async def play(chances: Chances, seed: int) -> tuple[World, list[Reader]]:
    world = World(seed, chances)
    readers = [Reader(world, f"reader{number}") for number in range(READERS)]
    reading = asyncio.gather(*(each.read(LAST) for each in readers))
    world.table.faults = chances.faults
    # Meanwhile nothing happens to the writer.
    writing = asyncio.ensure_future(world.write(range(1, LAST + 1), 2.0))
    await asyncio.gather(writing, reading, world.dispatch(reading.done))
    return world, readers


def check(seed: int, chances: Chances) -> Counter[str]:
    world, readers = run(seed, partial(play, chances, seed), steps=STEPS, seconds=3600.0)
    for each in readers:
        assert each.heard == list(range(1, LAST + 1)), f"seed {seed}"
    lives = sum(each.lives for each in readers) - len(readers)
    return world.invocations + Counter(reconnects=lives)


@pytest.mark.parametrize("mishap", MISHAPS)
def test_each_client_gets_every_message_once_and_in_order(mishap: str) -> None:
    counts: Counter[str] = Counter()
    for seed in range(FIRST, FIRST + SEEDS):
        counts += check(seed, MISHAPS[mishap])
    assert counts["served"] > 0, "parts are served by functions of their own"
    if mishap == "none":
        assert counts["reconnects"] == 0
