"""Restored sessions, and broadcasts of applications."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial

import pytest

from tailrace.errors import BodyTooLarge
from tailrace.limits import GATEWAY_BROADCAST_BYTES
from tailrace.protocols.action_cable.core.broadcasts import parse
from tailrace.protocols.action_cable.core.publisher import Publisher
from tests.integration.action_cable.api_gateway.world import World
from tests.support.cable import pubsub

A = pubsub("a")
ADA = '{"user":"ada"}'


async def resume(world: World, old: str, new: str) -> None:
    await world.connect(new, ADA)
    async with world.function() as function:
        broadcaster = function.broadcaster
        identifiers = await broadcaster.connections.restore(old, ADA)
        assert identifiers is not None
        send_first = partial(broadcaster.send, new)
        assert await function.command_handler(new).resume(identifiers, send_first)


@pytest.fixture
async def dropped(world: World) -> World:
    """The client one got message 1 and disconnected; then 2 was appended."""
    await world.create("a")
    await world.connect("one", ADA)
    await world.subscribe("one", "a")
    await world.append("a", b"1")
    await world.dispatch()
    frames = world.gateway_api.sent.pop("one")
    async with world.function() as function:
        await function.broadcaster.connections.disconnect("one")
    await world.append("a", b"2")
    await world.dispatch()
    world.gateway_api.sent["one"] = frames
    return world


async def test_a_restored_session_gets_new_messages_at_once(dropped: World) -> None:
    await resume(dropped, "one", "two")
    await dropped.append("a", b"3")
    await dropped.dispatch()
    welcome = {"type": "welcome", "sid": "two", "restored": True, "restored_ids": [A]}
    assert dropped.heard("two")[0] == welcome
    assert dropped.messages("two") == [3]


async def test_a_client_that_asks_for_history_subscribes_again(dropped: World) -> None:
    """New messages would be held back for ever if it did not ask again."""
    await resume(dropped, "one", "two")
    await dropped.say("two", "unsubscribe", A)
    last = dropped.heard("one")[-1]
    history = {"streams": {"a": {"epoch": last["epoch"], "offset": last["offset"]}}}
    await dropped.subscribe("two", "a", history=history)
    assert dropped.messages("two") == [2]
    async with dropped.function() as function:
        await function.broadcaster.connections.disconnect("two")
        assert await function.broadcaster.connections.restore("two", ADA) is None


async def test_a_restored_session_may_subscribe_again(dropped: World) -> None:
    await resume(dropped, "one", "two")
    await dropped.subscribe("two", "a")
    await dropped.append("a", b"3")
    await dropped.dispatch()
    assert dropped.messages("two") == [3]


async def test_a_restored_session_may_unsubscribe_and_drop_again(dropped: World) -> None:
    await resume(dropped, "one", "two")
    await dropped.say("two", "unsubscribe", A)
    async with dropped.function() as function:
        await function.broadcaster.connections.disconnect("two")
    await resume(dropped, "two", "three")
    assert dropped.heard("three")[0].get("restored_ids") is None


async def test_a_restored_session_gets_whispers_at_once(dropped: World) -> None:
    await dropped.connect("other")
    await dropped.subscribe("other", "a")
    await resume(dropped, "one", "two")
    await dropped.say("other", "whisper", A, data="psst")
    assert dropped.heard("two")[1:] == [{"identifier": A, "message": "psst"}]


# Broadcasts


async def broadcast(world: World, *asked: Mapping[str, object]) -> None:
    publications = parse(json.dumps(list(asked)).encode())
    assert isinstance(publications, list)
    async with world.function() as function:
        publisher = Publisher(function.streams, function.broadcaster, world.settings)
        await publisher.publish(publications)
    await world.dispatch()


@pytest.fixture
async def audience(world: World) -> World:
    for name in ("one", "two"):
        await world.connect(name)
        await world.subscribe(name, "a")
    return world


async def test_a_broadcast_creates_its_stream(audience: World) -> None:
    await broadcast(audience, {"stream": "a", "data": "[1]"}, {"stream": "a", "data": "hello"})
    await broadcast(audience, {"stream": "a", "data": "2"})
    assert audience.messages("one") == audience.messages("two") == [[1], "hello", 2]


async def test_messages_are_delivered_with_their_options(audience: World) -> None:
    await broadcast(
        audience,
        {"stream": "a", "data": "1", "meta": {"exclude_socket": "one"}},
        {"stream": "a", "data": "2", "meta": {"broadcast_type": "update"}},
        {"stream": "a", "data": "3"},
        {"stream": "a", "data": "4", "meta": {"exclude_socket": "two", "broadcast_type": "x"}},
    )
    assert audience.messages("one") == [2, 3, 4]
    assert audience.messages("two") == [1, 2, 3]
    assert audience.types("one")[1:] == ["update", "message", "x"]
    assert [each["offset"] for each in audience.heard("one")[1:]] == [2, 3, 4]


async def test_history_ignores_the_options_of_messages(audience: World) -> None:
    meta = {"exclude_socket": "three", "broadcast_type": "update"}
    await broadcast(audience, {"stream": "a", "data": "1", "meta": meta})
    await audience.connect("three")
    await audience.subscribe("three", "a", history={"since": 1})
    assert audience.types("three") == ["confirm_subscription", "message", "confirm_history"]


async def test_transient_messages_are_sent_and_not_stored(audience: World) -> None:
    meta = {"transient": True, "exclude_socket": "one", "broadcast_type": "cursor"}
    await broadcast(audience, {"stream": "a", "data": "1", "meta": meta})
    assert audience.types("one") == ["confirm_subscription"]
    assert audience.heard("two")[1:] == [{"type": "cursor", "identifier": A, "message": 1}]
    assert await audience.items("NC") == []


@pytest.mark.parametrize("transient", [False, True])
async def test_oversized_broadcasts_are_refused_and_not_stored(
    audience: World, transient: bool
) -> None:
    large = json.dumps("x" * GATEWAY_BROADCAST_BYTES)
    asked = {"stream": "a", "data": large, "meta": {"transient": transient}}
    with pytest.raises(BodyTooLarge):
        await broadcast(audience, asked)
    await audience.dispatch()
    assert audience.types("one") == ["confirm_subscription"]
    assert await audience.items("NC") == []


async def test_the_largest_broadcast_arrives(audience: World) -> None:
    await broadcast(
        audience, {"stream": "a", "data": json.dumps("x" * (GATEWAY_BROADCAST_BYTES - 2))}
    )
    assert [len(each) for each in audience.messages("one")] == [GATEWAY_BROADCAST_BYTES - 2]
