"""Who is connected, and that nothing is left of those who are not."""

from __future__ import annotations

import pytest

from tailrace.protocols.action_cable.api_gateway import connections
from tailrace.protocols.action_cable.api_gateway.connections import Added
from tailrace.protocols.action_cable.core.channels import Subscription
from tests.integration.action_cable.api_gateway.world import Function, World
from tests.support.cable import pubsub

ADA = '{"user":"ada"}'
A = pubsub("a")


def wanted(stream: str) -> Subscription:
    return Subscription(pubsub(stream), stream, stream, whispers=True, presence=True)


async def leave(world: World, name: str) -> None:
    """As API Gateway tells it."""
    world.wires.sent.pop(name, None)
    async with world.function() as function:
        await function.broadcaster.connections.drop(name)


async def sweep(world: World) -> None:
    async with world.function() as function:
        await function.heartbeat.sweep()


# Coming


async def test_what_is_known_of_a_connection(world: World, function: Function) -> None:
    await world.connect("one", ADA, interval=0.5, unit="ms")
    found = await function.broadcaster.connections.get("one")
    assert found is not None
    assert (found.identity, found.interval, found.unit) == (ADA, 0.5, "ms")
    assert (found.left, found.resumed) == (None, False)
    assert await function.broadcaster.connections.get("two") is None
    assert await function.broadcaster.connections.of(ADA) == ["one"]
    assert [each.id async for each in function.broadcaster.connections.all()] == ["one"]


async def test_what_it_wished_is_recalled_once_and_for_its_client_only(
    world: World, function: Function
) -> None:
    known = function.broadcaster.connections
    await world.connect("one", ADA)
    await world.subscribe("one", "a")
    await world.subscribe("one", "b")
    assert await known.recall("one", '{"user":"eve"}') is None
    assert await known.recall("nobody", ADA) is None
    found = await known.recall("one", ADA)
    assert found is not None
    assert sorted(found) == [pubsub("a"), pubsub("b")]
    assert await known.recall("one", ADA) is None


async def test_it_is_recalled_for_as_long_as_sessions_last(
    world: World, function: Function
) -> None:
    for name in ("one", "two"):
        await world.connect(name, ADA)
        await leave(world, name)
    world.clock.pass_s(world.settings.sessions_ttl - 0.5)
    assert await function.broadcaster.connections.recall("one", ADA) == []
    world.clock.pass_s(1)
    assert await function.broadcaster.connections.recall("two", ADA) is None


# Wishes


async def test_there_is_room_for_so_many_subscriptions(
    world: World, function: Function, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CABLE_SUBSCRIPTIONS", 2)
    known = function.broadcaster.connections
    await world.connect("one")
    assert await known.add("one", wanted("a"), 1) is Added.NEW
    assert await known.add("one", wanted("b"), 1) is Added.NEW
    assert await known.add("one", wanted("c"), 1) is Added.REFUSED
    assert await known.add("one", wanted("a"), 1) is Added.KNOWN
    assert len(await known.subscriptions("one")) == 2
    assert await known.remove("one", wanted("a"), 2)
    assert not await known.remove("one", wanted("a"), 2)
    assert await known.add("one", wanted("c"), 3) is Added.NEW
    assert await known.add("one", wanted("d"), 3) is Added.REFUSED


async def test_who_has_too_many_is_told_so(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CABLE_SUBSCRIPTIONS", 1)
    await world.connect("one")
    await world.subscribe("one", "a")
    await world.subscribe("one", "b")
    assert world.types("one") == ["confirm_subscription", "reject_subscription"]
    assert len(await world.items("LU")) == 2


async def test_who_is_gone_wishes_nothing_more(world: World, function: Function) -> None:
    await world.connect("one")
    await leave(world, "one")
    assert await function.broadcaster.connections.add("one", wanted("a"), 1) is Added.REFUSED
    assert await function.broadcaster.connections.add("nobody", wanted("a"), 1) is Added.REFUSED
    assert await world.items("LU") == []


# Going


async def test_who_is_gone_is_told_nothing_and_may_come_back(
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
    assert world.wires.counts["gone"] == 0
    assert await function.broadcaster.connections.recall("one", ADA) == [A]


async def test_in_the_end_nothing_is_left_of_a_connection(world: World) -> None:
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


async def test_who_has_come_back_is_forgotten_as_what_it_was(
    world: World, function: Function
) -> None:
    await world.connect("one", ADA)
    await world.subscribe("one", "a")
    await leave(world, "one")
    assert await function.broadcaster.connections.recall("one", ADA) == [A]
    world.clock.pass_s(world.settings.presence_ttl + 0.1)
    await sweep(world)
    assert await world.items("KUIL") == []


async def test_what_a_listener_does_not_get_is_the_end_of_its_connection(world: World) -> None:
    await world.create("a")
    for name in ("one", "two"):
        await world.connect(name)
        await world.subscribe(name, "a")
    del world.wires.sent["one"]
    await world.append("a", b"1")
    await world.dispatch()
    await world.append("a", b"2")
    await world.dispatch()
    assert world.messages("two") == [1, 2]
    assert world.wires.counts["gone"] == 1
    assert world.wires.ended == []


async def test_a_frame_of_which_nobody_knows_whether_it_arrived_ends_a_connection(
    world: World,
) -> None:
    await world.create("a")
    await world.connect("one")
    await world.subscribe("one", "a")
    world.wires.doubt = lambda frame: '"message":1' in frame
    await world.append("a", b"1", b"2")
    await world.dispatch()
    assert world.wires.ended == ["one"]
    assert await world.items("L") == []


# All of somebody


async def test_all_connections_of_somebody_are_closed_and_none_comes_back(
    world: World, function: Function
) -> None:
    await world.create("a")
    for name, who in {"one": ADA, "two": ADA, "three": ADA, "eve": '{"user":"eve"}'}.items():
        await world.connect(name, who)
        await world.subscribe(name, "a", presence={"id": who})
    await leave(world, "three")
    frames = {name: world.wires.sent[name] for name in ("one", "two")}
    await function.broadcaster.expel(ADA, reconnect=False)
    assert sorted(world.wires.ended) == ["one", "two"]
    for sent in frames.values():
        assert sent[-1] == '{"type":"disconnect","reason":"remote","reconnect":false}'
    for name in ("one", "two", "three"):
        assert await function.broadcaster.connections.recall(name, ADA) is None
    assert len(await world.items("KUILM")) == 5, "those of eve"
    assert world.heard("eve")[-1]["message"] == {"id": ADA, "type": "leave"}
    await world.append("a", b"1")
    await world.dispatch()
    assert world.messages("eve") == [1]


async def test_a_client_without_a_token_is_called_by_its_session(
    world: World, function: Function
) -> None:
    await world.connect("one")
    await function.broadcaster.expel('{"sid":"one"}', reconnect=True)
    assert world.wires.ended == ["one"]
    assert await world.items("KUILM") == []
