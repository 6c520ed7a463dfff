"""Presence: who joins first and who leaves last is told to everybody who listens."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tailrace.protocols.action_cable.api_gateway import members
from tailrace.protocols.action_cable.core import presence
from tests.integration.action_cable.api_gateway.world import Function, World
from tests.support.cable import pubsub

A = pubsub("a")
JOIN = {"id": "ada", "info": {"name": "Ada"}, "type": "join"}
LEAVE = {"id": "ada", "type": "leave"}


@pytest.fixture
async def room(world: World) -> World:
    """Somebody listens to `a`, who is called eve; ada has two connections, one and two."""
    await world.create("a")
    for name in ("eve", "one", "two"):
        await world.connect(name)
        await world.subscribe(name, "a")
    return world


async def join(world: World, name: str, member: str = "ada", info: Any = None) -> None:
    info = {"name": "Ada"} if info is None else info
    await world.say(name, "join", A, presence={"id": member, "info": info})


def told(world: World, name: str = "eve") -> list[Any]:
    return [each["message"] for each in world.heard(name) if each.get("type") == "presence"]


async def test_several_connections_of_a_member_are_news_once(room: World) -> None:
    await join(room, "one")
    await join(room, "one")
    await join(room, "two")
    assert told(room) == told(room, "one") == [JOIN]


async def test_a_member_leaves_when_its_last_connection_does(room: World) -> None:
    await join(room, "one")
    await join(room, "two")
    await room.say("one", "leave", A)
    await room.say("one", "leave", A)
    assert told(room) == [JOIN]
    await room.say("two", "leave", A)
    assert told(room) == [JOIN, LEAVE]
    assert await room.items("M") == []


async def test_who_joins_with_its_subscription_hears_itself(world: World) -> None:
    await world.create("a")
    await world.connect("one")
    await world.subscribe("one", "a", presence={"id": "ada", "info": {"name": "Ada"}})
    assert world.types("one") == ["confirm_subscription", "presence"]
    assert told(world, "one") == [JOIN]


async def test_who_was_never_there_does_not_leave(room: World) -> None:
    await room.say("one", "leave", A)
    assert told(room) == []


async def test_two_who_leave_at_once_are_news_once(room: World) -> None:
    for round_ in range(1, 4):
        await join(room, "one")
        await join(room, "two")
        await asyncio.gather(*(room.say(name, "leave", A) for name in ("one", "two")))
        assert told(room) == [JOIN, LEAVE] * round_
        assert await room.items("M") == []


async def test_each_may_see_the_other_for_the_last_one(
    room: World, function: Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One has looked whether it is alone, then the other goes."""
    await join(room, "one")
    await join(room, "two")
    delete_if, first = function.table.delete_if, True

    async def slow(*args: Any) -> bool:
        nonlocal first
        found = await delete_if(*args)
        if first:
            first = False
            await room.say("two", "leave", A)
        return found

    monkeypatch.setattr(function.table, "delete_if", slow)
    assert (
        await function.broadcaster.members.leave("a", "one", "ada") == '{"id":"ada","type":"leave"}'
    )
    assert told(room) == [JOIN]


async def test_who_drops_counts_as_there_for_a_while(room: World) -> None:
    await join(room, "one")
    async with room.function() as function:
        await function.broadcaster.connections.drop("one")
        await function.heartbeat.sweep()
        assert told(room) == [JOIN]
        room.clock.pass_s(room.settings.presence_ttl + 0.1)
        await function.heartbeat.sweep()
        await function.heartbeat.sweep()
        assert told(room) == [JOIN, LEAVE]
        room.clock.pass_s(room.settings.sessions_ttl)
        await function.heartbeat.sweep()
    assert told(room) == [JOIN, LEAVE]


async def test_who_drops_and_comes_back_was_there_all_the_time(room: World) -> None:
    await join(room, "one")
    async with room.function() as function:
        await function.broadcaster.connections.drop("one")
        await join(room, "two")
        room.clock.pass_s(room.settings.presence_ttl + 0.1)
        await function.heartbeat.sweep()
    assert told(room) == [JOIN]


async def test_who_asks_is_told_who_is_there(room: World) -> None:
    await room.say("eve", "presence", A)
    await join(room, "one")
    await join(room, "two", "bob", "x")
    await room.say("eve", "presence", A)
    await room.say("eve", "presence", A, data={"return_records": False})
    nobody, *_, listed, counted = told(room)
    assert nobody == {"type": "info", "total": 0, "records": []}
    assert sorted(listed.pop("records"), key=lambda each: str(each["id"])) == [
        {"info": {"name": "Ada"}, "id": "ada"},
        {"info": "x", "id": "bob"},
    ]
    assert listed == counted == {"type": "info", "total": 2}


async def test_more_than_a_frame_holds_is_only_counted(
    room: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await join(room, "one")
    monkeypatch.setattr(members, "CABLE_BROADCAST_BYTES", 60)
    await room.say("eve", "presence", A)
    assert told(room) == [JOIN, {"type": "info", "total": 1}]


async def test_a_connection_cannot_become_somebody_else(room: World) -> None:
    await join(room, "one")
    await join(room, "one", "bob")
    assert told(room) == [JOIN]
    await room.say("one", "leave", A)
    await join(room, "one", "bob", 1)
    assert told(room) == [JOIN, LEAVE, {"id": "bob", "info": 1, "type": "join"}]


async def test_a_client_joins_as_its_token_says(room: World) -> None:
    await room.connect("three", '{"user":"mallory"}')
    await room.subscribe("three", "a", presence={"id": "ada"})
    await join(room, "three", "ada")
    refusal = {"id": "ada", "type": "reject", "reason": "the token does not name this id"}
    assert told(room, "three") == [refusal, refusal]
    assert told(room) == []
    await join(room, "three", "mallory", 1)
    assert told(room) == [{"id": "mallory", "info": 1, "type": "join"}]


async def test_infos_that_are_too_large_are_left_out(
    room: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "CABLE_MEMBER_BYTES", 100)
    await join(room, "one", "ada", "x" * 100)
    assert told(room) == []
    assert await room.items("M") == []
    await room.say("one", "leave", A)
    await join(room, "one")
    assert told(room) == [JOIN]


@pytest.mark.parametrize("given", [None, {}, {"id": ""}, {"id": 1}, "ada"])
async def test_who_is_nobody_does_not_join(room: World, given: Any) -> None:
    await room.say("one", "join", A, presence=given)
    assert told(room) == []
    assert await room.items("M") == []


async def test_members_are_of_one_stream(room: World) -> None:
    await room.subscribe("one", "b", presence={"id": "ada", "info": 1})
    assert told(room) == []
    await room.say("eve", "presence", A)
    assert told(room) == [{"type": "info", "total": 0, "records": []}]
