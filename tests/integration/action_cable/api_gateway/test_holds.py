"""A room is held by one delivery at a time: others wait, and what a dead one held is not lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tailrace.errors import StoreUnavailable, StreamTooHot
from tailrace.protocols.action_cable.api_gateway import delivery
from tailrace.protocols.action_cable.api_gateway.broadcaster import Broadcaster
from tailrace.protocols.action_cable.api_gateway.cursors import Rooms
from tailrace.protocols.action_cable.api_gateway.delivery import HOLD_SECONDS, Record, RoomBusy
from tailrace.store.dynamodb.layout import Key
from tailrace.store.dynamodb.store import DynamoStore
from tailrace.store.dynamodb.table import Table
from tests.integration.action_cable.api_gateway.hooks import once
from tests.integration.action_cable.api_gateway.world import World

RESTART = {"type": "disconnect", "reason": "server_restart", "reconnect": True}


class Died(Exception):
    """A function was ended."""


async def die() -> None:
    raise Died


@pytest.fixture
async def pair(world: World) -> World:
    """Two listen to a stream with one message, which they have."""
    await world.create("a", b"0")
    await world.dispatch()
    for name in ("one", "two"):
        await world.connect(name)
        await world.subscribe(name, "a", history={"since": 1})
    return world


async def appended(world: World, *numbers: int) -> list[Record]:
    """The records of it."""
    await world.append("a", *(b"%d" % number for number in numbers))
    return [record for records in (await world.news()).values() for record in records]


async def held(world: World) -> bool:
    async with world.function() as function:
        ((partition, _),) = await world.items("R")
        room = await function.broadcaster.rooms.get(int(partition[1:], 16))
    assert room is not None
    return room.by is not None


async def come_back(world: World, name: str) -> list[Any]:
    """What a client hears altogether that comes back with its place, under another name."""
    before = world.heard(name)
    (*_, last) = (each for each in before if "stream_id" in each)
    place = {"a": {"epoch": last["epoch"], "offset": last["offset"]}}
    await world.connect(f"{name}-again")
    await world.subscribe(f"{name}-again", "a", history={"streams": place})
    return world.messages(name) + world.messages(f"{name}-again")


# Waiting


async def test_a_delivery_waits_for_another_one(
    pair: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    others: list[asyncio.Task[dict[str, Exception]]] = []

    async def another() -> None:
        records = await appended(pair, 2)
        others.append(asyncio.create_task(pair.deliver(*records)))
        await asyncio.sleep(0.3)
        assert not others[0].done()
        assert pair.messages("one") == [0]

    once(monkeypatch, Broadcaster, "send_all", before=another)
    assert await pair.deliver(*await appended(pair, 1)) == {}
    assert await others[0] == {}
    assert pair.messages("one") == pair.messages("two") == [0, 1, 2]


async def test_a_delivery_that_waited_in_vain_fails_and_comes_again(
    pair: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "PATIENCE", 2)
    later: list[Record] = []

    async def another() -> None:
        later.extend(await appended(pair, 2))
        (failure,) = (await pair.deliver(*later)).values()
        assert isinstance(failure, RoomBusy)

    once(monkeypatch, Broadcaster, "send_all", before=another)
    assert await pair.deliver(*await appended(pair, 1)) == {}
    assert await pair.deliver(*later) == {}
    assert pair.messages("one") == pair.messages("two") == [0, 1, 2]


# Failing


async def test_what_could_not_be_read_is_delivered_when_it_comes_again(
    pair: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> None:
        # Somebody comes between the claim and its return: it has read what was claimed.
        await pair.connect("three")
        await pair.subscribe("three", "a", history={"since": 1})
        raise StoreUnavailable("the bucket does not answer")

    once(monkeypatch, DynamoStore, "body", before=fail)
    records = await appended(pair, 1)
    (failure,) = (await pair.deliver(*records)).values()
    assert isinstance(failure, StoreUnavailable)
    assert not await held(pair)
    assert pair.messages("one") == [0]
    assert await pair.deliver(*records) == {}
    for name in ("one", "two", "three"):
        assert pair.messages(name) == [0, 1]


async def test_after_a_delivery_that_died_the_next_one_has_all_come_back(
    pair: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    once(monkeypatch, Broadcaster, "send_all", before=die)
    await pair.deliver(*await appended(pair, 1))
    pair.clock.pass_s(HOLD_SECONDS + 1)
    frames = {name: pair.wires.sent[name] for name in ("one", "two")}
    assert await pair.deliver(*await appended(pair, 2)) == {}
    assert sorted(pair.wires.ended) == ["one", "two"]
    pair.wires.sent |= frames
    for name in ("one", "two"):
        assert pair.heard(name)[-1] == RESTART
        assert await come_back(pair, name) == [0, 1, 2]
    assert await pair.deliver(*await appended(pair, 3)) == {}
    assert pair.messages("one-again") == [1, 2, 3]


async def test_after_a_delivery_that_died_its_own_record_has_all_come_back(
    pair: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be no other for days."""
    once(monkeypatch, Broadcaster, "send_all", before=die)
    records = await appended(pair, 1)
    await pair.deliver(*records)
    pair.clock.pass_s(HOLD_SECONDS + 1)
    frames = {name: pair.wires.sent[name] for name in ("one", "two")}
    assert await pair.deliver(*records) == {}
    assert sorted(pair.wires.ended) == ["one", "two"]
    pair.wires.sent |= frames
    for name in ("one", "two"):
        assert pair.heard(name)[-1] == RESTART
        assert await come_back(pair, name) == [0, 1]


async def test_until_it_is_certain_that_a_delivery_died_its_record_comes_again(
    pair: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "PATIENCE", 2)
    once(monkeypatch, Broadcaster, "send_all", before=die)
    records = await appended(pair, 1)
    await pair.deliver(*records)
    (failure,) = (await pair.deliver(*records)).values()
    assert isinstance(failure, RoomBusy)


async def test_a_claim_whose_answer_got_lost_is_recognised(
    pair: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call is repeated, and finds that it was carried out: its condition no longer holds."""
    monkeypatch.setattr(delivery, "PATIENCE", 2)
    claim = Rooms.claim

    async def unclear(*args: Any) -> bool:
        await claim(*args)
        return await claim(*args)

    monkeypatch.setattr(Rooms, "claim", unclear)
    assert await pair.deliver(*await appended(pair, 1)) == {}
    assert pair.messages("one") == pair.messages("two") == [0, 1]


async def test_a_room_is_given_back_although_many_join_just_then(
    pair: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    update_if, conflicts = Table.update_if, 3

    async def conflict(table: Table, key: Key, expression: str, *more: Any) -> bool:
        nonlocal conflicts
        if expression.startswith("REMOVE t") and conflicts:
            conflicts -= 1
            raise StreamTooHot("others are joining")
        return await update_if(table, key, expression, *more)

    monkeypatch.setattr(Table, "update_if", conflict)
    assert await pair.deliver(*await appended(pair, 1)) == {}
    assert conflicts == 0
    assert not await held(pair)


async def test_a_client_that_cannot_be_sent_to_concerns_nobody_else(pair: World) -> None:
    pair.wires.broken.add("one")
    assert await pair.deliver(*await appended(pair, 1)) == {}
    assert not await held(pair)
    assert pair.messages("two") == [0, 1]
    assert await pair.deliver(*await appended(pair, 2)) == {}
    assert pair.messages("two") == [0, 1, 2]
