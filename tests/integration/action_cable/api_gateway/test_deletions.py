"""Subscribers are told once that their stream was deleted, after its last message."""

from __future__ import annotations

import pytest

from tailrace.errors import StoreUnavailable
from tailrace.protocols.action_cable.api_gateway.broadcaster import Broadcaster
from tailrace.protocols.action_cable.api_gateway.cursors import DeliveryCursors
from tests.integration.action_cable.api_gateway.hooks import once
from tests.integration.action_cable.api_gateway.world import World
from tests.support.cable import pubsub

DELETED = {"type": "deleted", "identifier": pubsub("a")}


async def subscribe(world: World, name: str, *, extended: bool = True) -> None:
    await world.connect(name, extended=extended)
    await world.subscribe(name, "a")


def story(world: World, name: str) -> list[object]:
    """Messages that a client got after its confirmation, and the types of other frames."""
    heard = [each.get("type", each.get("message")) for each in world.heard(name)]
    assert heard.pop(0) == "confirm_subscription"
    return heard


async def test_deletion_is_told_after_the_last_message(world: World) -> None:
    await world.create("a")
    await subscribe(world, "one")
    await subscribe(world, "two")
    await world.append("a", b"1", b"2")
    await world.delete("a")
    await world.dispatch(shuffled=True)
    for name in ("one", "two"):
        assert story(world, name) == [1, 2, "deleted"]
        assert world.heard(name)[-1] == DELETED


async def test_clients_of_the_plain_protocol_are_not_told(world: World) -> None:
    await world.create("a", b"1")
    await subscribe(world, "plain", extended=False)
    await world.append("a", b"2")
    await world.delete("a")
    await world.dispatch()
    assert story(world, "plain") == [2]


async def test_repeated_records_tell_nothing_twice(world: World) -> None:
    await world.create("a", b"1")
    await subscribe(world, "one")
    await world.delete("a")
    news = await world.news()
    records = [record for of_partition in news.values() for record in of_partition]
    for _ in range(2):
        await world.deliver(*records)
    assert story(world, "one") == ["deleted"]


async def test_each_incarnation_is_told_to_a_client_that_waited(world: World) -> None:
    await subscribe(world, "one")
    for number in (1, 2):
        await world.create("a", b"%d" % number)
        await world.dispatch(shuffled=True)
        await world.delete("a")
        await world.dispatch(shuffled=True)
    assert story(world, "one") == [1, "deleted", 2, "deleted"]


async def test_a_stream_without_messages_is_told(world: World) -> None:
    await subscribe(world, "one")
    await world.create("a")
    await world.dispatch()
    await world.delete("a")
    await world.dispatch()
    assert story(world, "one") == ["deleted"]


@pytest.mark.parametrize("names_first", [False, True])
async def test_the_end_of_a_stream_comes_before_the_next_one(
    world: World, names_first: bool
) -> None:
    """The records of the two are not ordered."""
    await world.create("a", b"1")
    await world.dispatch()
    await subscribe(world, "one")
    await world.append("a", b"2")
    await world.delete("a")
    await world.create("a", b"3")
    await world.append("a", b"4")
    news = await world.news()
    for partition in sorted(news, key=lambda each: (each[0] == "N") != names_first):
        await world.deliver(*news[partition])
    assert story(world, "one") == [2, "deleted", 3, 4]


async def test_a_failed_lookup_of_clients_is_repeated(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create("a", b"1")
    await subscribe(world, "one")
    await world.append("a", b"2")
    await world.delete("a")

    async def fail() -> None:
        raise StoreUnavailable("the table does not respond")

    once(monkeypatch, Broadcaster, "extended", before=fail)
    news = await world.news()
    records = [record for of_partition in news.values() for record in of_partition]
    assert await world.deliver(*records)
    assert story(world, "one") == []
    assert not await world.deliver(*records)
    assert story(world, "one") == [2, "deleted"]


async def test_deletion_during_a_subscribe_is_told_by_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create("a", b"1")

    async def delete() -> None:
        await world.delete("a")
        await world.dispatch()

    once(monkeypatch, DeliveryCursors, "join", before=delete)
    await subscribe(world, "one")
    await world.create("a", b"2")
    await world.dispatch()
    assert story(world, "one") == ["deleted", 2]


async def test_a_client_that_left_is_not_moved(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await subscribe(world, "one")
    await subscribe(world, "two")
    await world.create("a", b"1")

    async def leave() -> None:
        await world.say("one", "unsubscribe", pubsub("a"))

    once(monkeypatch, DeliveryCursors, "move", before=leave)
    await world.dispatch()
    assert story(world, "one") == []
    assert story(world, "two") == [1]
