"""No message is lost, repeated or reordered, in whatever order functions run."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

from tailrace.log.append import Append
from tests.integration.action_cable.api_gateway.world import JSON, World

LAST = 30


async def test_a_subscriber_gets_what_is_appended_later(world: World) -> None:
    await world.create("a", b"[1,2]")
    await world.connect("one")
    await world.subscribe("one", "a")
    await world.append("a", b"3", b"[4,5]")
    await world.dispatch()
    assert world.types("one")[0] == "confirm_subscription"
    assert world.messages("one") == [3, 4, 5]
    assert [each["offset"] for each in world.heard("one")[1:]] == [3, 4, 5]


async def test_appends_that_share_a_slot_are_delivered_each_with_its_options(
    world: World,
) -> None:
    await world.create("a", b"[1,2]")
    for name in ("one", "two"):
        await world.connect(name)
        await world.subscribe(name, "a")
    await world.append_together(
        "a",
        Append(b"3", JSON),
        Append(b"4", JSON),
        Append(b"[5,6]", JSON, note='[["one",null],[null,"update"]]'),
        Append(b"7", JSON, note='[["two",null]]'),
    )
    assert len(await world.items("C")) == 3
    await world.dispatch()
    assert world.messages("one") == [3, 4, 6, 7]
    assert world.messages("two") == [3, 4, 5, 6]
    assert [each["offset"] for each in world.heard("one")[1:]] == [3, 4, 6, 7]
    assert world.types("two")[1:] == ["message", "message", "message", "update"]


async def test_a_client_reconnects_with_any_offset_of_a_slot(world: World) -> None:
    await world.create("a")
    await world.append_together("a", *(Append(b"%d" % number, JSON) for number in range(1, 6)))
    await world.dispatch()
    await world.connect("before")
    await world.subscribe("before", "a", history={"since": 1})
    for place in world.heard("before")[1:6]:
        name = f"after{place['offset']}"
        await world.connect(name)
        streams = {"a": {"epoch": place["epoch"], "offset": place["offset"]}}
        await world.subscribe(name, "a", history={"streams": streams})
        await world.append("a", b'"%d"' % place["offset"])
        await world.dispatch()
        rest = [*range(1, 6), *(str(number) for number in range(1, place["offset"] + 1))]
        assert world.messages(name) == rest[place["offset"] :]


async def test_history_and_new_messages_meet_without_a_gap(world: World) -> None:
    await world.create("a", b"[1,2]")
    await world.append("a", b"3")
    await world.connect("one")
    await world.subscribe("one", "a", history={"since": 1})
    assert world.types("one") == ["confirm_subscription", *["message"] * 3, "confirm_history"]
    await world.append("a", b"4")
    await world.dispatch(shuffled=True)
    assert world.messages("one") == [1, 2, 3, 4]


async def test_a_stream_created_later_is_delivered_from_the_start(world: World) -> None:
    await world.connect("one")
    await world.subscribe("one", "a")
    await world.create("a", b"[1,2]")
    await world.append("a", b"3")
    await world.dispatch(shuffled=True)
    await world.append("a", b"4")
    await world.dispatch()
    assert world.messages("one") == [1, 2, 3, 4]


async def test_a_recreated_stream_is_delivered_from_the_start(
    world: World,
) -> None:
    await world.create("a", b"1")
    await world.connect("one")
    await world.subscribe("one", "a")
    await world.delete("a")
    await world.create("a", b'"new"')
    # Another client subscribes before the new stream is delivered.
    await world.connect("two")
    await world.subscribe("two", "a")
    await world.append("a", b'"newer"')
    await world.dispatch(shuffled=True)
    assert world.messages("one") == ["new", "newer"]
    assert world.messages("two") == ["newer"]


async def test_unordered_records_are_delivered_in_order(world: World) -> None:
    await world.create("a")
    await world.connect("one")
    await world.subscribe("one", "a")
    for round_ in range(5):
        await world.append("a", *(b"%d" % (round_ * 10 + i) for i in range(10)))
        await world.dispatch(shuffled=True)
    assert world.messages("one") == list(range(50))


class Reader:
    """A client that is disconnected again and again, and reconnects with its position."""

    def __init__(self, world: World, name: str) -> None:
        self.heard: list[int] = []
        self._world = world
        self._name = name
        self._place: dict[str, Any] = {}

    async def read(self, lives: int = 100) -> None:
        """Reconnect until the last message arrives."""
        await asyncio.sleep(random.uniform(0, 1))
        for life in range(lives):
            await self._live(f"{self._name}-{life}")
            if LAST in self.heard:
                return

    async def _live(self, connection: str) -> None:
        world = self._world
        await world.connect(connection)
        frames = world.gateway_api.sent[connection]
        if random.random() < 0.8:
            loop = asyncio.get_running_loop()
            loop.call_later(random.uniform(0.05, 0.6), world.gateway_api.sent.pop, connection, None)
        since = {} if self._place else {"since": 1}
        await world.subscribe(connection, "a", history={**since, "streams": self._place})
        while connection in world.gateway_api.sent and LAST not in self.heard:
            await asyncio.sleep(0.01)
            self._take(frames)
        self._take(frames)

    def _take(self, frames: list[str]) -> None:
        while frames:
            frame = json.loads(frames.pop(0))
            assert frame.get("type") != "reject_history", frame
            if "stream_id" in frame:
                self.heard.append(frame["message"])
                self._place["a"] = {"epoch": frame["epoch"], "offset": frame["offset"]}


async def test_reconnecting_clients_get_everything_once_and_in_order(world: World) -> None:
    await come_and_go(world, 0)


async def come_and_go(world: World, seed: int) -> None:
    """Clients subscribe, drop and reconnect at any time, while others append and all is slow."""
    random.seed(seed)
    world.gateway_api.slow = 0.005
    ended = False

    async def write() -> None:
        nonlocal ended
        await asyncio.sleep(random.uniform(0, 0.1))
        await world.create("a")
        for number in range(1, LAST + 1):
            await world.append("a", b"%d" % number)
            await asyncio.sleep(random.uniform(0, 0.05))
        ended = True

    async def dispatch() -> None:
        while not ended or await asyncio.to_thread(world.poll) > 0:
            await world.dispatch(shuffled=True)
            await asyncio.sleep(random.uniform(0, 0.05))

    readers = [Reader(world, f"client{i}") for i in range(6)]
    await asyncio.gather(write(), dispatch(), *(each.read() for each in readers))
    for each in readers:
        assert each.heard == list(range(1, LAST + 1))
