"""Functions that get in each other's way at the worst moment: each client hears all, once.

Each test holds one function at a certain step, and lets others do their work meanwhile.
"""

from __future__ import annotations

import asyncio

import pytest

from tailrace.protocols.action_cable.api_gateway.cursors import Rooms
from tailrace.protocols.action_cable.api_gateway.delivery import Deliveries
from tailrace.store.dynamodb.table import Table
from tests.integration.action_cable.api_gateway.hooks import Step, once
from tests.integration.action_cable.api_gateway.world import World

ALL = {"since": 1}
"""History that reaches back to the beginning."""


def told(world: World, *numbers: int) -> Step:
    """They are appended, and delivered to those who listen."""

    async def step() -> None:
        await world.append("a", *(b"%d" % number for number in numbers))
        await world.dispatch()

    return step


async def enter(world: World, name: str, **more: object) -> None:
    await world.connect(name)
    await world.subscribe(name, "a", **more)


# Joining


async def test_what_is_delivered_just_before_a_client_joins_it_reads_by_itself(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create("a")
    await enter(world, "one")
    once(monkeypatch, Rooms, "join", before=told(world, 1))
    await enter(world, "two")
    assert world.messages("one") == world.messages("two") == [1]
    await told(world, 2)()
    assert world.messages("one") == world.messages("two") == [1, 2]


async def test_the_same_with_history(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.create("a", b"[1,2]")
    await enter(world, "one")
    once(monkeypatch, Rooms, "join", before=told(world, 3, 4))
    await enter(world, "two", history=ALL)
    await told(world, 5)()
    assert world.messages("one") == [3, 4, 5]
    assert world.messages("two") == [1, 2, 3, 4, 5]


async def test_who_joins_just_before_a_delivery_claims_is_among_its_listeners(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create("a")
    await enter(world, "one")
    claiming, joined = asyncio.Event(), asyncio.Event()
    deliveries: list[asyncio.Task[None]] = []

    async def begin_delivery() -> None:
        deliveries.append(asyncio.create_task(told(world, 1)()))
        await claiming.wait()

    async def go_on() -> None:
        joined.set()

    async def wait_for_client() -> None:
        claiming.set()
        await joined.wait()

    once(monkeypatch, Rooms, "join", before=begin_delivery, after=go_on)
    once(monkeypatch, Rooms, "claim", before=wait_for_client)
    await enter(world, "two")
    await asyncio.gather(*deliveries)
    assert world.messages("one") == world.messages("two") == [1]


async def test_who_joins_between_a_claim_and_the_listeners_has_read_what_was_claimed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create("a")
    await enter(world, "one")
    once(monkeypatch, Rooms, "claim", after=lambda: enter(world, "two", history=ALL))
    await told(world, 1)()
    assert world.messages("one") == world.messages("two") == [1]
    await told(world, 2)()
    assert world.messages("one") == world.messages("two") == [1, 2]


async def test_what_is_appended_before_there_is_a_room_is_read_after_there_is_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record finds no room, and is not delivered to anybody."""
    await world.create("a")
    once(monkeypatch, Rooms, "ensure", before=told(world, 1))
    await enter(world, "one")
    assert world.messages("one") == [1]
    await told(world, 2)()
    assert world.messages("one") == [1, 2]


async def test_two_who_enter_at_once_make_one_room(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create("a")

    async def another() -> None:
        await world.append("a", b"1")
        await enter(world, "two")
        await world.dispatch()

    once(monkeypatch, Rooms, "ensure", before=another)
    await enter(world, "one")
    await told(world, 2)()
    assert world.messages("one") == [1, 2]
    assert world.messages("two") == [2]
    assert len(await world.items("R")) == 1


# Streams that come and go


async def test_a_stream_that_comes_while_a_client_makes_ready_to_wait_is_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def create() -> None:
        await world.create("a", b"1")
        await world.dispatch()

    once(monkeypatch, Rooms, "wait", before=create)
    await enter(world, "one")
    assert world.messages("one") == [1]
    await told(world, 2)()
    assert world.messages("one") == [1, 2]


async def test_a_stream_that_is_made_again_before_a_client_joins_is_heard_whole(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create("a", b"1")

    async def again() -> None:
        await world.delete("a")
        await world.create("a", b"2")
        await world.dispatch()

    once(monkeypatch, Rooms, "join", before=again)
    await enter(world, "one")
    await told(world, 3)()
    assert world.messages("one") == [2, 3]


async def test_who_joins_a_room_of_the_past_comes_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its new stream was told of before it listened; the end of its old one is told later."""
    await world.create("a", b"1")
    await world.dispatch()

    async def again() -> None:
        await world.delete("a")
        await world.create("a", b"2")
        news = await world.news()
        for partition in sorted(news, key=lambda each: each[0] != "N"):
            if partition.startswith("N"):
                await world.deliver(*news[partition])
            else:
                late.extend(news[partition])

    late: list[object] = []
    once(monkeypatch, Rooms, "join", before=again)
    await enter(world, "one")
    assert world.wires.ended == ["one"]
    await world.deliver(*late)  # type: ignore[arg-type]
    await enter(world, "two", history=ALL)
    await told(world, 3)()
    assert world.messages("two") == [2, 3]


async def test_a_stream_that_goes_before_a_client_joins_is_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create("a", b"1")

    async def delete() -> None:
        await world.delete("a")
        await world.dispatch()

    once(monkeypatch, Rooms, "join", before=delete)
    await enter(world, "one")
    await world.create("a", b"2")
    await world.dispatch()
    assert world.messages("one") == [2]
    assert len(await world.items("R")) == 1


# A name and its chain, each in its own batch


@pytest.mark.parametrize("step", ["listeners", "ensure", "appended"])
async def test_a_name_and_its_entries_are_told_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    await enter(world, "one")
    await world.create("a", b"[1,2]")
    await world.append("a", b"3")
    news = await world.news()
    (chain,) = (each for each in news if each.startswith("C"))
    (name,) = (each for each in news if each.startswith("N"))

    async def entries() -> None:
        assert await world.deliver(*news[chain]) == {}

    owner = Deliveries if step == "appended" else Rooms
    once(monkeypatch, owner, step, before=entries)
    assert await world.deliver(*news[name]) == {}
    assert world.messages("one") == [1, 2, 3]


async def test_the_tail_that_a_new_name_is_told_with_may_be_outdated(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await enter(world, "one")
    await world.create("a", b"1")
    once(monkeypatch, Table, "last", after=told(world, 2))
    await world.dispatch()
    await world.dispatch()
    assert world.messages("one") == [1, 2]
