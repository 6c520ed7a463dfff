"""A delivery cursor exists while its stream may have subscribers."""

from __future__ import annotations

import asyncio

import pytest

from tailrace.log.create import Create, ForkFrom
from tailrace.protocols.action_cable.api_gateway.cursors import DeliveryCursors
from tailrace.protocols.action_cable.api_gateway.items import SubscriberRecord
from tailrace.protocols.action_cable.core.channels import Subscription
from tests.integration.action_cable.api_gateway.hooks import once
from tests.integration.action_cable.api_gateway.world import Function, World
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

    async def unsubscribe_and_remove() -> None:
        await world.say("one", "unsubscribe", pubsub("a"), at=world.clock() - 1)
        async with world.function() as function:
            await function.broadcaster.connections.stop_delivery(
                "one", await function.broadcaster.connections.subscriptions("one")
            )
        await world.append("a", b"1")
        await world.dispatch()
        assert await world.items("R") == []

    once(monkeypatch, DeliveryCursors, "join", before=unsubscribe_and_remove)
    await world.connect("one")
    await world.subscribe("one", "a")
    await world.append("a", b"2")
    await world.dispatch()
    assert world.messages("one") == [1, 2]


async def test_a_subscriber_that_has_not_joined_keeps_the_cursor(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create("a")

    async def pass_by() -> None:
        await world.append("a", b"1")
        await world.dispatch()
        assert len(await world.items("R")) == 1

    once(monkeypatch, DeliveryCursors, "join", before=pass_by)
    await world.connect("one")
    await world.subscribe("one", "a")
    await world.append("a", b"2")
    await world.dispatch()
    assert world.messages("one") == [1, 2]


async def test_a_subscriber_behind_the_cursor_has_to_read_further(
    world: World, function: Function
) -> None:
    await world.create("a")
    for name in ("one", "two"):
        await world.connect(name)
    await world.subscribe("one", "a")
    tail = await function.streams.find("a")
    behind = SubscriberRecord(
        "two", Subscription(pubsub("a"), "a", "a"), tail.stream.id, tail.committed.tail
    )
    cursors = function.broadcaster.cursors
    await world.append("a", b"1")
    await world.dispatch()
    await cursors.subscribe(behind)
    cursor = await cursors.get(tail.stream.id)
    assert not await cursors.join(behind, cursor)
    assert await cursors.join(behind._replace(slot=tail.committed.tail + 1), cursor)


async def test_a_client_does_not_join_while_the_cursor_is_being_removed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is added just after the delivery has found that nobody is left."""
    await world.create("a")
    await world.connect("one")
    await world.subscribe("one", "a")
    await world.say("one", "unsubscribe", pubsub("a"))
    await world.connect("two")
    subscribing: list[asyncio.Task[None]] = []

    async def subscribe() -> None:
        subscribing.append(asyncio.create_task(world.subscribe("two", "a")))
        await asyncio.sleep(0.2)
        assert not subscribing[0].done()

    once(monkeypatch, DeliveryCursors, "few_subscribers", after=subscribe)
    await world.append("a", b"1")
    await world.dispatch()
    await asyncio.gather(*subscribing)
    await world.append("a", b"2")
    await world.dispatch()
    assert world.messages("two") == [2]


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
