"""What a client says may be carried out at the same time, and in another order than it said it."""

from __future__ import annotations

import asyncio

import pytest

from tailrace.protocols.action_cable.api_gateway.connections import Connections
from tailrace.protocols.action_cable.api_gateway.conversation import Conversation
from tailrace.protocols.action_cable.api_gateway.cursors import Rooms
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


async def hears(world: World, *numbers: int) -> list[int]:
    """What the client has heard, when some more was told."""
    await world.append("a", *(b"%d" % number for number in numbers))
    await world.dispatch()
    return world.messages("one")


async def test_unsubscribing_ends_it(client: World) -> None:
    await client.say("one", "unsubscribe", A, at=2000)
    assert await hears(client, 1) == []
    await client.subscribe("one", "a", at=3000)
    assert await hears(client, 2) == [2]


async def test_an_unsubscribe_that_is_older_than_the_subscription_is_not_heeded(
    client: World,
) -> None:
    await client.say("one", "unsubscribe", A, at=500)
    assert await hears(client, 1) == [1]


async def test_a_subscribe_is_not_undone_by_the_unsubscribe_that_it_overtook(
    client: World,
) -> None:
    await client.subscribe("one", "a", at=3000)
    await client.say("one", "unsubscribe", A, at=2000)
    assert await hears(client, 1) == [1]
    assert client.types("one")[:2] == ["confirm_subscription"] * 2


async def test_of_what_is_said_in_one_millisecond_the_subscribe_counts(client: World) -> None:
    """As pages do that replace an element by another one for the same stream."""
    await client.subscribe("one", "a", at=2000)
    await client.say("one", "unsubscribe", A, at=2000)
    assert await hears(client, 1) == [1]


@pytest.mark.parametrize("step", ["add", "hold", "join"])
async def test_who_unsubscribed_before_it_subscribes_again_is_told_what_is_new(
    client: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Both are said at once; the older one is carried out in the middle of the newer."""

    async def unsubscribe() -> None:
        await client.say("one", "unsubscribe", A, at=2000)

    once(monkeypatch, Connections if step == "add" else Rooms, step, before=unsubscribe)
    await client.subscribe("one", "a", at=3000)
    assert await hears(client, 1) == [1]


@pytest.mark.parametrize("step", ["subscription", "remove"])
async def test_who_subscribes_while_it_unsubscribes_is_told_what_is_new(
    client: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    async def subscribe() -> None:
        await client.subscribe("one", "a", at=3000)

    once(monkeypatch, Connections, step, before=subscribe)
    await client.say("one", "unsubscribe", A, at=2000)
    assert await hears(client, 1) == [1]


@pytest.mark.parametrize("step", ["enter", "join"])
async def test_who_unsubscribes_while_it_subscribes_is_told_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    await world.create("a")
    await world.connect("one")

    async def unsubscribe() -> None:
        await world.say("one", "unsubscribe", A, at=2000)

    once(monkeypatch, Rooms, step, before=unsubscribe)
    await world.subscribe("one", "a", at=1000)
    assert await hears(world, 1) == []
    assert await world.items("LU") == []


async def test_who_unsubscribes_and_subscribes_while_it_subscribes_is_told_what_is_new(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create("a")
    await world.connect("one")

    async def both() -> None:
        await world.say("one", "unsubscribe", A, at=2000)
        await world.subscribe("one", "a", at=3000)

    once(monkeypatch, Rooms, "join", before=both)
    await world.subscribe("one", "a", at=1000)
    assert await hears(world, 1) == [1]


async def test_who_subscribes_twice_at_once_is_told_everything_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As clients do that were not answered for half a second."""
    await world.create("a")
    await world.connect("one")

    async def again() -> None:
        await world.subscribe("one", "a", at=1500)
        await hears(world, 1)

    once(monkeypatch, Conversation, "_catch_up", before=again)
    await world.subscribe("one", "a", at=1000)
    assert world.messages("one") == [1]
    assert await hears(world, 2) == [1, 2]


async def test_many_subscribes_at_once_are_one_subscription(world: World) -> None:
    await world.create("a")
    await world.connect("one")
    await asyncio.gather(*(world.subscribe("one", "a", at=1000 + i) for i in range(5)))
    assert await hears(world, 1, 2, 3) == [1, 2, 3]
    assert len(await world.items("L")) == 1
    assert world.types("one").count("confirm_subscription") == 5


async def test_an_unsubscribe_that_is_not_heeded_does_not_leave(client: World) -> None:
    await client.say("one", "join", A, presence={"id": "ada"}, at=1500)
    await client.say("one", "unsubscribe", A, at=500)
    assert client.types("one") == ["confirm_subscription", "presence"]
    assert len(await client.items("M")) == 1


async def test_unsubscribing_leaves(client: World) -> None:
    await client.connect("two")
    await client.subscribe("two", "a")
    await client.say("one", "join", A, presence={"id": "ada"}, at=1500)
    await client.say("one", "unsubscribe", A, at=2000)
    assert [each["message"] for each in client.heard("two")[1:]] == [
        {"id": "ada", "info": None, "type": "join"},
        {"id": "ada", "type": "leave"},
    ]
    assert await client.items("M") == []


async def test_nothing_is_left_of_who_joins_while_it_is_forgotten(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create("a")
    await world.connect("one")
    await world.connect("two")
    await world.subscribe("two", "a")
    forgetting, joined = asyncio.Event(), asyncio.Event()
    expelled: list[asyncio.Task[None]] = []

    async def expel() -> None:
        async with world.function() as function:
            await function.broadcaster.expel('{"sid":"one"}', reconnect=False)

    async def begin() -> None:
        expelled.append(asyncio.create_task(expel()))
        await forgetting.wait()

    async def end() -> None:
        joined.set()
        await asyncio.gather(*expelled)

    async def wait_for_join() -> None:
        forgetting.set()
        await joined.wait()

    async def arm() -> None:
        once(monkeypatch, Connections, "mute", after=wait_for_join)

    once(monkeypatch, Connections, "forget", before=arm)
    once(monkeypatch, Rooms, "join", before=begin, after=end)
    await world.subscribe("one", "a")
    await world.append("a", b"1")
    await world.dispatch()
    assert world.messages("two") == [1]
    assert [key for key in await world.items("KUIL") if "one" in "".join(key)] == []
