"""Many connections are pinged by several heartbeats: clients hear one in time, and soon again after
heartbeats were killed."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from functools import partial

import pytest

from devtools.dynamodb_simulator.loop import run
from devtools.dynamodb_simulator.network import CALM, Faults
from tailrace.protocols.action_cable.api_gateway import heartbeat
from tailrace.protocols.action_cable.api_gateway.heartbeat_lease import LEASE_SECONDS
from tests.integration.simulation.cables.world import Chances, World

FIRST = int(os.environ.get("TAILRACE_SEED", "0"))
SEEDS = max(1, int(os.environ.get("TAILRACE_SEEDS", "60")) // 60)
CLIENTS = 30
STALE = 6.0
"""Seconds without a ping after which stock clients reconnect."""
LIFETIME = 45.0
"""Seconds that a function runs, instead of five minutes."""
MINUTE = 60.0
STEPS = 2_000_000

MISHAPS = {
    "none": Chances(),
    "killed": Chances(killed=0.3, repeated=0.2),
    "faults": Chances(faults=Faults.some(0.01)),
}


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(heartbeat, "GATEWAY_PART_PINGS", 3)
    caplog.set_level(logging.CRITICAL)


class Listener:
    """A client that reconnects when it is stale, as stock clients do."""

    def __init__(self, world: World, name: str) -> None:
        self.gaps: list[tuple[float, float]] = []
        """The times at which two consecutive pings arrived, or the connection and the first."""
        self.reconnects = -1
        self._world = world
        self._name = name

    async def listen(self) -> None:
        clock = asyncio.get_running_loop().time
        await asyncio.sleep(self._world.chance.random() * 10)
        while True:
            self.reconnects += 1
            connection = await self._world.connect(self._name)
            self._world.gateway.connect(connection)
            if not self._world.shares and self._world.chance.random() < 0.5:
                self._world.begin_heartbeat(LIFETIME, {})
            last = clock()
            while clock() - last <= STALE:
                await asyncio.sleep(0.1)
                arrived = self._world.gateway.arrived[connection]
                for at in arrived:
                    self.gaps.append((last, at))
                    last = at
                arrived.clear()
            self._world.gateway.drop(connection)


async def play(chances: Chances, seed: int) -> tuple[World, list[Listener], float]:
    world = World(seed, chances)
    listeners = [Listener(world, f"client{number}") for number in range(CLIENTS)]
    listening = [asyncio.ensure_future(each.listen()) for each in listeners]
    clock = asyncio.get_running_loop().time
    world.table.faults = chances.faults
    quiet = 0.0
    for minute in range(8):
        if minute == 4:
            world.table.faults, world.chances = CALM, Chances()
            quiet = clock()
        world.begin_heartbeat(LIFETIME)
        await asyncio.sleep(MINUTE)
    for task in listening:
        task.cancel()
    return world, listeners, quiet


def check(seed: int, chances: Chances) -> World:
    world, listeners, quiet = run(
        seed, partial(play, chances, seed), steps=STEPS, seconds=3600.0, stalls=0.01
    )
    # One minute for the schedule, and a lease that has to expire.
    recovered = quiet + 2 * MINUTE + LEASE_SECONDS
    for each in listeners:
        late = [gap for gap in each.gaps if gap[0] > recovered and gap[1] - gap[0] > STALE]
        assert not late, f"seed {seed}"
        assert any(sooner > recovered for sooner, _ in each.gaps)
    assert len(world.shares) >= 4, "there are several parts"
    return world


@pytest.mark.parametrize("mishap", MISHAPS)
def test_clients_are_pinged_in_time(mishap: str) -> None:
    for seed in range(FIRST, FIRST + SEEDS):
        check(seed, MISHAPS[mishap])


def test_pings_are_not_sent_twice_without_mishaps() -> None:
    for seed in range(FIRST, FIRST + SEEDS):
        _, listeners, _ = run(
            seed, partial(play, Chances(), seed), steps=STEPS, seconds=3600.0, stalls=0.0
        )
        gaps = itertools.chain(*(each.gaps for each in listeners))
        close = [gap for gap in gaps if gap[1] - gap[0] < 1.0]
        # Two when its heartbeat is divided: nobody knows what the former one has sent.
        assert len(close) <= 4 * CLIENTS
        assert all(each.reconnects == 0 for each in listeners)
