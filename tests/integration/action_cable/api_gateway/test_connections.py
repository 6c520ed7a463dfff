"""Connections: their items, and that none of them remains in the end."""

from __future__ import annotations

import pytest

from tailrace.limits import GATEWAY_CONNECTION_SHARDS
from tailrace.protocols.action_cable.api_gateway import connections
from tailrace.protocols.action_cable.api_gateway.connections import SubscribeResult
from tailrace.protocols.action_cable.api_gateway.items import connection_shard
from tailrace.protocols.action_cable.core.channels import Subscription
from tests.integration.action_cable.api_gateway.world import Function, World
from tests.support.cable import pubsub

ADA = '{"user":"ada"}'
A = pubsub("a")


def subscription(stream: str) -> Subscription:
    return Subscription(pubsub(stream), stream, stream, whispers=True, presence=True)


async def leave(world: World, name: str) -> None:
    """End a connection, as `$disconnect` does."""
    world.gateway_api.sent.pop(name, None)
    async with world.function() as function:
        await function.broadcaster.connections.disconnect(name)


async def sweep(world: World) -> None:
    async with world.function() as function:
        await function.heartbeat.sweep()


# Connecting


async def test_a_connection_is_stored(world: World, function: Function) -> None:
    await world.connect("one", ADA, ping_interval=0.5, time_unit="ms")
    found = await function.broadcaster.connections.get("one")
    assert found is not None
    assert (found.identity, found.ping_interval, found.time_unit) == (ADA, 0.5, "ms")
    assert (found.disconnected_at, found.resumed) == (None, False)
    assert await function.broadcaster.connections.get("two") is None
    assert await function.broadcaster.connections.by_identity(ADA) == ["one"]
    connected = [
        [each.id async for each in function.broadcaster.connections.connected(shard)]
        for shard in range(GATEWAY_CONNECTION_SHARDS)
    ]
    assert [shard for shard, each in enumerate(connected) if each] == [connection_shard("one")]
    assert connected[connection_shard("one")] == ["one"]


async def test_subscriptions_are_restored_once_and_for_their_client_only(
    world: World, function: Function
) -> None:
    connections_ = function.broadcaster.connections
    await world.connect("one", ADA)
    await world.subscribe("one", "a")
    await world.subscribe("one", "b")
    assert await connections_.restore("one", '{"user":"eve"}') is None
    assert await connections_.restore("nobody", ADA) is None
    found = await connections_.restore("one", ADA)
    assert found is not None
    assert sorted(found) == [pubsub("a"), pubsub("b")]
    assert await connections_.restore("one", ADA) is None


async def test_a_session_is_restored_until_its_ttl_ends(world: World, function: Function) -> None:
    for name in ("one", "two"):
        await world.connect(name, ADA)
        await leave(world, name)
    world.clock.pass_s(world.settings.sessions_ttl - 0.5)
    assert await function.broadcaster.connections.restore("one", ADA) == []
    world.clock.pass_s(1)
    assert await function.broadcaster.connections.restore("two", ADA) is None


# Subscriptions


async def test_subscriptions_of_a_connection_are_limited(
    world: World, function: Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CABLE_SUBSCRIPTIONS", 2)
    connections_ = function.broadcaster.connections
    await world.connect("one")
    assert await connections_.subscribe("one", subscription("a"), 1) is SubscribeResult.NEW
    assert await connections_.subscribe("one", subscription("b"), 1) is SubscribeResult.NEW
    assert await connections_.subscribe("one", subscription("c"), 1) is SubscribeResult.REFUSED
    assert await connections_.subscribe("one", subscription("a"), 1) is SubscribeResult.EXISTING
    assert len(await connections_.subscriptions("one")) == 2
    assert await connections_.unsubscribe("one", subscription("a"), 2)
    assert not await connections_.unsubscribe("one", subscription("a"), 2)
    assert await connections_.subscribe("one", subscription("c"), 3) is SubscribeResult.NEW
    assert await connections_.subscribe("one", subscription("d"), 3) is SubscribeResult.REFUSED


async def test_a_subscription_over_the_limit_is_rejected(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CABLE_SUBSCRIPTIONS", 1)
    await world.connect("one")
    await world.subscribe("one", "a")
    await world.subscribe("one", "b")
    assert world.types("one") == ["confirm_subscription", "reject_subscription"]
    assert len(await world.items("LU")) == 2


async def test_an_ended_connection_cannot_subscribe(world: World, function: Function) -> None:
    await world.connect("one")
    await leave(world, "one")
    assert (
        await function.broadcaster.connections.subscribe("one", subscription("a"), 1)
        is SubscribeResult.REFUSED
    )
    assert (
        await function.broadcaster.connections.subscribe("nobody", subscription("a"), 1)
        is SubscribeResult.REFUSED
    )
    assert await world.items("LU") == []


# Disconnecting


async def test_an_ended_connection_gets_nothing_and_may_be_restored(
    world: World, function: Function
) -> None:
    await world.create("a")
    await world.connect("one", ADA)
    await world.subscribe("one", "a")
    await leave(world, "one")
    await leave(world, "one")
    assert await world.items("L") == []
    await world.append("a", b"1")
    await world.dispatch()
    assert world.gateway_api.counts["gone"] == 0
    assert await function.broadcaster.connections.restore("one", ADA) == [A]


async def test_all_items_of_an_expired_connection_are_removed(world: World) -> None:
    await world.create("a")
    await world.connect("one", ADA)
    await world.subscribe("one", "a", presence={"id": "ada"})
    await world.subscribe("one", "b")
    assert len(await world.items("KUILM")) == 7
    await leave(world, "one")
    assert len(await world.items("KUIM")) == 5
    await sweep(world)
    assert len(await world.items("KUIM")) == 5, "it is not due"
    world.clock.pass_s(world.settings.presence_ttl + 0.1)
    await sweep(world)
    assert len(await world.items("KUI")) == 4, "it may come back"
    assert await world.items("M") == []
    world.clock.pass_s(world.settings.sessions_ttl)
    await sweep(world)
    assert await world.items("KUILM") == []


async def test_a_restored_connection_is_removed(world: World, function: Function) -> None:
    await world.connect("one", ADA)
    await world.subscribe("one", "a")
    await leave(world, "one")
    assert await function.broadcaster.connections.restore("one", ADA) == [A]
    world.clock.pass_s(world.settings.presence_ttl + 0.1)
    await sweep(world)
    assert await world.items("KUIL") == []


async def test_a_connection_that_is_gone_is_marked_as_ended(world: World) -> None:
    await world.create("a")
    for name in ("one", "two"):
        await world.connect(name)
        await world.subscribe(name, "a")
    del world.gateway_api.sent["one"]
    await world.append("a", b"1")
    await world.dispatch()
    await world.append("a", b"2")
    await world.dispatch()
    assert world.messages("two") == [1, 2]
    assert world.gateway_api.counts["gone"] == 1
    assert world.gateway_api.ended == []


async def test_an_uncertain_frame_ends_the_connection(
    world: World,
) -> None:
    await world.create("a")
    await world.connect("one")
    await world.subscribe("one", "a")
    world.gateway_api.doubt = lambda frame: '"message":1' in frame
    await world.append("a", b"1", b"2")
    await world.dispatch()
    assert world.gateway_api.ended == ["one"]
    assert await world.items("L") == []


# Identities


async def test_disconnecting_an_identity_ends_its_connections_and_sessions(
    world: World, function: Function
) -> None:
    await world.create("a")
    for name, who in {"one": ADA, "two": ADA, "three": ADA, "eve": '{"user":"eve"}'}.items():
        await world.connect(name, who)
        await world.subscribe(name, "a", presence={"id": who})
    await leave(world, "three")
    frames = {name: world.gateway_api.sent[name] for name in ("one", "two")}
    await function.broadcaster.disconnect_identity(ADA, reconnect=False)
    assert sorted(world.gateway_api.ended) == ["one", "two"]
    for sent in frames.values():
        assert sent[-1] == '{"type":"disconnect","reason":"remote","reconnect":false}'
    for name in ("one", "two", "three"):
        assert await function.broadcaster.connections.restore(name, ADA) is None
    assert len(await world.items("KUILM")) == 5, "those of eve"
    assert world.heard("eve")[-1]["message"] == {"id": ADA, "type": "leave"}
    await world.append("a", b"1")
    await world.dispatch()
    assert world.messages("eve") == [1]


async def test_a_client_without_a_token_is_disconnected_by_its_session_id(
    world: World, function: Function
) -> None:
    await world.connect("one")
    await function.broadcaster.disconnect_identity('{"sid":"one"}', reconnect=True)
    assert world.gateway_api.ended == ["one"]
    assert await world.items("KUILM") == []
