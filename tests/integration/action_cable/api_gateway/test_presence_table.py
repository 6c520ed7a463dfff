"""Presence: the first join and the last leave of a member are sent to all subscribers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tailrace.errors import StreamTooHot
from tailrace.protocols.action_cable.api_gateway import broadcaster, presence_table
from tailrace.protocols.action_cable.api_gateway.cursors import DeliveryCursors
from tailrace.protocols.action_cable.core import presence
from tests.integration.action_cable.api_gateway.hooks import once
from tests.integration.action_cable.api_gateway.world import Function, World
from tests.support.cable import pubsub

A = pubsub("a")
JOIN = {"id": "ada", "info": {"name": "Ada"}, "type": "join"}
LEAVE = {"id": "ada", "type": "leave"}


@pytest.fixture
async def audience(world: World) -> World:
    """The connections eve, one and two have subscribed to `a`; one and two belong to ada."""
    await world.create("a")
    for name in ("eve", "one", "two"):
        await world.connect(name)
        await world.subscribe(name, "a")
    return world


async def join(world: World, name: str, member: str = "ada", info: Any = None) -> None:
    info = {"name": "Ada"} if info is None else info
    await world.say(name, "join", A, presence={"id": member, "info": info})


def presence_messages(world: World, name: str = "eve") -> list[Any]:
    return [each["message"] for each in world.heard(name) if each.get("type") == "presence"]


async def test_the_first_connection_of_a_member_is_announced(audience: World) -> None:
    await join(audience, "one")
    await join(audience, "one")
    await join(audience, "two")
    assert presence_messages(audience) == presence_messages(audience, "one") == [JOIN]


async def test_a_member_leaves_when_its_last_connection_does(audience: World) -> None:
    await join(audience, "one")
    await join(audience, "two")
    await audience.say("one", "leave", A)
    await audience.say("one", "leave", A)
    assert presence_messages(audience) == [JOIN]
    await audience.say("two", "leave", A)
    assert presence_messages(audience) == [JOIN, LEAVE]
    assert await audience.items("M") == []


async def test_members_of_a_stream_are_listed_for_applications(audience: World) -> None:
    await join(audience, "one")
    async with audience.function() as function:
        members = json.loads(await function.broadcaster.members("a", "a"))
        absent = json.loads(await function.broadcaster.members("b", "b"))
    assert (members["type"], members["total"]) == ("info", 1)
    assert [each["id"] for each in members["records"]] == ["ada"]
    assert absent == {"type": "info", "total": 0, "records": []}


async def test_a_client_that_joins_with_its_subscription_gets_its_own_join(world: World) -> None:
    await world.create("a")
    await world.connect("one")
    await world.subscribe("one", "a", presence={"id": "ada", "info": {"name": "Ada"}})
    assert world.types("one") == ["confirm_subscription", "presence"]
    assert presence_messages(world, "one") == [JOIN]


async def test_many_subscribers_are_not_told_who_joins(
    audience: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If all of them reconnect, each would be told of each other."""
    monkeypatch.setattr(broadcaster, "GATEWAY_PRESENCE_SUBSCRIBERS", 3)
    await join(audience, "one")
    assert presence_messages(audience) == [JOIN]
    monkeypatch.setattr(broadcaster, "GATEWAY_PRESENCE_SUBSCRIBERS", 2)
    await join(audience, "eve", "eve")
    await audience.say("one", "leave", A)
    assert presence_messages(audience) == [JOIN]
    await audience.say("two", "presence", A)
    (listed,) = (each for each in presence_messages(audience, "two") if each["type"] == "info")
    assert [each["id"] for each in listed["records"]] == ["eve"]


async def test_a_busy_stream_does_not_fail_a_join(
    audience: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> None:
        raise StreamTooHot("so many join")

    once(monkeypatch, DeliveryCursors, "few_subscribers", before=fail)
    await join(audience, "one")
    assert presence_messages(audience) == []
    await join(audience, "eve", "eve")
    assert len(presence_messages(audience)) == 1
    assert audience.gateway_api.ended == []


async def test_a_client_that_has_not_joined_does_not_leave(audience: World) -> None:
    await audience.say("one", "leave", A)
    assert presence_messages(audience) == []


async def test_concurrent_leaves_are_announced_once(audience: World) -> None:
    for round_ in range(1, 4):
        await join(audience, "one")
        await join(audience, "two")
        await asyncio.gather(*(audience.say(name, "leave", A) for name in ("one", "two")))
        assert presence_messages(audience) == [JOIN, LEAVE] * round_
        assert await audience.items("M") == []


async def test_concurrent_leaves_may_each_find_the_other_connection(
    audience: World, function: Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second connection leaves after the first has found that it is not the last."""
    await join(audience, "one")
    await join(audience, "two")
    delete_if, first = function.table.delete_if, True

    async def slow(*args: Any) -> bool:
        nonlocal first
        found = await delete_if(*args)
        if first:
            first = False
            await audience.say("two", "leave", A)
        return found

    monkeypatch.setattr(function.table, "delete_if", slow)
    assert (
        await function.broadcaster.presence.leave("a", "one", "ada")
        == '{"id":"ada","type":"leave"}'
    )
    assert presence_messages(audience) == [JOIN]


async def test_a_dropped_client_is_present_until_the_ttl_ends(audience: World) -> None:
    await join(audience, "one")
    async with audience.function() as function:
        await function.broadcaster.connections.disconnect("one")
        await function.heartbeat.sweep()
        assert presence_messages(audience) == [JOIN]
        audience.clock.pass_s(audience.settings.presence_ttl + 0.1)
        await function.heartbeat.sweep()
        await function.heartbeat.sweep()
        assert presence_messages(audience) == [JOIN, LEAVE]
        audience.clock.pass_s(audience.settings.sessions_ttl)
        await function.heartbeat.sweep()
    assert presence_messages(audience) == [JOIN, LEAVE]


async def test_a_client_that_reconnects_in_time_stays_present(audience: World) -> None:
    await join(audience, "one")
    async with audience.function() as function:
        await function.broadcaster.connections.disconnect("one")
        await join(audience, "two")
        audience.clock.pass_s(audience.settings.presence_ttl + 0.1)
        await function.heartbeat.sweep()
    assert presence_messages(audience) == [JOIN]


async def test_presence_info_lists_and_counts_members(audience: World) -> None:
    await audience.say("eve", "presence", A)
    await join(audience, "one")
    await join(audience, "two", "bob", "x")
    await audience.say("eve", "presence", A)
    await audience.say("eve", "presence", A, data={"return_records": False})
    nobody, *_, listed, counted = presence_messages(audience)
    assert nobody == {"type": "info", "total": 0, "records": []}
    assert sorted(listed.pop("records"), key=lambda each: str(each["id"])) == [
        {"info": {"name": "Ada"}, "id": "ada"},
        {"info": "x", "id": "bob"},
    ]
    assert listed == counted == {"type": "info", "total": 2}


async def test_presence_info_over_the_frame_size_only_counts(
    audience: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await join(audience, "one")
    monkeypatch.setattr(presence_table, "GATEWAY_BROADCAST_BYTES", 60)
    await audience.say("eve", "presence", A)
    assert presence_messages(audience) == [JOIN, {"type": "info", "total": 1}]


async def test_a_connection_cannot_change_its_member(audience: World) -> None:
    await join(audience, "one")
    await join(audience, "one", "bob")
    assert presence_messages(audience) == [JOIN]
    await audience.say("one", "leave", A)
    await join(audience, "one", "bob", 1)
    assert presence_messages(audience) == [JOIN, LEAVE, {"id": "bob", "info": 1, "type": "join"}]


async def test_a_client_joins_under_the_id_of_its_token(audience: World) -> None:
    await audience.connect("three", '{"user":"mallory"}')
    await audience.subscribe("three", "a", presence={"id": "ada"})
    await join(audience, "three", "ada")
    refusal = {"id": "ada", "type": "reject", "reason": "the token does not name this id"}
    assert presence_messages(audience, "three") == [refusal, refusal]
    assert presence_messages(audience) == []
    await join(audience, "three", "mallory", 1)
    assert presence_messages(audience) == [{"id": "mallory", "info": 1, "type": "join"}]


async def test_oversized_infos_are_ignored(
    audience: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "CABLE_MEMBER_BYTES", 100)
    await join(audience, "one", "ada", "x" * 100)
    assert presence_messages(audience) == []
    assert await audience.items("M") == []
    await audience.say("one", "leave", A)
    await join(audience, "one")
    assert presence_messages(audience) == [JOIN]


@pytest.mark.parametrize("given", [None, {}, {"id": ""}, {"id": 1}, "ada"])
async def test_joins_without_an_id_are_ignored(audience: World, given: Any) -> None:
    await audience.say("one", "join", A, presence=given)
    assert presence_messages(audience) == []
    assert await audience.items("M") == []


async def test_members_belong_to_one_stream(audience: World) -> None:
    await audience.subscribe("one", "b", presence={"id": "ada", "info": 1})
    assert presence_messages(audience) == []
    await audience.say("eve", "presence", A)
    assert presence_messages(audience) == [{"type": "info", "total": 0, "records": []}]
