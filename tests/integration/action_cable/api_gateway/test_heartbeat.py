"""What is done by the clock: pings, and what is due; by one function at a time."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tailrace.limits import CABLE_LIFETIME_SECONDS
from tailrace.protocols.action_cable.api_gateway import heartbeat
from tailrace.protocols.action_cable.api_gateway.heartbeat import LEASE_SECONDS, Lease
from tests.integration.action_cable.api_gateway.hooks import Step, nothing, once
from tests.integration.action_cable.api_gateway.world import Function, World

RESTART = '{"type":"disconnect","reason":"server_restart","reconnect":true}'


class Ticks:
    """A clock that goes on while somebody sleeps."""

    def __init__(self, world: World) -> None:
        self.now = 1000.0
        self.slept: list[float] = []
        self.meanwhile: Step = nothing
        self._world = world

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.pass_s(seconds)
        await self.meanwhile()

    def pass_s(self, seconds: float) -> None:
        self.now += seconds
        self._world.clock.pass_s(seconds)

    def until(self, seconds: float) -> Callable[[], float]:
        """How much remains of some time from now on."""
        end = self.now + seconds
        return lambda: end - self.now


@pytest.fixture
def ticks(world: World, monkeypatch: pytest.MonkeyPatch) -> Ticks:
    ticks = Ticks(world)
    monkeypatch.setattr(heartbeat, "time", ticks)
    monkeypatch.setattr(heartbeat, "asyncio", SimpleNamespace(sleep=ticks.sleep))
    return ticks


def pings(world: World, name: str) -> int:
    return world.types(name).count("ping")


async def held(world: World) -> bool:
    async with world.function() as function:
        return await Lease(function.table, world.clock).is_held()


# Rounds


async def test_each_connection_is_pinged_at_its_own_interval(
    world: World, function: Function, ticks: Ticks
) -> None:
    await world.connect("often", interval=3.0)
    await world.connect("seldom", interval=10.0)
    seen = []
    for _ in range(7):
        assert await function.heartbeat.round()
        seen.append((pings(world, "often"), pings(world, "seldom")))
        ticks.pass_s(3)
    assert seen == [(1, 1), (2, 1), (3, 1), (4, 1), (5, 2), (6, 2), (7, 2)]


async def test_who_has_just_come_is_neither_pinged_nor_taken_for_gone(
    world: World, function: Function, ticks: Ticks
) -> None:
    await world.connect("one", at=world.clock())
    # API Gateway has not accepted it yet.
    frames = world.wires.sent.pop("one")
    for _ in range(2):
        assert await function.heartbeat.round()
        ticks.pass_s(2.9)
    world.wires.sent["one"] = frames
    await world.subscribe("one", "a")
    assert world.types("one") == ["confirm_subscription"]
    assert await function.heartbeat.round()
    assert pings(world, "one") == 1


async def test_a_ping_says_what_time_it_is(world: World, function: Function) -> None:
    for unit in ("s", "ms", "ns"):
        await world.connect(unit, unit=unit)
    await function.heartbeat.round()
    (told,) = world.heard("ms")
    assert 0 <= world.clock() - told["message"] < 60_000
    assert json.loads(world.wires.sent["s"][0])["message"] == told["message"] // 1000
    assert world.heard("ns")[0]["message"] == told["message"] * 1_000_000


async def test_who_is_gone_is_dropped_and_not_pinged_again(
    world: World, function: Function, ticks: Ticks
) -> None:
    await world.connect("one")
    await world.subscribe("one", "a")
    del world.wires.sent["one"]
    assert await function.heartbeat.round(), "nobody knew"
    assert world.wires.counts["gone"] == 1
    ticks.pass_s(0.5)
    assert not await function.heartbeat.round()
    assert world.wires.counts["gone"] == 1
    assert await world.items("L") == []
    ticks.pass_s(1)
    await function.heartbeat.round()
    ticks.pass_s(2)
    await function.heartbeat.round()
    assert await world.items("KUI") == []


async def test_who_is_connected_for_too_long_is_asked_to_come_anew(
    world: World, function: Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "FEW", 2)
    await world.connect("young")
    aged = world.clock() - CABLE_LIFETIME_SECONDS * 1000 - 1
    names = ["old1", "old2", "old3"]
    for name in names:
        await world.connect(name, at=aged)
    frames = {name: world.wires.sent[name] for name in names}
    await function.heartbeat.round()
    assert len(world.wires.ended) == 2, "not all of them at once"
    await function.heartbeat.round()
    await function.heartbeat.round()
    assert sorted(world.wires.ended) == names
    assert all(sent[-1] == RESTART for sent in frames.values())
    assert pings(world, "young") == 1


async def test_a_connection_ends_with_its_token(
    world: World, function: Function, ticks: Ticks
) -> None:
    await world.connect("one", expires=world.clock() + 5000)
    await world.connect("two", expires=world.clock() + 60_000)
    await world.connect("three")
    frames = world.wires.sent["one"]
    await function.heartbeat.round()
    assert world.wires.ended == []
    ticks.pass_s(5)
    await function.heartbeat.round()
    assert world.wires.ended == ["one"]
    assert frames[-1] == '{"type":"disconnect","reason":"token_expired","reconnect":false}'
    assert world.types("two") == world.types("three") == ["ping", "ping"]
    gone = await function.broadcaster.connections.get("one")
    assert gone is not None
    assert gone.left is not None


async def test_one_that_cannot_be_sent_to_keeps_nobody_from_being_pinged(
    world: World, function: Function
) -> None:
    for name in ("one", "two", "three"):
        await world.connect(name)
    world.wires.broken.add("two")
    await function.heartbeat.round()
    assert (pings(world, "one"), pings(world, "three")) == (1, 1)


# Running


async def test_only_one_pulse_runs(world: World, function: Function, ticks: Ticks) -> None:
    await world.connect("one")
    assert await Lease(function.table, world.clock).take()
    assert not await function.heartbeat.run(ticks.until(300))
    assert pings(world, "one") == 0


async def test_a_pulse_goes_on_until_its_time_is_short_and_hands_over(
    world: World, function: Function, ticks: Ticks
) -> None:
    await world.connect("one")
    assert await function.heartbeat.run(ticks.until(30))
    assert pings(world, "one") == 10
    assert ticks.slept == [3.0] * 9
    assert not await held(world)


async def test_a_pulse_ends_when_everybody_is_gone(
    world: World, function: Function, ticks: Ticks
) -> None:
    await world.connect("one")

    async def leave() -> None:
        world.wires.sent.pop("one", None)

    ticks.meanwhile = leave
    assert not await function.heartbeat.run(ticks.until(300))
    assert len(ticks.slept) == 2, "one round for noticing"
    assert not await held(world)


async def test_a_pulse_for_nobody_leaves_nothing(
    world: World, function: Function, ticks: Ticks
) -> None:
    assert not await function.heartbeat.run(ticks.until(300))
    assert await world.items("X") == []
    assert ticks.slept == []


@pytest.mark.parametrize("step", ["before", "after"])
async def test_who_connects_while_a_pulse_ends_is_noticed(
    world: World,
    function: Function,
    ticks: Ticks,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    """It has found nobody, and has not given its lease back yet, or just now."""

    async def connect() -> None:
        await world.connect("one")

    once(monkeypatch, Lease, "give_back", **{step: connect})
    assert await function.heartbeat.run(ticks.until(10))
    assert pings(world, "one") >= 2


async def test_a_pulse_that_was_too_slow_to_keep_its_lease_ends(
    world: World, function: Function, ticks: Ticks
) -> None:
    await world.connect("one")

    async def lose() -> None:
        ticks.pass_s(LEASE_SECONDS + 1)
        assert await Lease(function.table, world.clock).take()

    ticks.meanwhile = lose
    assert not await function.heartbeat.run(ticks.until(300))
    assert pings(world, "one") == 1
    assert await held(world), "it is somebody else's"


async def test_a_pulse_that_pings_seldom_does_one_round_and_ends(
    world: World, ticks: Ticks
) -> None:
    world.settings = replace(world.settings, ping_interval=60.0)
    await world.connect("one")
    async with world.function() as function:
        assert not await function.heartbeat.run(ticks.until(300))
    assert pings(world, "one") == 1
    assert not await held(world)
    assert ticks.slept == []


async def test_between_rare_pings_a_pulse_looks_for_who_is_new(world: World, ticks: Ticks) -> None:
    world.settings = replace(world.settings, ping_interval=30.0)
    await world.connect("one", interval=30.0)
    async with world.function() as function:
        assert await function.heartbeat.run(ticks.until(60))
    assert ticks.slept == [LEASE_SECONDS / 4] * 6
    assert pings(world, "one") == 2
