"""A delivery cursor exists while its stream may have subscribers."""

from __future__ import annotations

import asyncio

import pytest

from tailrace.log.create import Create, ForkFrom
from tailrace.protocols.action_cable.api_gateway.cursors import DeliveryCursors
from tests.integration.action_cable.api_gateway.hooks import once
from tests.integration.action_cable.api_gateway.world import World
from tests.support.cable import pubsub


async def test_a_cursor_without_subscribers_is_removed(world: World) -> None:
    await world.create("a")
    await world.connect("one")
    await world.subscribe("one", "a")
    await world.say("one", "unsubscribe", pubsub("a"))
    await world.append("a", b"1")
    await world.dispatch()
    assert await world.items("RL") == []


async def test_join_during_removal_keeps_the_cursor(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create("a")
    await world.connect("one")
    await world.subscribe("one", "a")
    await world.say("one", "unsubscribe", pubsub("a"))

    async def join() -> None:
        await world.connect("two")
        await world.subscribe("two", "a")

    once(monkeypatch, DeliveryCursors, "remove_unused", before=join)
    await world.append("a", b"1")
    await world.dispatch()
    await world.append("a", b"2")
    await world.dispatch()
    assert world.messages("two") == [2]


async def test_removal_during_join_recreates_the_cursor(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create("a")

    async def deliver_to_nobody() -> None:
        await world.append("a", b"1")
        await world.dispatch()
        assert await world.items("R") == []

    once(monkeypatch, DeliveryCursors, "join", before=deliver_to_nobody)
    await world.connect("one")
    await world.subscribe("one", "a")
    await world.append("a", b"2")
    await world.dispatch()
    assert world.messages("one") == [1, 2]


async def test_deleting_a_stream_removes_its_cursor_and_keeps_subscribers(world: World) -> None:
    await world.create("a")
    await world.connect("one")
    await world.subscribe("one", "a")
    await world.append("a", b"1")
    await world.delete("a")
    await world.dispatch()
    assert world.messages("one") == [1]
    assert await world.items("R") == []
    assert len(await world.items("L")) == 1


async def test_a_soft_deleted_stream_is_waited_for(world: World) -> None:
    """Its name still exists, for a fork needs it."""
    await world.create("a", b"1")
    async with world.function() as function:
        await function.streams.create("f", Create(fork=ForkFrom("a")))
    await world.delete("a")
    await world.dispatch()
    await world.connect("one")
    await asyncio.wait_for(world.subscribe("one", "a"), 30)
    assert world.types("one") == ["confirm_subscription"]
    assert len(await world.items("L")) == 1
