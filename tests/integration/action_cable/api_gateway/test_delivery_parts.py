"""A delivery to a large audience is divided between functions: whatever happens to one of them, no
message is lost, repeated or reordered."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tailrace.aws.costs import PART_READS, PART_WRITES
from tailrace.errors import StoreUnavailable
from tailrace.log.content import Mode
from tailrace.protocols.action_cable.api_gateway import delivery_parts
from tailrace.protocols.action_cable.api_gateway.broadcaster import Broadcaster
from tailrace.protocols.action_cable.api_gateway.cursors import DeliveryCursors
from tailrace.protocols.action_cable.api_gateway.delivery import (
    DELIVERY_LEASE_SECONDS,
    TableStreamRecord,
)
from tailrace.protocols.action_cable.api_gateway.delivery_parts import DeliveryPart, parts_for
from tailrace.protocols.action_cable.api_gateway.items import (
    SUBSCRIBER_BUCKETS,
    DeliveryCursor,
    subscriber_key,
    subscriber_span,
)
from tests.integration.action_cable.api_gateway.hooks import once
from tests.integration.action_cable.api_gateway.test_delivery_leases import die, reconnected
from tests.integration.action_cable.api_gateway.world import World

PARTS = 5


def names_of(part: int) -> Iterator[str]:
    """Names of clients whose subscriptions are in a part."""
    first, last = subscriber_span(part, PARTS)
    names = (f"client{number}" for number in itertools.count())
    return (name for name in names if first <= subscriber_key("a", name, "")["s"]["S"] <= last)


NAMES = [name for part in range(PARTS) for name in itertools.islice(names_of(part), 2)]
RESTART = {"type": "disconnect", "reason": "server_restart", "reconnect": True}
EVERYTHING = {"since": 1}


class Lambda:
    """Invokes functions for parts, and has something happen to some of them."""

    def __init__(self, world: World) -> None:
        self.events: list[Mapping[str, Any]] = []
        self.fates: list[str] = []
        """The faults of the next invocations, by their order."""
        self._world = world

    async def __call__(self, event: Mapping[str, Any]) -> Mapping[str, Any] | None:
        self.events.append(event)
        fate = self.fates.pop(0) if self.fates else ""
        match fate:
            case "throttled":
                return None
            case "lost response":
                await self._world.serve_part(event)
                return None
            case "repeated":
                await self._world.serve_part(event)
        try:
            return await self._world.serve_part(event)
        except Exception:
            if fate != "dies":
                raise
            return None


@pytest.fixture
async def crowd(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """Ten subscribers of a stream with one message, which they have; parts have two."""
    monkeypatch.setattr(delivery_parts, "GATEWAY_PART_SUBSCRIBERS", 2)
    await world.create("a", b"0")
    await world.dispatch()
    for name in NAMES:
        await world.connect(name)
        await world.subscribe(name, "a", history=EVERYTHING)
    return world


@pytest.fixture
def functions(crowd: World) -> Lambda:
    functions = Lambda(crowd)
    crowd.invoke = functions
    return functions


async def appended(world: World, *numbers: int) -> list[TableStreamRecord]:
    await world.append("a", *(b"%d" % number for number in numbers))
    return [record for records in (await world.news()).values() for record in records]


async def cursor(world: World) -> DeliveryCursor:
    async with world.function() as function:
        ((partition, _),) = await world.items("R")
        found = await function.broadcaster.cursors.get(int(partition[1:], 16))
    assert found is not None
    return found


async def check(world: World, *numbers: int) -> None:
    """Everybody has all messages, those who were told to reconnect after doing so."""
    for name in NAMES:
        if name in world.gateway_api.sent:
            assert world.messages(name) == list(numbers), name
    assert (await cursor(world)).lease_owner is None


def frames_of(world: World) -> dict[str, list[str]]:
    """The frames of every client, which outlive their connections."""
    return dict(world.gateway_api.sent)


async def check_after_reconnecting(
    world: World, before: Mapping[str, list[str]], *numbers: int
) -> list[str]:
    """Everybody has all messages; returns who had to reconnect."""
    ended = sorted(world.gateway_api.ended)
    for name in NAMES:
        world.gateway_api.sent[name] = before[name]
        heard = world.messages(name)
        if name in ended:
            assert world.heard(name)[-1] == RESTART
            heard = await reconnected(world, name)
        assert heard == list(numbers), name
    return ended


# Parts


@pytest.mark.parametrize("parts", [1, 2, 3, 5, 64])
def test_every_subscriber_is_in_one_part(parts: int) -> None:
    keys = [subscriber_key("a", f"client{number}", "x")["s"]["S"] for number in range(2000)]
    spans = [subscriber_span(part, parts) for part in range(parts)]
    shares = [sum(first <= key <= last for key in keys) for first, last in spans]
    assert sum(shares) == len(keys)
    assert min(shares) > 0
    assert spans[0][0] == "00"
    assert spans[-1][1] == f"{SUBSCRIBER_BUCKETS - 1:02x}~"


def test_a_part_is_the_same_after_it_was_an_event() -> None:
    before = DeliveryCursor(255, "chat/1", Mode.JSON, 7, None, 0)
    part = DeliveryPart(before, 9, True, "me", 3, 5)
    assert DeliveryPart.of(part.event()) == part


@pytest.mark.parametrize(
    ("audience", "parts"), [(0, 1), (1000, 1), (1001, 3), (10_000, 20), (1_000_000, 64)]
)
def test_large_audiences_have_more_parts(audience: int, parts: int) -> None:
    assert parts_for(audience) == parts


# Delivering


async def test_a_large_audience_is_divided(crowd: World, functions: Lambda) -> None:
    for number in range(1, 4):
        assert await crowd.deliver(*await appended(crowd, number)) == {}
        assert len(functions.events) == 5 * number
    await check(crowd, 0, 1, 2, 3)
    assert (await cursor(crowd)).audience == 10


async def test_an_audience_that_shrinks_is_served_by_one_function(
    crowd: World, functions: Lambda
) -> None:
    assert await crowd.deliver(*await appended(crowd, 1)) == {}
    for name in NAMES[3:]:
        del crowd.gateway_api.sent[name]
    assert await crowd.deliver(*await appended(crowd, 2)) == {}
    functions.events.clear()
    for number in (3, 4):
        assert await crowd.deliver(*await appended(crowd, number)) == {}
    assert len(functions.events) == 5, "the first that finds them few"
    assert (await cursor(crowd)).audience == 0
    await check(crowd, 0, 1, 2, 3, 4)


async def test_a_small_audience_is_not_divided(world: World) -> None:
    async def nobody(_: Mapping[str, Any]) -> None:
        raise AssertionError("a function is invoked")

    world.invoke = nobody
    await world.create("a")
    await world.connect("one")
    await world.subscribe("one", "a")
    await world.append("a", b"1")
    await world.dispatch()
    assert world.messages("one") == [1]


async def test_clients_that_waited_for_a_stream_get_it_from_the_start(
    crowd: World, functions: Lambda
) -> None:
    await crowd.delete("a")
    await crowd.dispatch()
    functions.events.clear()
    await crowd.create("a", b"[1,2]")
    await crowd.append("a", b"3")
    await crowd.dispatch(shuffled=True)
    await check(crowd, 0, 1, 2, 3)
    assert functions.events


async def test_everybody_is_told_of_a_deletion(crowd: World, functions: Lambda) -> None:
    for name in ("extended1", "extended2"):
        await crowd.connect(name, extended=True)
        await crowd.subscribe(name, "a")
    assert await crowd.deliver(*await appended(crowd, 1)) == {}
    await crowd.delete("a")
    await crowd.dispatch()
    for name in ("extended1", "extended2"):
        assert crowd.types(name) == ["confirm_subscription", "message", "deleted"]
    assert len(functions.events) == 12


async def test_the_cost_of_a_part(crowd: World, functions: Lambda) -> None:
    """The whole delivery has two writes and a read for its lease."""
    assert await crowd.deliver(*await appended(crowd, 1)) == {}
    functions.events.clear()
    records = await appended(crowd, 2)
    crowd.calls.clear()
    assert await crowd.deliver(*records) == {}
    calls = Counter(call.operation for call in crowd.calls)
    parts = len(functions.events)
    assert calls == {"GetItem": 1, "UpdateItem": 2 + parts, "Query": 2 * parts}
    assert sum(call.write_units for call in crowd.calls) == 2 + PART_WRITES * parts
    assert sum(call.read_units for call in crowd.calls) == 1 + PART_READS * parts


# Faults


@pytest.mark.parametrize("fate", ["throttled", "repeated"])
@pytest.mark.parametrize("times", [1, 5])
async def test_functions_that_are_throttled_or_repeated_change_nothing(
    crowd: World, functions: Lambda, fate: str, times: int
) -> None:
    functions.fates = [fate] * times
    before = frames_of(crowd)
    assert await crowd.deliver(*await appended(crowd, 1)) == {}
    assert await crowd.deliver(*await appended(crowd, 2)) == {}
    if fate == "throttled":
        assert crowd.gateway_api.ended == []
        await check(crowd, 0, 1, 2)
    else:
        # The response is that of the second, which knows nothing of the first.
        ended = await check_after_reconnecting(crowd, before, 0, 1, 2)
        assert len(ended) == 2 * times


async def test_after_a_lost_response_the_subscribers_of_the_part_reconnect(
    crowd: World, functions: Lambda
) -> None:
    before = frames_of(crowd)
    functions.fates = ["lost response"]
    assert await crowd.deliver(*await appended(crowd, 1)) == {}
    assert await crowd.deliver(*await appended(crowd, 2)) == {}
    ended = await check_after_reconnecting(crowd, before, 0, 1, 2)
    assert len(ended) == 2, "others don't notice"


@pytest.mark.parametrize("step", ["before", "after"])
async def test_after_the_death_of_a_function_the_subscribers_of_its_part_reconnect(
    crowd: World, functions: Lambda, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    before = frames_of(crowd)
    functions.fates = ["dies"] * 5
    once(monkeypatch, Broadcaster, "send_all", **{step: die})
    assert await crowd.deliver(*await appended(crowd, 1)) == {}
    assert await crowd.deliver(*await appended(crowd, 2)) == {}
    ended = await check_after_reconnecting(crowd, before, 0, 1, 2)
    assert len(ended) == 2


async def test_a_function_that_dies_before_it_begins_is_replaced(
    crowd: World, functions: Lambda, monkeypatch: pytest.MonkeyPatch
) -> None:
    functions.fates = ["dies"] * 5
    once(monkeypatch, DeliveryCursors, "take_part", before=die)
    assert await crowd.deliver(*await appended(crowd, 1)) == {}
    assert crowd.gateway_api.ended == []
    await check(crowd, 0, 1)


async def fail() -> None:
    raise StoreUnavailable("the table does not respond")


async def test_a_part_whose_subscribers_cannot_be_read_is_served_by_the_other_function(
    crowd: World, functions: Lambda, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await crowd.deliver(*await appended(crowd, 1)) == {}
    once(monkeypatch, DeliveryCursors, "subscribers", before=fail)
    assert await crowd.deliver(*await appended(crowd, 2)) == {}
    assert crowd.gateway_api.ended == []
    await check(crowd, 0, 1, 2)
    assert len(functions.events) == 10


async def test_if_nothing_was_sent_the_delivery_is_repeated(
    crowd: World, functions: Lambda, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await crowd.deliver(*await appended(crowd, 1)) == {}
    read = DeliveryCursors.subscribers

    async def unavailable(*_: Any) -> Any:
        await fail()

    monkeypatch.setattr(DeliveryCursors, "subscribers", unavailable)
    records = await appended(crowd, 2)
    (failure,) = (await crowd.deliver(*records)).values()
    assert isinstance(failure, StoreUnavailable)
    monkeypatch.setattr(DeliveryCursors, "subscribers", read)
    assert await crowd.deliver(*records) == {}
    assert crowd.gateway_api.ended == []
    await check(crowd, 0, 1, 2)
    assert len(functions.events) == 15


async def test_a_function_that_comes_late_sends_nothing(crowd: World, functions: Lambda) -> None:
    assert await crowd.deliver(*await appended(crowd, 1)) == {}
    late = list(functions.events)
    nothing = {"taken": False, "sent": False}
    assert [await crowd.serve_part(event) for event in late] == [nothing] * 5
    assert await crowd.deliver(*await appended(crowd, 2)) == {}
    assert [await crowd.serve_part(event) for event in late] == [nothing] * 5
    await check(crowd, 0, 1, 2)


async def test_after_the_death_of_the_delivery_everybody_reconnects(
    crowd: World, functions: Lambda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its parts were served, but it did not come to releasing the lease."""
    before = frames_of(crowd)
    once(monkeypatch, DeliveryCursors, "release", before=die)
    records = await appended(crowd, 1)
    assert await crowd.deliver(*records)
    assert functions.events
    crowd.clock.pass_s(DELIVERY_LEASE_SECONDS + 1)
    assert await crowd.deliver(*records) == {}
    assert await check_after_reconnecting(crowd, before, 0, 1) == sorted(NAMES)
    assert (await cursor(crowd)).lease_owner is None
