"""Functions that interfere at the worst moment: each client gets every message once.

Each test holds one function at a certain step, and lets others do their work meanwhile.
"""

from __future__ import annotations

import asyncio

import pytest

from tailrace.protocols.action_cable.api_gateway.cursors import DeliveryCursors
from tailrace.protocols.action_cable.api_gateway.delivery import Deliveries
from tailrace.store.dynamodb.table import Table
from tests.integration.action_cable.api_gateway.hooks import Step, once
from tests.integration.action_cable.api_gateway.world import World

ALL = {"since": 1}
"""MissedMessages that reaches back to the beginning."""


def publish(world: World, *numbers: int) -> Step:
    """A step that appends numbers and delivers them."""

    async def step() -> None:
        await world.append("a", *(b"%d" % number for number in numbers))
        await world.dispatch()

    return step


async def subscribe(world: World, name: str, **more: object) -> None:
    await world.connect(name)
    await world.subscribe(name, "a", **more)


# Joining


async def test_slots_delivered_just_before_a_join_are_read_by_the_client(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create("a")
    await subscribe(world, "one")
    once(monkeypatch, DeliveryCursors, "join", before=publish(world, 1))
    await subscribe(world, "two")
    assert world.messages("one") == world.messages("two") == [1]
    await publish(world, 2)()
    assert world.messages("one") == world.messages("two") == [1, 2]


async def test_slots_delivered_just_before_a_join_with_history(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create("a", b"[1,2]")
    await subscribe(world, "one")
    once(monkeypatch, DeliveryCursors, "join", before=publish(world, 3, 4))
    await subscribe(world, "two", history=ALL)
    await publish(world, 5)()
    assert world.messages("one") == [3, 4, 5]
    assert world.messages("two") == [1, 2, 3, 4, 5]


async def test_join_just_before_a_lease_is_among_its_subscribers(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create("a")
    await subscribe(world, "one")
    claiming, joined = asyncio.Event(), asyncio.Event()
    deliveries: list[asyncio.Task[None]] = []

    async def begin_delivery() -> None:
        deliveries.append(asyncio.create_task(publish(world, 1)()))
        await claiming.wait()

    async def go_on() -> None:
        joined.set()

    async def wait_for_client() -> None:
        claiming.set()
        await joined.wait()

    once(monkeypatch, DeliveryCursors, "join", before=begin_delivery, after=go_on)
    once(monkeypatch, DeliveryCursors, "acquire_lease", before=wait_for_client)
    await subscribe(world, "two")
    await asyncio.gather(*deliveries)
    assert world.messages("one") == world.messages("two") == [1]


async def test_join_during_delivery_reads_the_leased_slots_itself(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create("a")
    await subscribe(world, "one")
    once(
        monkeypatch,
        DeliveryCursors,
        "acquire_lease",
        after=lambda: subscribe(world, "two", history=ALL),
    )
    await publish(world, 1)()
    assert world.messages("one") == world.messages("two") == [1]
    await publish(world, 2)()
    assert world.messages("one") == world.messages("two") == [1, 2]


async def test_slots_appended_before_the_cursor_exists_are_read_by_the_client(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record finds no cursor, and is delivered to no client."""
    await world.create("a")
    once(monkeypatch, DeliveryCursors, "create_if_absent", before=publish(world, 1))
    await subscribe(world, "one")
    assert world.messages("one") == [1]
    await publish(world, 2)()
    assert world.messages("one") == [1, 2]


async def test_concurrent_joins_create_one_cursor(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create("a")

    async def another() -> None:
        await world.append("a", b"1")
        await subscribe(world, "two")
        await world.dispatch()

    once(monkeypatch, DeliveryCursors, "create_if_absent", before=another)
    await subscribe(world, "one")
    await publish(world, 2)()
    assert world.messages("one") == [1, 2]
    assert world.messages("two") == [2]
    assert len(await world.items("R")) == 1


# Streams that come and go


async def test_a_stream_created_while_a_client_starts_to_wait_is_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def create() -> None:
        await world.create("a", b"1")
        await world.dispatch()

    once(monkeypatch, DeliveryCursors, "join_absent", before=create)
    await subscribe(world, "one")
    assert world.messages("one") == [1]
    await publish(world, 2)()
    assert world.messages("one") == [1, 2]


async def test_a_stream_recreated_before_a_join_is_delivered_from_the_start(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.create("a", b"1")

    async def again() -> None:
        await world.delete("a")
        await world.create("a", b"2")
        await world.dispatch()

    once(monkeypatch, DeliveryCursors, "join", before=again)
    await subscribe(world, "one")
    await publish(world, 3)()
    assert world.messages("one") == [2, 3]


async def test_join_of_a_former_incarnation_makes_the_client_reconnect(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The creation of the new stream is delivered before the join, the end of the old one later."""
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
    once(monkeypatch, DeliveryCursors, "join", before=again)
    await subscribe(world, "one")
    assert world.gateway_api.ended == ["one"]
    await world.deliver(*late)  # type: ignore[arg-type]
    await subscribe(world, "two", history=ALL)
    await publish(world, 3)()
    assert world.messages("two") == [2, 3]


async def test_a_stream_deleted_before_a_join_is_waited_for(
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
    assert world.messages("one") == [2]
    assert len(await world.items("R")) == 1


# A name and its chain, each in its own batch


@pytest.mark.parametrize("step", ["joined_subscribers", "create_if_absent", "deliver"])
async def test_records_of_a_name_and_its_entries_are_handled_concurrently(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    await subscribe(world, "one")
    await world.create("a", b"[1,2]")
    await world.append("a", b"3")
    news = await world.news()
    (chain,) = (each for each in news if each.startswith("C"))
    (name,) = (each for each in news if each.startswith("N"))

    async def entries() -> None:
        assert await world.deliver(*news[chain]) == {}

    owner = Deliveries if step == "deliver" else DeliveryCursors
    once(monkeypatch, owner, step, before=entries)
    assert await world.deliver(*news[name]) == {}
    assert world.messages("one") == [1, 2, 3]


async def test_the_tail_read_for_a_new_name_may_be_outdated(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await subscribe(world, "one")
    await world.create("a", b"1")
    once(monkeypatch, Table, "last", after=publish(world, 2))
    await world.dispatch()
    await world.dispatch()
    assert world.messages("one") == [1, 2]
