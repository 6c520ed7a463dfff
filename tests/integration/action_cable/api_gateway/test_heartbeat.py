"""The heartbeat: pings and expiry of connections, by one function at a time."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tailrace.limits import GATEWAY_CONNECTION_SECONDS
from tailrace.protocols.action_cable.api_gateway import heartbeat
from tailrace.protocols.action_cable.api_gateway.heartbeat import LEASE_SECONDS, HeartbeatLease
from tests.integration.action_cable.api_gateway.hooks import Step, nothing, once
from tests.integration.action_cable.api_gateway.world import Function, World

RESTART = '{"type":"disconnect","reason":"server_restart","reconnect":true}'


class Ticks:
    """A clock that advances with each sleep."""

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
        """Returns a function for the time that remains."""
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


async def is_leased(world: World) -> bool:
    async with world.function() as function:
        return await HeartbeatLease(function.table, world.clock).is_held()


# Rounds


async def test_each_connection_is_pinged_at_its_own_interval(
    world: World, function: Function, ticks: Ticks
) -> None:
    await world.connect("often", ping_interval=3.0)
    await world.connect("seldom", ping_interval=10.0)
    seen = []
    for _ in range(7):
        assert await function.heartbeat.round()
        seen.append((pings(world, "often"), pings(world, "seldom")))
        ticks.pass_s(3)
    assert seen == [(1, 1), (2, 1), (3, 1), (4, 1), (5, 2), (6, 2), (7, 2)]


async def test_a_failed_ping_does_not_end_a_young_connection(
    world: World, function: Function, ticks: Ticks
) -> None:
    await world.connect("one", connected_at=world.clock())
    # API Gateway has not accepted it yet.
    frames = world.gateway_api.sent.pop("one")
    for _ in range(2):
        assert await function.heartbeat.round()
        ticks.pass_s(2.9)
    world.gateway_api.sent["one"] = frames
    await world.subscribe("one", "a")
    assert world.types("one") == ["confirm_subscription"]
    assert await function.heartbeat.round()
    assert pings(world, "one") == 1


async def test_a_ping_carries_the_time(world: World, function: Function) -> None:
    for unit in ("s", "ms", "ns"):
        await world.connect(unit, time_unit=unit)
    await function.heartbeat.round()
    (told,) = world.heard("ms")
    assert 0 <= world.clock() - told["message"] < 60_000
    assert json.loads(world.gateway_api.sent["s"][0])["message"] == told["message"] // 1000
    assert world.heard("ns")[0]["message"] == told["message"] * 1_000_000


async def test_a_connection_that_is_gone_is_not_pinged_again(
    world: World, function: Function, ticks: Ticks
) -> None:
    await world.connect("one")
    await world.subscribe("one", "a")
    del world.gateway_api.sent["one"]
    assert await function.heartbeat.round(), "the drop was not noticed yet"
    assert world.gateway_api.counts["gone"] == 1
    ticks.pass_s(0.5)
    assert not await function.heartbeat.round()
    assert world.gateway_api.counts["gone"] == 1
    assert await world.items("L") == []
    ticks.pass_s(1)
    await function.heartbeat.round()
    ticks.pass_s(2)
    await function.heartbeat.round()
    assert await world.items("KUI") == []


async def test_connections_over_the_lifetime_must_reconnect(
    world: World, function: Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "BATCH", 2)
    await world.connect("young")
    aged = world.clock() - GATEWAY_CONNECTION_SECONDS * 1000 - 1
    names = ["old1", "old2", "old3"]
    for name in names:
        await world.connect(name, connected_at=aged)
    frames = {name: world.gateway_api.sent[name] for name in names}
    await function.heartbeat.round()
    assert len(world.gateway_api.ended) == 2, "not all of them at once"
    await function.heartbeat.round()
    await function.heartbeat.round()
    assert sorted(world.gateway_api.ended) == names
    assert all(sent[-1] == RESTART for sent in frames.values())
    assert pings(world, "young") == 1


async def test_a_connection_ends_with_its_token(
    world: World, function: Function, ticks: Ticks
) -> None:
    await world.connect("one", expires_at=world.clock() + 5000)
    await world.connect("two", expires_at=world.clock() + 60_000)
    await world.connect("three")
    frames = world.gateway_api.sent["one"]
    await function.heartbeat.round()
    assert world.gateway_api.ended == []
    ticks.pass_s(5)
    await function.heartbeat.round()
    assert world.gateway_api.ended == ["one"]
    assert frames[-1] == '{"type":"disconnect","reason":"token_expired","reconnect":false}'
    assert world.types("two") == world.types("three") == ["ping", "ping"]
    gone = await function.broadcaster.connections.get("one")
    assert gone is not None
    assert gone.disconnected_at is not None


async def test_a_broken_connection_does_not_stop_other_pings(
    world: World, function: Function
) -> None:
    for name in ("one", "two", "three"):
        await world.connect(name)
    world.gateway_api.broken.add("two")
    await function.heartbeat.round()
    assert (pings(world, "one"), pings(world, "three")) == (1, 1)


# Running


async def test_only_one_heartbeat_runs(world: World, function: Function, ticks: Ticks) -> None:
    await world.connect("one")
    assert await HeartbeatLease(function.table, world.clock).acquire()
    assert not await function.heartbeat.run(ticks.until(300))
    assert pings(world, "one") == 0


async def test_a_heartbeat_hands_over_before_its_time_is_up(
    world: World, function: Function, ticks: Ticks
) -> None:
    await world.connect("one")
    assert await function.heartbeat.run(ticks.until(30))
    assert pings(world, "one") == 10
    assert ticks.slept == [3.0] * 9
    assert not await is_leased(world)


async def test_a_heartbeat_ends_without_connections(
    world: World, function: Function, ticks: Ticks
) -> None:
    await world.connect("one")

    async def leave() -> None:
        world.gateway_api.sent.pop("one", None)

    ticks.meanwhile = leave
    assert not await function.heartbeat.run(ticks.until(300))
    assert len(ticks.slept) == 2, "one round for noticing"
    assert not await is_leased(world)


async def test_a_heartbeat_without_connections_leaves_no_lease(
    world: World, function: Function, ticks: Ticks
) -> None:
    assert not await function.heartbeat.run(ticks.until(300))
    assert await world.items("X") == []
    assert ticks.slept == []


@pytest.mark.parametrize("step", ["before", "after"])
async def test_a_client_that_connects_while_a_heartbeat_ends_is_pinged(
    world: World,
    function: Function,
    ticks: Ticks,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    """The heartbeat has found no connection, and is about to release its lease, or just has."""

    async def connect() -> None:
        await world.connect("one")

    once(monkeypatch, HeartbeatLease, "release", **{step: connect})
    assert await function.heartbeat.run(ticks.until(10))
    assert pings(world, "one") >= 2


async def test_a_heartbeat_that_loses_its_lease_ends(
    world: World, function: Function, ticks: Ticks
) -> None:
    await world.connect("one")

    async def lose() -> None:
        ticks.pass_s(LEASE_SECONDS + 1)
        assert await HeartbeatLease(function.table, world.clock).acquire()

    ticks.meanwhile = lose
    assert not await function.heartbeat.run(ticks.until(300))
    assert pings(world, "one") == 1
    assert await is_leased(world), "another heartbeat holds it"


async def test_with_a_long_interval_a_heartbeat_does_one_round(world: World, ticks: Ticks) -> None:
    world.settings = replace(world.settings, ping_interval=60.0)
    await world.connect("one")
    async with world.function() as function:
        assert not await function.heartbeat.run(ticks.until(300))
    assert pings(world, "one") == 1
    assert not await is_leased(world)
    assert ticks.slept == []


async def test_rounds_between_pings_find_new_connections(world: World, ticks: Ticks) -> None:
    world.settings = replace(world.settings, ping_interval=30.0)
    await world.connect("one", ping_interval=30.0)
    async with world.function() as function:
        assert await function.heartbeat.run(ticks.until(60))
    assert ticks.slept == [LEASE_SECONDS / 4] * 6
    assert pings(world, "one") == 2
