"""One delivery at a time holds a lease: others wait, and recover the slots of one that died."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tailrace.errors import StoreUnavailable, StreamTooHot
from tailrace.protocols.action_cable.api_gateway import delivery
from tailrace.protocols.action_cable.api_gateway.broadcaster import Broadcaster
from tailrace.protocols.action_cable.api_gateway.cursors import DeliveryCursors
from tailrace.protocols.action_cable.api_gateway.delivery import (
    DELIVERY_LEASE_SECONDS,
    DeliveryBusy,
    TableStreamRecord,
)
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
    """Two subscribers of a stream with one message, which they have."""
    await world.create("a", b"0")
    await world.dispatch()
    for name in ("one", "two"):
        await world.connect(name)
        await world.subscribe(name, "a", history={"since": 1})
    return world


async def appended(world: World, *numbers: int) -> list[TableStreamRecord]:
    """Append numbers, and return their records."""
    await world.append("a", *(b"%d" % number for number in numbers))
    return [record for records in (await world.news()).values() for record in records]


async def is_leased(world: World) -> bool:
    async with world.function() as function:
        ((partition, _),) = await world.items("R")
        cursor = await function.broadcaster.cursors.get(int(partition[1:], 16))
    assert cursor is not None
    return cursor.lease_owner is not None


async def reconnected(world: World, name: str) -> list[Any]:
    """All messages of a client that reconnects with its position, as another connection."""
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


async def test_a_delivery_that_gets_no_lease_fails_and_is_repeated(
    pair: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "LEASE_CHECKS", 2)
    later: list[TableStreamRecord] = []

    async def another() -> None:
        later.extend(await appended(pair, 2))
        (failure,) = (await pair.deliver(*later)).values()
        assert isinstance(failure, DeliveryBusy)

    once(monkeypatch, Broadcaster, "send_all", before=another)
    assert await pair.deliver(*await appended(pair, 1)) == {}
    assert await pair.deliver(*later) == {}
    assert pair.messages("one") == pair.messages("two") == [0, 1, 2]


# Failing


async def test_a_failed_read_rolls_back_and_is_repeated(
    pair: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> None:
        # A client joins between lease and rollback: it reads the leased slots by itself.
        await pair.connect("three")
        await pair.subscribe("three", "a", history={"since": 1})
        raise StoreUnavailable("the bucket does not answer")

    once(monkeypatch, DynamoStore, "body", before=fail)
    records = await appended(pair, 1)
    (failure,) = (await pair.deliver(*records)).values()
    assert isinstance(failure, StoreUnavailable)
    assert not await is_leased(pair)
    assert pair.messages("one") == [0]
    assert await pair.deliver(*records) == {}
    for name in ("one", "two", "three"):
        assert pair.messages(name) == [0, 1]


async def test_the_next_delivery_after_a_crash_makes_subscribers_reconnect(
    pair: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    once(monkeypatch, Broadcaster, "send_all", before=die)
    await pair.deliver(*await appended(pair, 1))
    pair.clock.pass_s(DELIVERY_LEASE_SECONDS + 1)
    frames = {name: pair.gateway_api.sent[name] for name in ("one", "two")}
    assert await pair.deliver(*await appended(pair, 2)) == {}
    assert sorted(pair.gateway_api.ended) == ["one", "two"]
    pair.gateway_api.sent |= frames
    for name in ("one", "two"):
        assert pair.heard(name)[-1] == RESTART
        assert await reconnected(pair, name) == [0, 1, 2]
    assert await pair.deliver(*await appended(pair, 3)) == {}
    assert pair.messages("one-again") == [1, 2, 3]


async def test_the_repeated_record_after_a_crash_makes_subscribers_reconnect(
    pair: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be no other record for days."""
    once(monkeypatch, Broadcaster, "send_all", before=die)
    records = await appended(pair, 1)
    await pair.deliver(*records)
    pair.clock.pass_s(DELIVERY_LEASE_SECONDS + 1)
    frames = {name: pair.gateway_api.sent[name] for name in ("one", "two")}
    assert await pair.deliver(*records) == {}
    assert sorted(pair.gateway_api.ended) == ["one", "two"]
    pair.gateway_api.sent |= frames
    for name in ("one", "two"):
        assert pair.heard(name)[-1] == RESTART
        assert await reconnected(pair, name) == [0, 1]


async def test_until_the_lease_of_a_crashed_delivery_expires_its_record_fails(
    pair: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "LEASE_CHECKS", 2)
    once(monkeypatch, Broadcaster, "send_all", before=die)
    records = await appended(pair, 1)
    await pair.deliver(*records)
    (failure,) = (await pair.deliver(*records)).values()
    assert isinstance(failure, DeliveryBusy)


async def test_a_lease_is_recognised_after_a_lost_response(
    pair: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call is repeated; its condition fails, for the first attempt has succeeded."""
    monkeypatch.setattr(delivery, "LEASE_CHECKS", 2)
    claim = DeliveryCursors.acquire_lease

    async def unclear(*args: Any) -> bool:
        await claim(*args)
        return await claim(*args)

    monkeypatch.setattr(DeliveryCursors, "acquire_lease", unclear)
    assert await pair.deliver(*await appended(pair, 1)) == {}
    assert pair.messages("one") == pair.messages("two") == [0, 1]


async def test_a_lease_is_released_despite_concurrent_joins(
    pair: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    update_if, conflicts = Table.update_if, 3

    async def conflict(table: Table, key: Key, expression: str, *more: Any) -> bool:
        nonlocal conflicts
        if expression.startswith("REMOVE lease_owner") and conflicts:
            conflicts -= 1
            raise StreamTooHot("others are joining")
        return await update_if(table, key, expression, *more)

    monkeypatch.setattr(Table, "update_if", conflict)
    assert await pair.deliver(*await appended(pair, 1)) == {}
    assert conflicts == 0
    assert not await is_leased(pair)


async def test_a_broken_connection_does_not_affect_other_subscribers(pair: World) -> None:
    pair.gateway_api.broken.add("one")
    assert await pair.deliver(*await appended(pair, 1)) == {}
    assert not await is_leased(pair)
    assert pair.messages("two") == [0, 1]
    assert await pair.deliver(*await appended(pair, 2)) == {}
    assert pair.messages("two") == [0, 1, 2]
