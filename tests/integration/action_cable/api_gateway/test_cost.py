"""The cost of cables: the exact calls to DynamoDB, and the capacity that they consume.

The observed number stands beside each bound.
"""

from __future__ import annotations

import json
from collections import Counter

import pytest

from devtools.dynamodb_simulator.values import validate_item
from tailrace.auth.signed_names import sign
from tailrace.aws.costs import (
    CONNECTION_BYTES,
    DELIVERY_WRITES,
    DISPATCH_READS,
    IDLE_MINUTE_READS,
    ROUND_READS,
    ROUND_WRITES,
    SUBSCRIBER_BYTES,
)
from tailrace.protocols.action_cable.api_gateway.items import (
    ConnectionRecord,
    SubscriberRecord,
    connection_item,
    subscriber_item,
)
from tailrace.protocols.action_cable.core.channels import Subscription
from tailrace.store.dynamodb.layout import number, text
from tests.integration.action_cable.api_gateway.world import World
from tests.support.cable import SECRET, pubsub


def spent(world: World) -> tuple[Counter[str], float, float]:
    """Calls, write units and read units since the last call of this function."""
    calls = Counter(call.operation for call in world.calls)
    written = sum(call.write_units for call in world.calls)
    read = sum(call.read_units for call in world.calls)
    world.calls.clear()
    return calls, written, read


@pytest.fixture
async def crowd(world: World) -> World:
    """Ten subscribers of a stream with one message."""
    await world.create("a", b"1")
    await world.dispatch()
    for i in range(10):
        await world.connect(f"client{i}")
        await world.subscribe(f"client{i}", "a")
    spent(world)
    return world


async def test_connecting(world: World) -> None:
    spent(world)
    await world.connect("one")
    assert spent(world) == ({"PutItem": 2}, 3, 0)
    await world.connect("two", '{"user":1}', expires_at=world.clock() + 1000)
    assert spent(world) == ({"PutItem": 2}, 3, 0), "when its token ends costs nothing"


async def test_subscribing_to_a_stream_with_subscribers(crowd: World) -> None:
    await crowd.connect("one")
    spent(crowd)
    await crowd.subscribe("one", "a")
    assert spent(crowd) == (
        {"GetItem": 5, "Query": 4, "PutItem": 2, "UpdateItem": 2},
        4,
        9,
    )


async def test_an_append_without_subscribers(world: World) -> None:
    """docs/deploying.md says what a million of them cost."""
    await world.create("a", b"1")
    await world.append("a", b"2")
    await world.dispatch()
    await world.append("a", b"3")
    spent(world)
    await world.dispatch()
    assert spent(world) == ({"GetItem": 1}, 0, DISPATCH_READS)


async def test_subscribing_first(world: World) -> None:
    await world.create("a", b"1")
    await world.connect("one")
    spent(world)
    await world.subscribe("one", "a")
    assert spent(world) == (
        {"GetItem": 6, "Query": 5, "PutItem": 3, "UpdateItem": 2},
        5,
        11,
    )


async def test_a_small_message_to_ten(crowd: World) -> None:
    await crowd.append("a", b"2")
    records = [record for some in (await crowd.news()).values() for record in some]
    spent(crowd)
    assert await crowd.deliver(*records) == {}
    assert spent(crowd) == ({"GetItem": 1, "Query": 1, "UpdateItem": 2}, DELIVERY_WRITES, 2)
    assert crowd.gateway_api.counts["posts"] == 20


async def test_a_batch_of_messages_to_ten(crowd: World) -> None:
    await crowd.append("a", *(b"%d" % i for i in range(20)))
    records = [record for some in (await crowd.news()).values() for record in some]
    spent(crowd)
    assert await crowd.deliver(*records) == {}
    assert spent(crowd) == ({"GetItem": 1, "Query": 1, "UpdateItem": 2}, 2, 2)


async def test_a_message_without_subscribers(world: World) -> None:
    await world.create("a", b"1")
    await world.append("a", b"2")
    records = [record for some in (await world.news()).values() for record in some]
    spent(world)
    assert await world.deliver(*records) == {}
    assert spent(world) == ({"GetItem": 1, "Query": 1}, 0, 2)


async def test_unsubscribing(crowd: World) -> None:
    await crowd.say("client0", "unsubscribe", pubsub("a"), at=crowd.clock() + 1)
    assert spent(crowd) == ({"GetItem": 1, "TransactWriteItems": 1, "UpdateItem": 1}, 5, 1)


async def test_a_whisper_to_nine(crowd: World) -> None:
    await crowd.say("client0", "whisper", pubsub("a"), data=1)
    assert spent(crowd) == ({"GetItem": 1, "Query": 1}, 0, 2)


async def test_joining(crowd: World) -> None:
    await crowd.say("client0", "join", pubsub("a"), presence={"id": "ada"})
    assert spent(crowd) == ({"GetItem": 2, "UpdateItem": 2, "Query": 1}, 2, 3)


async def test_dropping(crowd: World) -> None:
    async with crowd.function() as function:
        await function.broadcaster.connections.disconnect("client0")
        assert spent(crowd) == ({"UpdateItem": 1, "Query": 1, "BatchWriteItem": 1}, 4, 1)
        await function.broadcaster.connections.disconnect("client0")
        assert spent(crowd)[0] == {"UpdateItem": 1}


async def test_rounds_of_pings_to_ten(crowd: World) -> None:
    async with crowd.function() as function:
        await function.heartbeat.round()
        calls, written, read = spent(crowd)
        assert (calls["GetItem"], calls["Query"], written) == (0, 24, 0), "it reads all shards once"
        assert read <= 20  # 20
        await function.heartbeat.round()
        assert spent(crowd) == ({"Query": 8}, 0, ROUND_READS)


async def test_keeping_the_lease_of_a_heartbeat(world: World) -> None:
    async with world.function() as function:
        await function.heartbeat.lease.acquire()
        spent(world)
        await function.heartbeat.lease.acquire(world.clock(), 10)
    assert spent(world) == ({"UpdateItem": 1}, ROUND_WRITES, 0)


async def test_a_minute_without_connections(world: World) -> None:
    async with world.function() as function:
        spent(world)
        assert not await function.broadcaster.connections.needs_heartbeat()
    assert spent(world) == ({"Query": 8}, 0, IDLE_MINUTE_READS)


def test_the_items_of_connections_and_subscribers_are_not_larger() -> None:
    """`tailrace.aws.costs` assumes these sizes."""
    connection = ConnectionRecord("A1b2C3d4E5f6G7h8=", '{"user_id":4711}', 1, 3.0, "s", None)
    assert _size(connection_item(connection)) <= CONNECTION_BYTES  # 123
    stream = "a/stream/with/a/usual/name/42"
    identifier = json.dumps({"channel": "$pubsub", "signed_stream_name": sign(stream, SECRET)})
    subscription = Subscription(identifier, stream, stream, whispers=True, presence=True)
    item = subscriber_item(SubscriberRecord("A1b2C3d4E5f6G7h8=", subscription))
    joined = {**item, "next_slot": number(10_000), "incarnation": text("f" * 16)}
    assert _size(joined) <= SUBSCRIBER_BYTES  # 344


def _size(item: dict[str, object]) -> int:
    return validate_item(item)[1]
