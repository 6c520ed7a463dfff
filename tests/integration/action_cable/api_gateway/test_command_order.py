"""Commands of one client that are handled concurrently, or in another order than sent."""

from __future__ import annotations

import asyncio

import pytest

from tailrace.protocols.action_cable.api_gateway.command_handler import CommandHandler
from tailrace.protocols.action_cable.api_gateway.connections import Connections
from tailrace.protocols.action_cable.api_gateway.cursors import DeliveryCursors
from tests.integration.action_cable.api_gateway.hooks import once
from tests.integration.action_cable.api_gateway.world import World
from tests.support.cable import pubsub

A = pubsub("a")


@pytest.fixture
async def client(world: World) -> World:
    """One client, called one, that has subscribed to the stream `a`."""
    await world.create("a")
    await world.connect("one")
    await world.subscribe("one", "a", at=1000)
    return world


async def received_after(world: World, *numbers: int) -> list[int]:
    """Append numbers, and return all that the client has got."""
    await world.append("a", *(b"%d" % number for number in numbers))
    await world.dispatch()
    return world.messages("one")


async def test_unsubscribe_stops_delivery(client: World) -> None:
    await client.say("one", "unsubscribe", A, at=2000)
    assert await received_after(client, 1) == []
    await client.subscribe("one", "a", at=3000)
    assert await received_after(client, 2) == [2]


async def test_an_unsubscribe_older_than_the_subscription_is_ignored(
    client: World,
) -> None:
    await client.say("one", "unsubscribe", A, at=500)
    assert await received_after(client, 1) == [1]


async def test_a_late_unsubscribe_does_not_undo_a_newer_subscribe(
    client: World,
) -> None:
    await client.subscribe("one", "a", at=3000)
    await client.say("one", "unsubscribe", A, at=2000)
    assert await received_after(client, 1) == [1]
    assert client.types("one")[:2] == ["confirm_subscription"] * 2


async def test_subscribe_wins_over_unsubscribe_of_the_same_millisecond(client: World) -> None:
    """Pages send both when they replace an element by another one for the same stream."""
    await client.subscribe("one", "a", at=2000)
    await client.say("one", "unsubscribe", A, at=2000)
    assert await received_after(client, 1) == [1]


@pytest.mark.parametrize(
    ("owner", "step"),
    [(Connections, "subscribe"), (DeliveryCursors, "subscribe"), (DeliveryCursors, "join")],
)
async def test_an_older_unsubscribe_during_a_subscribe_is_harmless(
    client: World, monkeypatch: pytest.MonkeyPatch, owner: type, step: str
) -> None:
    """Both are sent at once; the older one is handled in the middle of the newer."""

    async def unsubscribe() -> None:
        await client.say("one", "unsubscribe", A, at=2000)

    once(monkeypatch, owner, step, before=unsubscribe)
    await client.subscribe("one", "a", at=3000)
    assert await received_after(client, 1) == [1]


@pytest.mark.parametrize("step", ["subscription", "unsubscribe"])
async def test_a_newer_subscribe_during_an_unsubscribe_wins(
    client: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    async def subscribe() -> None:
        await client.subscribe("one", "a", at=3000)

    once(monkeypatch, Connections, step, before=subscribe)
    await client.say("one", "unsubscribe", A, at=2000)
    assert await received_after(client, 1) == [1]


@pytest.mark.parametrize("step", ["ensure", "join"])
async def test_a_newer_unsubscribe_during_a_subscribe_wins(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    await world.create("a")
    await world.connect("one")

    async def unsubscribe() -> None:
        await world.say("one", "unsubscribe", A, at=2000)

    once(monkeypatch, DeliveryCursors, step, before=unsubscribe)
    await world.subscribe("one", "a", at=1000)
    assert await received_after(world, 1) == []
    assert await world.items("LU") == []


async def test_the_newest_of_three_concurrent_commands_wins(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create("a")
    await world.connect("one")

    async def both() -> None:
        await world.say("one", "unsubscribe", A, at=2000)
        await world.subscribe("one", "a", at=3000)

    once(monkeypatch, DeliveryCursors, "join", before=both)
    await world.subscribe("one", "a", at=1000)
    assert await received_after(world, 1) == [1]


async def test_two_concurrent_subscribes_deliver_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients repeat a subscribe that is not confirmed within half a second."""
    await world.create("a")
    await world.connect("one")

    async def again() -> None:
        await world.subscribe("one", "a", at=1500)
        await received_after(world, 1)

    once(monkeypatch, CommandHandler, "_catch_up", before=again)
    await world.subscribe("one", "a", at=1000)
    assert world.messages("one") == [1]
    assert await received_after(world, 2) == [1, 2]


async def test_concurrent_subscribes_are_one_subscription(world: World) -> None:
    await world.create("a")
    await world.connect("one")
    await asyncio.gather(*(world.subscribe("one", "a", at=1000 + i) for i in range(5)))
    assert await received_after(world, 1, 2, 3) == [1, 2, 3]
    assert len(await world.items("L")) == 1
    assert world.types("one").count("confirm_subscription") == 5


async def test_an_ignored_unsubscribe_does_not_leave_presence(client: World) -> None:
    await client.say("one", "join", A, presence={"id": "ada"}, at=1500)
    await client.say("one", "unsubscribe", A, at=500)
    assert client.types("one") == ["confirm_subscription", "presence"]
    assert len(await client.items("M")) == 1


async def test_unsubscribe_leaves_presence(client: World) -> None:
    await client.connect("two")
    await client.subscribe("two", "a")
    await client.say("one", "join", A, presence={"id": "ada"}, at=1500)
    await client.say("one", "unsubscribe", A, at=2000)
    assert [each["message"] for each in client.heard("two")[1:]] == [
        {"id": "ada", "info": None, "type": "join"},
        {"id": "ada", "type": "leave"},
    ]
    assert await client.items("M") == []


async def test_join_during_deletion_of_its_connection_leaves_no_items(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create("a")
    await world.connect("one")
    await world.connect("two")
    await world.subscribe("two", "a")
    forgetting, joined = asyncio.Event(), asyncio.Event()
    disconnecting: list[asyncio.Task[None]] = []

    async def disconnect() -> None:
        async with world.function() as function:
            await function.broadcaster.disconnect_identity('{"sid":"one"}', reconnect=False)

    async def begin() -> None:
        disconnecting.append(asyncio.create_task(disconnect()))
        await forgetting.wait()

    async def end() -> None:
        joined.set()
        await asyncio.gather(*disconnecting)

    async def wait_for_join() -> None:
        forgetting.set()
        await joined.wait()

    async def arm() -> None:
        once(monkeypatch, Connections, "stop_delivery", after=wait_for_join)

    once(monkeypatch, Connections, "delete", before=arm)
    once(monkeypatch, DeliveryCursors, "join", before=begin, after=end)
    await world.subscribe("one", "a")
    await world.append("a", b"1")
    await world.dispatch()
    assert world.messages("two") == [1]
    assert [key for key in await world.items("KUIL") if "one" in "".join(key)] == []
