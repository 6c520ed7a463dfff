"""The lease that makes a heartbeat the only one."""

from __future__ import annotations

from tailrace.protocols.action_cable.api_gateway.heartbeat import LEASE_SECONDS, Lease
from tests.integration.action_cable.api_gateway.world import Function, World


async def test_a_lease_is_of_one_at_a_time(world: World, function: Function) -> None:
    one, two = (Lease(function.table, world.clock) for _ in range(2))
    assert not await one.is_held()
    assert await one.take()
    assert await one.take()
    assert not await two.take()
    assert await two.is_held()
    await two.give_back()
    assert await one.is_held(), "only who has it gives it back"
    await one.give_back()
    assert not await one.is_held()
    assert await two.take()


async def test_a_lease_ends_with_who_died(world: World, function: Function) -> None:
    one, two = (Lease(function.table, world.clock) for _ in range(2))
    assert await one.take()
    world.clock.pass_s(LEASE_SECONDS - 1)
    assert not await two.take()
    world.clock.pass_s(2)
    assert not await one.is_held()
    assert await two.take()
    assert not await one.take()
