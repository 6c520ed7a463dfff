"""The follower of a stream and its listeners, over a real store."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tailrace.errors import StoreUnavailable, StreamNotFound
from tailrace.limits import CABLE_MESSAGE_BYTES
from tailrace.live import pace
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.protocols.action_cable.core.broadcasts import parse
from tailrace.protocols.action_cable.core.channels import Subscription
from tailrace.protocols.action_cable.core.commands import History, Position
from tailrace.protocols.action_cable.core.encoders import SOCKET
from tailrace.protocols.action_cable.core.publisher import Publisher
from tailrace.protocols.action_cable.core.stream_names import epoch_of
from tailrace.protocols.action_cable.in_process.hub import Hub
from tailrace.protocols.action_cable.in_process.listener import Listener
from tailrace.settings import Settings
from tailrace.streams import Streams
from tests.support.streams import Clock, serving

JSON = "application/json"
EVERYTHING = History(1, {})


class Ear:
    """A client that keeps what it hears."""

    encoder = SOCKET

    def __init__(self, sid: str = "s", pause: float = 0) -> None:
        self.sid = sid
        self.heard: list[dict[str, Any]] = []
        self._pause = pause

    def push(self, text: str) -> None:
        self.heard.append(json.loads(text))

    async def drain(self) -> None:
        await asyncio.sleep(self._pause)

    def end(self, reason: str, *, reconnect: bool) -> None:
        raise AssertionError(f"nobody is to go: {reason} {reconnect}")

    @property
    def offsets(self) -> list[int]:
        return [each["offset"] for each in self.heard if "offset" in each]

    async def until(self, number: int) -> list[int]:
        async with asyncio.timeout(120):
            while len(self.offsets) < number:  # noqa: ASYNC110 - what it hears comes by itself
                await asyncio.sleep(0.001)
        return self.offsets


@pytest.fixture
async def streams(tmp_path: Path) -> AsyncIterator[Streams]:
    async with serving(tmp_path / "data", Clock(), chunk_bytes=1024) as streams:
        yield streams


@pytest.fixture
def hub(streams: Streams) -> Hub:
    return Hub(streams, Settings())


def listener(ear: Ear, path: str = "a") -> Listener:
    return Listener(ear, Subscription("i", path, path))


async def append(streams: Streams, *bodies: bytes, path: str = "a") -> None:
    for body in bodies:
        try:
            await streams.append(path, Append(body, JSON))
        except StreamNotFound:
            await streams.create(path, Create(body, JSON))


async def test_what_comes_while_a_listener_is_held_back_is_told_when_it_is_let_go(
    streams: Streams, hub: Hub
) -> None:
    await append(streams, b"1")
    ear = Ear()
    one = listener(ear)
    await hub.attach(one)
    await append(streams, b"2", b"[3,4]")
    await asyncio.sleep(0.02)
    assert ear.heard == []
    await hub.rooms["a"].release(one)
    assert await ear.until(3) == [2, 3, 4]
    await append(streams, b"5")
    assert await ear.until(4) == [2, 3, 4, 5]
    hub.detach(one)


async def test_what_comes_before_there_is_a_stream_is_its_beginning(
    streams: Streams, hub: Hub
) -> None:
    ear = Ear()
    one = listener(ear)
    await hub.attach(one)
    await append(streams, b"[1,2]", b"3")
    await asyncio.sleep(0.02)
    await hub.rooms["a"].release(one)
    assert await ear.until(3) == [1, 2, 3]
    hub.detach(one)


async def test_a_stream_that_another_process_creates_is_found_by_looking(streams: Streams) -> None:
    shared = Hub(streams, Settings(store="dynamodb", poll_slowest=0.1))
    stranger = Streams(streams.store, Settings())
    ear = Ear()
    one = listener(ear)
    await shared.attach(one)
    await shared.rooms["a"].release(one)
    await append(stranger, b"1", b"2")
    assert await ear.until(2) == [1, 2]
    shared.detach(one)


async def test_history_and_what_comes_meet_without_a_gap_whenever_a_listener_comes(
    streams: Streams, hub: Hub
) -> None:
    """Chunks are small, so that history takes many reads while the stream grows."""
    body = json.dumps("x" * 100).encode()
    await append(streams, *[body] * 50)
    ears = [Ear(f"s{i}", pause=random.uniform(0, 0.002)) for i in range(40)]
    attached = []

    async def come(ear: Ear) -> None:
        await asyncio.sleep(random.uniform(0, 0.2))
        one = listener(ear)
        attached.append(one)
        await hub.attach(one)
        await asyncio.sleep(random.choice((0, 0, 0.01)))
        if ear.sid.endswith("0"):
            await hub.rooms["a"].release(one)
        else:
            await hub.rooms["a"].replay(one, EVERYTHING)

    coming = [asyncio.create_task(come(ear)) for ear in ears]
    for _ in range(150):
        await append(streams, body if random.random() < 0.8 else b"[%b,%b]" % (body, body))
        await asyncio.sleep(0.001)
    await asyncio.gather(*coming)
    end = (await streams.find("a")).committed.offset
    for ear in ears:
        async with asyncio.timeout(120):
            while ear.offsets[-1:] != [end]:  # noqa: ASYNC110 - it comes by itself
                await asyncio.sleep(0.005)
        first = ear.offsets[0]
        assert ear.offsets == list(range(first, end + 1))
        assert first == 1 or ear.sid.endswith("0")
    for one in attached:
        hub.detach(one)
    assert not hub.rooms


async def test_who_has_read_further_than_the_follower_hears_nothing_twice(
    streams: Streams, hub: Hub
) -> None:
    await append(streams, b'"first"')
    ear = Ear()
    one = listener(ear)
    await hub.attach(one)
    room = hub.rooms["a"]
    # The follower stands still, and then goes in small steps.
    async with room.publishing:
        await append(streams, *[json.dumps("x" * 300).encode()] * 20)
        await room.replay(one, EVERYTHING)
        assert ear.offsets == list(range(1, 22))
    await append(streams, b'"last"')
    assert await ear.until(22) == list(range(1, 23))
    hub.detach(one)


async def test_history_goes_on_across_deletion_and_creation(streams: Streams, hub: Hub) -> None:
    await append(streams, b"1")
    ear = Ear()
    one = listener(ear)
    await hub.attach(one)
    await streams.delete("a")
    await append(streams, b'"new"')
    await hub.rooms["a"].replay(one, EVERYTHING)
    await append(streams, b'"newer"')
    await ear.until(2)
    assert [each.get("message", each.get("type")) for each in ear.heard] == [
        "new",
        "confirm_history",
        "newer",
    ]
    hub.detach(one)


async def test_history_that_is_ahead_of_the_follower_is_not_told_twice(
    streams: Streams, hub: Hub
) -> None:
    """The follower stands still while the stream is deleted and created anew."""
    await append(streams, b'"old"')
    ear = Ear()
    one = listener(ear)
    await hub.attach(one)
    room = hub.rooms["a"]
    async with room.publishing:
        await append(streams, b'"older"')
        await streams.delete("a")
        await append(streams, b'"new"', b'"newer"')
        replaying = asyncio.create_task(room.replay(one, EVERYTHING))
        await ear.until(2)
    await asyncio.wait_for(replaying, 120)
    await append(streams, b'"newest"')
    await ear.until(3)
    told = [each["message"] for each in ear.heard if "message" in each]
    assert told == ["new", "newer", "newest"]
    hub.detach(one)


async def test_a_client_that_is_ahead_of_the_follower_hears_nothing_twice(
    streams: Streams, hub: Hub
) -> None:
    """It got the messages elsewhere, where the follower of its stream was quicker."""
    await append(streams, b"1")
    ear = Ear()
    one = listener(ear)
    await hub.attach(one)
    room = hub.rooms["a"]
    async with room.publishing:
        await append(streams, b"2", b"3")
        epoch = epoch_of((await streams.find("a")).stream.id)
        await room.replay(one, History(0, {"a": Position(epoch, 3)}))
    await append(streams, b"4")
    assert await ear.until(1) == [4]
    hub.detach(one)


async def test_a_stream_that_is_created_after_the_subscription_is_told_whole(
    streams: Streams, hub: Hub
) -> None:
    """Though the client, whose clock is ahead, asks only for what comes after that."""
    ear = Ear()
    one = listener(ear)
    await hub.attach(one)
    await append(streams, b"1", b"2")
    await hub.rooms["a"].replay(one, History(2**40, {}))
    assert await ear.until(2) == [1, 2]
    hub.detach(one)


@pytest.mark.parametrize("live", [True, False])
async def test_after_what_retention_let_go_comes_what_is_kept(tmp_path: Path, live: bool) -> None:
    settings = {"retention": "**=100B", "segment_max_messages": 10}
    clock = Clock()
    async with serving(tmp_path / "data", clock, **settings) as streams:
        store: Any = streams.store
        hub = Hub(streams, Settings())
        await append(streams, b'"000"')
        ear = Ear()
        one = listener(ear)
        await hub.attach(one)
        room = hub.rooms["a"]
        if live:
            await room.release(one)
        # The follower stands still, but for what it has read before.
        async with room.publishing:
            await append(streams, *[b'"%03d"' % i for i in range(1, 101)])
            await store.compact()
            clock.pass_s(10)
            await store.retain()
        kept = (await streams.find("a")).earliest
        assert kept > 2
        async with asyncio.timeout(120):
            while room.slot < kept:  # noqa: ASYNC110 - the follower goes on by itself
                await asyncio.sleep(0.001)
        if not live:
            await room.release(one)
        await append(streams, b'"101"')
        async with asyncio.timeout(120):
            while ear.offsets[-1:] != [102]:  # noqa: ASYNC110 - it comes by itself
                await asyncio.sleep(0.001)
        read_before = ear.offsets[: ear.offsets.index(kept + 1)]
        assert ear.offsets == [*read_before, *range(kept + 1, 103)]
        assert read_before == list(range(2, 2 + len(read_before)))
        hub.detach(one)


async def test_a_place_that_retention_has_let_go_is_not_to_be_found(tmp_path: Path) -> None:
    clock = Clock()
    settings = {"retention": "**=100B", "segment_max_messages": 10}
    async with serving(tmp_path / "data", clock, **settings) as streams:
        store: Any = streams.store
        await append(streams, *[b'"%03d"' % i for i in range(1, 101)])
        await store.compact()
        clock.pass_s(10)
        await store.retain()
        tail = await streams.find("a")
        assert tail.earliest > 0
        hub = Hub(streams, Settings())
        kept = tail.earliest
        for offset, found in ((kept, True), (kept - 1, False), (0, False), (100, True)):
            ear = Ear()
            one = listener(ear)
            await hub.attach(one)
            place = History(0, {"a": Position(epoch_of(tail.stream.id), offset)})
            await hub.rooms["a"].replay(one, place)
            told = ear.heard[-1]["type"]
            assert told == ("confirm_history" if found else "reject_history")
            assert ear.offsets == (list(range(offset + 1, 101)) if found else [])
            hub.detach(one)


async def test_history_that_cannot_be_read_now_is_refused_and_what_is_new_is_told(
    streams: Streams, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    await append(streams, b"1")
    ear = Ear()
    one = listener(ear)
    await hub.attach(one)

    async def fail(*_: object) -> None:
        raise StoreUnavailable("the disk is away")

    monkeypatch.setattr(streams, "access", fail)
    await hub.rooms["a"].replay(one, EVERYTHING)
    assert ear.heard == [{"type": "reject_history", "identifier": "i"}]
    await append(streams, b"2")
    assert await ear.until(1) == [2]
    hub.detach(one)


async def test_rooms_last_as_long_as_somebody_listens(hub: Hub) -> None:
    two = [listener(Ear()), listener(Ear())]
    for one in two:
        await hub.attach(one)
    room = hub.rooms["a"]
    hub.detach(two[0])
    assert hub.rooms["a"] is room
    hub.detach(two[1])
    assert not hub.rooms
    with suppress(asyncio.CancelledError):
        await room._task


async def test_what_was_noted_is_forgotten_when_it_was_delivered(
    streams: Streams, hub: Hub
) -> None:
    publisher = Publisher(streams, hub, Settings())
    ears = [Ear("s1"), Ear("s2")]
    some = [listener(ear) for ear in ears]
    for one in some:
        await hub.attach(one)
        await hub.rooms["a"].release(one)
    batch = [
        {"stream": "a", "data": "1", "meta": {"exclude_socket": "s1"}},
        {"stream": "a", "data": "2"},
        {"stream": "a", "data": "3", "meta": {"broadcast_type": "odd"}},
    ]
    asked = parse(json.dumps(batch).encode())
    assert isinstance(asked, list)
    await publisher.publish(asked)
    assert await ears[0].until(2) == [2, 3]
    assert await ears[1].until(3) == [1, 2, 3]
    assert ears[1].heard[-1]["type"] == "odd"
    assert hub.rooms["a"].notes == {}
    for one in some:
        hub.detach(one)


class Turns:
    """Counts how often others get their turn while something goes on."""

    def __init__(self) -> None:
        self.number = 0
        self._task = asyncio.create_task(self._count())

    async def _count(self) -> None:
        while True:
            self.number += 1
            await asyncio.sleep(0)

    def end(self) -> None:
        self._task.cancel()


MANY = 3000
BATCH = b"[%b]" % b",".join([b"%d" % i for i in range(1, MANY + 1)])


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others get their turn after each step, however short."""
    monkeypatch.setattr(pace, "SLICE_SECONDS", 0)


@pytest.mark.usefixtures("hasty")
async def test_a_large_append_gives_way_to_others(streams: Streams, hub: Hub) -> None:
    await append(streams, b"0")
    ears = [Ear(str(i)) for i in range(3)]
    for ear in ears:
        one = listener(ear)
        await hub.attach(one)
        await hub.rooms["a"].release(one)
    turns = Turns()
    await append(streams, BATCH)
    for ear in ears:
        assert await ear.until(MANY) == list(range(2, MANY + 2))
    assert turns.number > MANY / 256
    turns.end()


@pytest.mark.usefixtures("hasty")
async def test_listeners_come_and_go_while_a_large_append_is_delivered(
    streams: Streams, hub: Hub
) -> None:
    await append(streams, b"0")
    first = Ear("first")
    one = listener(first)
    await hub.attach(one)
    room = hub.rooms["a"]
    await room.release(one)
    await append(streams, BATCH)
    await first.until(1)
    late, leaving = Ear("late"), Ear("leaving")
    comes, goes = listener(late), listener(leaving)
    for each in (comes, goes):
        await hub.attach(each)
        await room.release(each)
    hub.detach(goes)
    replayed = asyncio.create_task(room.replay(one, EVERYTHING))
    await append(streams, b"[1,2]")
    whole = list(range(1, MANY + 4))
    # What was delivered before the replay, then all of it again, in order.
    heard = await first.until(MANY + len(whole))
    await replayed
    begin = len(heard) - len(whole)
    assert heard[begin:] == whole
    assert heard[:begin] == list(range(2, begin + 2))
    # It came after the append: it gets what follows, and nothing twice.
    assert (await late.until(2))[-2:] == [MANY + 2, MANY + 3]
    assert late.offsets == sorted(set(late.offsets))
    assert not leaving.offsets


@pytest.mark.usefixtures("hasty")
async def test_a_large_append_is_replayed_in_order(streams: Streams, hub: Hub) -> None:
    await append(streams, b"0", BATCH, b"1")
    ear = Ear()
    one = listener(ear)
    await hub.attach(one)
    turns = Turns()
    position = Position(epoch_of((await streams.find("a")).stream.id), 1000)
    await hub.rooms["a"].replay(one, History(0, {"a": position}))
    assert ear.offsets == list(range(1001, MANY + 3))
    assert turns.number > MANY / 256
    turns.end()


async def test_a_message_that_is_too_large_is_left_out(streams: Streams, hub: Hub) -> None:
    large = b'"%b"' % (b"a" * CABLE_MESSAGE_BYTES)
    await append(streams, b"1", large, b"3")
    ear = Ear()
    one = listener(ear)
    await hub.attach(one)
    position = Position(epoch_of((await streams.find("a")).stream.id), 1)
    await hub.rooms["a"].replay(one, History(0, {"a": position}))
    assert ear.offsets == [3]
    assert ear.heard[-1]["type"] == "confirm_history"
    await append(streams, large, b"5")
    assert await ear.until(2) == [3, 5]
