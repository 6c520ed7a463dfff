"""The heartbeat: pings and expiry of connections, by one function at a time."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tailrace.limits import (
    GATEWAY_CONNECTION_SECONDS,
    GATEWAY_CONNECTION_SHARDS,
    GATEWAY_INDEX_SHARDS,
)
from tailrace.protocols.action_cable.api_gateway import heartbeat
from tailrace.protocols.action_cable.api_gateway.heartbeat import TICK
from tailrace.protocols.action_cable.api_gateway.heartbeat_lease import (
    LEASE_SECONDS,
    HeartbeatLease,
)
from tailrace.protocols.action_cable.api_gateway.items import connection_shard
from tailrace.protocols.action_cable.api_gateway.roster import SPREAD, PingedConnection
from tests.integration.action_cable.api_gateway.hooks import Step, nothing, once
from tests.integration.action_cable.api_gateway.world import Function, World

RESTART = '{"type":"disconnect","reason":"server_restart","reconnect":true}'


class Ticks:
    """A clock that advances with each sleep."""

    def __init__(self, world: World) -> None:
        self.now = 1000.0
        self.meanwhile: Step = nothing
        self._world = world

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
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
    fake = SimpleNamespace(sleep=ticks.sleep, gather=asyncio.gather)
    monkeypatch.setattr(heartbeat, "asyncio", fake)
    return ticks


async def nobody(part: int) -> None:
    raise AssertionError(f"a heartbeat of part {part} is started")


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
    assert await function.heartbeat.round()
    assert (pings(world, "often"), pings(world, "seldom")) == (1, 1), "they are overdue"
    for round_ in range(1, 11):
        ticks.pass_s(3)
        assert await function.heartbeat.round()
        assert pings(world, "often") == 1 + round_
    assert pings(world, "seldom") == 4


async def test_pings_are_spread_over_a_round(
    world: World, function: Function, ticks: Ticks
) -> None:
    names = [f"client{number}" for number in range(60)]
    for name in names:
        await world.connect(name)
    assert await function.heartbeat.round()
    seen = [0]

    async def count() -> None:
        seen.append(sum(pings(world, name) for name in names) - 60)

    ticks.meanwhile = count
    for _ in range(2):
        assert await function.heartbeat.round(3.0)
        await ticks.sleep(TICK)
    assert {pings(world, name) for name in names} == {2, 3}
    assert max(later - sooner for sooner, later in itertools.pairwise(seen)) < 30


async def test_a_new_connection_gets_its_first_ping_in_time(
    world: World, function: Function, ticks: Ticks
) -> None:
    await world.connect("first", connected_at=world.clock())
    await function.heartbeat.round()
    names = [f"client{number}" for number in range(20)]
    for name in names:
        await world.connect(name, connected_at=world.clock())
    ticks.pass_s(3)
    await function.heartbeat.round()
    assert [pings(world, name) for name in names] == [1] * 20, "after its interval"


async def test_connections_are_read_once(world: World, function: Function, ticks: Ticks) -> None:
    for name in ("one", "two"):
        await world.connect(name)
    await function.heartbeat.round()
    for _ in range(3):
        ticks.pass_s(3)
        world.calls.clear()
        await function.heartbeat.round()
        assert Counter(call.operation for call in world.calls) == {
            "Query": 2 * GATEWAY_INDEX_SHARDS
        }
    assert pings(world, "one") == 4


async def test_a_failed_ping_does_not_end_a_young_connection(
    world: World, function: Function, ticks: Ticks
) -> None:
    await world.connect("one", connected_at=world.clock())
    # API Gateway has not accepted it yet.
    frames = world.gateway_api.sent.pop("one")
    for _ in range(9):
        ticks.pass_s(0.5)
        assert await function.heartbeat.round()
    assert world.gateway_api.counts["gone"] > 0
    world.gateway_api.sent["one"] = frames
    await world.subscribe("one", "a")
    assert world.types("one") == ["confirm_subscription"]
    ticks.pass_s(3)
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
    assert not await function.heartbeat.round()
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
    assert not PingedConnection("a", 1, 0, "s", aged + SPREAD + 1, None).is_old(world.clock())
    names = ["old1", "old2", "old3"]
    for name in names:
        await world.connect(name, connected_at=aged)
    frames = {name: world.gateway_api.sent[name] for name in names}
    await function.heartbeat.round()
    assert len(world.gateway_api.ended) == 2, "not all of them at once"
    await function.heartbeat.round()
    await function.heartbeat.round()
    assert sorted(world.gateway_api.ended) == names
    assert all(RESTART in sent for sent in frames.values())
    assert world.gateway_api.ended.count("young") == 0


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
    assert world.types("two") == world.types("three") == ["ping"] * len(world.types("two"))
    gone = await function.broadcaster.connections.get("one")
    assert gone is not None
    assert gone.disconnected_at is not None


async def test_a_broken_connection_does_not_stop_other_pings(
    world: World, function: Function
) -> None:
    for name in ("one", "two", "three"):
        await world.connect(name)
    world.gateway_api.broken.add("two")
    assert await function.heartbeat.round()
    assert (pings(world, "one"), pings(world, "three")) == (1, 1)


async def test_a_ping_with_an_uncertain_outcome_does_not_end_its_connection(
    world: World, function: Function, ticks: Ticks
) -> None:
    await world.connect("one")
    world.gateway_api.doubt = lambda _: True
    assert await function.heartbeat.round()
    assert world.gateway_api.ended == []
    world.gateway_api.doubt = lambda _: False
    ticks.pass_s(3)
    assert await function.heartbeat.round()
    assert world.types("one")[-1] == "ping"


# Running


async def run(function: Function, ticks: Ticks, seconds: float) -> bool:
    return await function.heartbeat.run(ticks.until(seconds), nobody)


async def test_only_one_heartbeat_runs(world: World, function: Function, ticks: Ticks) -> None:
    await world.connect("one")
    assert await HeartbeatLease(function.table, world.clock).acquire()
    assert not await run(function, ticks, 300)
    assert pings(world, "one") == 0


async def test_a_heartbeat_hands_over_before_its_time_is_up(
    world: World, function: Function, ticks: Ticks
) -> None:
    await world.connect("one")
    assert await run(function, ticks, 30)
    sent = pings(world, "one")
    assert sent in (9, 10)
    assert await is_leased(world), "nobody else may begin"
    async with world.function() as stranger:
        assert not await stranger.heartbeat.run(ticks.until(30), nobody)
    async with world.function() as successor:
        successor.take_over(function.heartbeat)
        assert await successor.heartbeat.run(ticks.until(30), nobody)
    assert pings(world, "one") in (18, 19, 20), "it continues where the other one has stopped"
    async with world.function() as repeated:
        repeated.take_over(function.heartbeat)
        assert not await repeated.heartbeat.run(ticks.until(30), nobody)


async def test_a_heartbeat_ends_without_connections(
    world: World, function: Function, ticks: Ticks
) -> None:
    await world.connect("one")

    async def leave() -> None:
        world.gateway_api.sent.pop("one", None)

    ticks.meanwhile = leave
    assert not await run(function, ticks, 300)
    assert await world.items("X") == []


async def test_a_heartbeat_without_connections_leaves_no_lease(
    world: World, function: Function, ticks: Ticks
) -> None:
    assert not await run(function, ticks, 300)
    assert await world.items("X") == []


@pytest.mark.parametrize("step", ["before", "after"])
async def test_a_client_that_connects_while_a_heartbeat_ends_is_pinged(
    world: World,
    function: Function,
    ticks: Ticks,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    """The heartbeat has found no connection, and is about to remove its lease, or just has."""

    async def connect() -> None:
        await world.connect("one")

    once(monkeypatch, HeartbeatLease, "remove", **{step: connect})
    assert await run(function, ticks, 20)
    assert pings(world, "one") >= 2


async def test_a_heartbeat_that_loses_its_lease_ends(
    world: World, function: Function, ticks: Ticks
) -> None:
    await world.connect("one")

    async def lose() -> None:
        ticks.meanwhile = nothing
        ticks.pass_s(LEASE_SECONDS + 1)
        assert await HeartbeatLease(function.table, world.clock).acquire()

    ticks.meanwhile = lose
    assert not await run(function, ticks, 300)
    assert pings(world, "one") <= 3
    assert await is_leased(world), "another heartbeat holds it"


async def test_with_a_long_interval_a_heartbeat_does_one_round(world: World, ticks: Ticks) -> None:
    world.settings = replace(world.settings, ping_interval=60.0)
    await world.connect("one", ping_interval=60.0)
    await world.connect("two", ping_interval=120.0)
    for _ in range(10):
        async with world.function() as function:
            assert not await run(function, ticks, 300)
        assert not await is_leased(world)
        ticks.pass_s(60)
    assert (pings(world, "one"), pings(world, "two")) in ((10, 5), (10, 6))


async def test_rounds_between_pings_find_new_connections(world: World, ticks: Ticks) -> None:
    world.settings = replace(world.settings, ping_interval=30.0)
    await world.connect("one", ping_interval=30.0)

    async def connect() -> None:
        ticks.meanwhile = nothing
        await world.connect("two", ping_interval=30.0, connected_at=world.clock() - 29_000)

    ticks.meanwhile = connect
    async with world.function() as function:
        assert await run(function, ticks, 75)
    assert pings(world, "one") in (2, 3)
    assert pings(world, "two") >= 1


# Several parts


def names_of(shard: int) -> Iterator[str]:
    """Names of connections that are in a shard."""
    names = (f"client{number}" for number in itertools.count())
    return (name for name in names if connection_shard(name) == shard)


async def test_a_busy_heartbeat_starts_others(
    world: World, ticks: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "GATEWAY_PART_PINGS", 4)
    shards = range(GATEWAY_CONNECTION_SHARDS)
    names = [name for shard in shards for name in itertools.islice(names_of(shard), 2)]
    for name in names:
        await world.connect(name)
    started: list[int] = []

    async def start(part: int) -> None:
        started.append(part)
        if started.count(part) == 3:
            async with world.function() as function:
                assert await function.lease(part).acquire(world.clock(), 66)

    async with world.function() as function:
        assert await function.heartbeat.run(ticks.until(LEASE_SECONDS + 13), start)
        assert set(started) == {1, 2, 3}
        mine = [name for name in names if connection_shard(name) % 4 == 0]
        seen = {name: pings(world, name) for name in names}
        assert len(function.heartbeat.roster) == len(mine)
    # It served the others until their heartbeats had begun.
    others = [seen[name] for name in names if name not in mine]
    assert 3 <= min(others) <= max(others) < min(seen[name] for name in mine)


async def test_a_heartbeat_whose_part_is_none_any_more_ends(
    world: World, function: Function, ticks: Ticks
) -> None:
    await world.connect("one")
    part = function.of_part(1)
    assert not await part.run(ticks.until(300), nobody)
    assert await world.items("X") == []
    assert pings(world, "one") == 0


async def test_a_heartbeat_starts_the_first_one_if_that_has_died(
    function: Function, ticks: Ticks
) -> None:
    lease = function.lease(0)
    await lease.acquire()
    await lease.divide(2)
    ticks.pass_s(LEASE_SECONDS + 1)
    started: list[int] = []

    async def start(part: int) -> None:
        started.append(part)

    assert await function.of_part(1).run(ticks.until(12), start)
    assert set(started) == {0}
