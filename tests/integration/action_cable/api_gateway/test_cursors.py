"""There is a room as long as somebody may be in it."""

from __future__ import annotations

import pytest

from tailrace.protocols.action_cable.api_gateway.cursors import Rooms
from tests.integration.action_cable.api_gateway.hooks import once
from tests.integration.action_cable.api_gateway.world import World
from tests.support.cable import pubsub


async def test_a_room_that_nobody_listens_in_goes(world: World) -> None:
    await world.create("a")
    await world.connect("one")
    await world.subscribe("one", "a")
    await world.say("one", "unsubscribe", pubsub("a"))
    await world.append("a", b"1")
    await world.dispatch()
    assert await world.items("RL") == []


async def test_a_room_that_somebody_joins_while_it_goes_stays(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create("a")
    await world.connect("one")
    await world.subscribe("one", "a")
    await world.say("one", "unsubscribe", pubsub("a"))

    async def join() -> None:
        await world.connect("two")
        await world.subscribe("two", "a")

    once(monkeypatch, Rooms, "leave", before=join)
    await world.append("a", b"1")
    await world.dispatch()
    await world.append("a", b"2")
    await world.dispatch()
    assert world.messages("two") == [2]


async def test_a_room_that_goes_while_somebody_joins_is_made_anew(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create("a")

    async def deliver_to_nobody() -> None:
        await world.append("a", b"1")
        await world.dispatch()
        assert await world.items("R") == []

    once(monkeypatch, Rooms, "join", before=deliver_to_nobody)
    await world.connect("one")
    await world.subscribe("one", "a")
    await world.append("a", b"2")
    await world.dispatch()
    assert world.messages("one") == [1, 2]


async def test_the_room_of_a_deleted_stream_goes_and_its_listeners_stay(world: World) -> None:
    await world.create("a")
    await world.connect("one")
    await world.subscribe("one", "a")
    await world.append("a", b"1")
    await world.delete("a")
    await world.dispatch()
    assert world.messages("one") == [1]
    assert await world.items("R") == []
    assert len(await world.items("L")) == 1
