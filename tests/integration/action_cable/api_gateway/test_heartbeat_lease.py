"""The lease that keeps all heartbeats but one from running."""

from __future__ import annotations

from tailrace.protocols.action_cable.api_gateway.heartbeat_lease import (
    LEASE_SECONDS,
    HeartbeatLease,
)
from tests.integration.action_cable.api_gateway.world import Function, World


async def test_one_heartbeat_at_a_time_holds_the_lease(world: World, function: Function) -> None:
    one, two = (HeartbeatLease(function.table, world.clock) for _ in range(2))
    assert not await one.is_held()
    assert await one.acquire()
    assert await one.acquire()
    assert not await two.acquire()
    assert await two.is_held()
    await two.release()
    assert await one.is_held(), "only its holder can release it"
    await one.release()
    assert not await one.is_held()
    assert await two.acquire()


async def test_the_lease_of_a_crashed_heartbeat_expires(world: World, function: Function) -> None:
    one, two = (HeartbeatLease(function.table, world.clock) for _ in range(2))
    assert await one.acquire()
    world.clock.pass_s(LEASE_SECONDS - 1)
    assert not await two.acquire()
    world.clock.pass_s(2)
    assert not await one.is_held()
    assert await two.acquire()
    assert not await one.acquire()
