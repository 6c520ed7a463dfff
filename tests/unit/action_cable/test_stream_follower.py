"""The follower of a stream and its subscribers on cables, over a real store."""

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
from tailrace.live import follower
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.protocols.action_cable.core.broadcasts import parse
from tailrace.protocols.action_cable.core.channels import Subscription, epoch_of
from tailrace.protocols.action_cable.core.commands import HistoryPosition, MissedMessages
from tailrace.protocols.action_cable.core.encoders import SOCKET
from tailrace.protocols.action_cable.core.publisher import Publisher
from tailrace.protocols.action_cable.in_process.hub import Hub
from tailrace.protocols.action_cable.in_process.stream_follower import Subscriber
from tailrace.settings import Settings
from tailrace.streams import Streams
from tests.support.streams import Clock, serving

JSON = "application/json"
EVERYTHING = MissedMessages(1, {})


class RecordingClient:
    """A client that keeps the frames it is sent."""

    encoder = SOCKET

    def __init__(self, sid: str = "s", pause: float = 0, *, extended: bool = True) -> None:
        self.sid = sid
        self.extended = extended
        self.received: list[dict[str, Any]] = []
        self._pause = pause

    def push(self, text: str) -> None:
        self.received.append(json.loads(text))

    def push_all(self, texts: tuple[str, ...]) -> None:
        for text in texts:
            self.push(text)

    async def drain(self) -> None:
        await asyncio.sleep(self._pause)

    def end(self, reason: str, *, reconnect: bool) -> None:
        raise AssertionError(f"the client is disconnected: {reason} {reconnect}")

    @property
    def told(self) -> list[Any]:
        """Messages as they are, other frames by their types."""
        return [each.get("message", each.get("type")) for each in self.received]

    async def hear(self, *told: object) -> None:
        async with asyncio.timeout(120):
            while len(self.received) < len(told):  # noqa: ASYNC110 - the follower sends them
                await asyncio.sleep(0.001)
        assert self.told == list(told)

    @property
    def offsets(self) -> list[int]:
        return [each["offset"] for each in self.received if "offset" in each]

    async def until(self, number: int) -> list[int]:
        async with asyncio.timeout(120):
            while len(self.offsets) < number:  # noqa: ASYNC110 - the follower sends them
                await asyncio.sleep(0.001)
        return self.offsets


@pytest.fixture
async def streams(tmp_path: Path) -> AsyncIterator[Streams]:
    async with serving(tmp_path / "data", Clock(), chunk_bytes=1024) as streams:
        yield streams


@pytest.fixture
def hub(streams: Streams) -> Hub:
    return Hub(streams, Settings())


def subscriber(client: RecordingClient, path: str = "a") -> Subscriber:
    return Subscriber(client, Subscription("i", path, path))


async def append(streams: Streams, *bodies: bytes, path: str = "a") -> None:
    for body in bodies:
        try:
            await streams.append(path, Append(body, JSON))
        except StreamNotFound:
            await streams.create(path, Create(body, JSON))


async def test_messages_for_a_held_subscriber_are_sent_when_it_goes_live(
    streams: Streams, hub: Hub
) -> None:
    await append(streams, b"1")
    client = RecordingClient()
    one = subscriber(client)
    await hub.attach(one)
    await append(streams, b"2", b"[3,4]")
    await asyncio.sleep(0.02)
    assert client.received == []
    await hub.followers["a"].go_live(one)
    assert await client.until(3) == [2, 3, 4]
    await append(streams, b"5")
    assert await client.until(4) == [2, 3, 4, 5]
    hub.detach(one)


async def test_a_stream_that_does_not_exist_yet_is_sent_from_its_beginning(
    streams: Streams, hub: Hub
) -> None:
    client = RecordingClient()
    one = subscriber(client)
    await hub.attach(one)
    await append(streams, b"[1,2]", b"3")
    await asyncio.sleep(0.02)
    await hub.followers["a"].go_live(one)
    assert await client.until(3) == [1, 2, 3]
    hub.detach(one)


async def test_a_stream_that_another_process_creates_is_found_by_polling(streams: Streams) -> None:
    shared = Hub(streams, Settings(store="dynamodb", poll_slowest=0.1))
    stranger = Streams(streams.store, Settings())
    client = RecordingClient()
    one = subscriber(client)
    await shared.attach(one)
    await shared.followers["a"].go_live(one)
    await append(stranger, b"1", b"2")
    assert await client.until(2) == [1, 2]
    shared.detach(one)


async def test_history_and_new_messages_join_without_a_gap_at_any_time(
    streams: Streams, hub: Hub
) -> None:
    """Chunks are small: reading history takes many reads, and the stream grows meanwhile."""
    body = json.dumps("x" * 100).encode()
    await append(streams, *[body] * 50)
    clients = [RecordingClient(f"s{i}", pause=random.uniform(0, 0.002)) for i in range(40)]
    attached = []

    async def come(client: RecordingClient) -> None:
        await asyncio.sleep(random.uniform(0, 0.2))
        one = subscriber(client)
        attached.append(one)
        await hub.attach(one)
        await asyncio.sleep(random.choice((0, 0, 0.01)))
        if client.sid.endswith("0"):
            await hub.followers["a"].go_live(one)
        else:
            await hub.followers["a"].replay(one, EVERYTHING)

    coming = [asyncio.create_task(come(client)) for client in clients]
    for _ in range(150):
        await append(streams, body if random.random() < 0.8 else b"[%b,%b]" % (body, body))
        await asyncio.sleep(0.001)
    await asyncio.gather(*coming)
    end = (await streams.find("a")).committed.offset
    for client in clients:
        async with asyncio.timeout(120):
            while client.offsets[-1:] != [end]:  # noqa: ASYNC110 - the follower sends it
                await asyncio.sleep(0.005)
        first = client.offsets[0]
        assert client.offsets == list(range(first, end + 1))
        assert first == 1 or client.sid.endswith("0")
    for one in attached:
        hub.detach(one)
    assert not hub.followers


async def test_a_subscriber_that_reads_past_the_follower_gets_nothing_twice(
    streams: Streams, hub: Hub
) -> None:
    await append(streams, b'"first"')
    client = RecordingClient()
    one = subscriber(client)
    await hub.attach(one)
    follower = hub.followers["a"]
    # The follower cannot deliver, and then does so in small steps.
    async with follower.delivery_lock:
        await append(streams, *[json.dumps("x" * 300).encode()] * 20)
        await follower.replay(one, EVERYTHING)
        assert client.offsets == list(range(1, 22))
    await append(streams, b'"last"')
    assert await client.until(22) == list(range(1, 23))
    hub.detach(one)


async def test_history_goes_on_across_deletion_and_creation(streams: Streams, hub: Hub) -> None:
    await append(streams, b"1")
    client = RecordingClient()
    one = subscriber(client)
    await hub.attach(one)
    await streams.delete("a")
    await append(streams, b'"new"')
    await hub.followers["a"].replay(one, EVERYTHING)
    await append(streams, b'"newer"')
    await client.hear("deleted", "new", "confirm_history", "newer")
    hub.detach(one)


async def test_history_of_a_chain_new_to_the_follower_is_sent_once(
    streams: Streams, hub: Hub
) -> None:
    """The follower cannot deliver while the stream is deleted and created again."""
    await append(streams, b'"old"')
    client = RecordingClient()
    one = subscriber(client)
    await hub.attach(one)
    follower = hub.followers["a"]
    async with follower.delivery_lock:
        await append(streams, b'"older"')
        await streams.delete("a")
        await append(streams, b'"new"', b'"newer"')
        replaying = asyncio.create_task(follower.replay(one, EVERYTHING))
        await client.until(2)
    await asyncio.wait_for(replaying, 120)
    await append(streams, b'"newest"')
    await client.hear("deleted", "new", "newer", "confirm_history", "newest")
    hub.detach(one)


@pytest.mark.parametrize("expires", [False, True])
async def test_clients_of_the_extended_protocol_are_told_of_a_deletion_once(
    tmp_path: Path, expires: bool
) -> None:
    clock = Clock()
    async with serving(tmp_path / "data", clock) as streams:
        hub = Hub(streams, Settings())
        clients = [RecordingClient(), RecordingClient("t", extended=False)]
        some = [subscriber(client) for client in clients]
        create = Create(b"1", JSON, expires_at=clock() + 60_000 if expires else None)
        await streams.create("a", create)
        for one in some:
            await hub.attach(one)
            await hub.followers["a"].go_live(one)
        await append(streams, b"2", b"3")
        await clients[0].hear(2, 3)
        if expires:
            clock.pass_s(60)
            await streams.sweep()
        else:
            await streams.delete("a")
        await clients[0].hear(2, 3, "deleted")
        assert clients[0].received[-1] == {"type": "deleted", "identifier": "i"}
        await append(streams, b"4")
        await clients[0].hear(2, 3, "deleted", 4)
        await clients[1].hear(2, 3, 4)
        for one in some:
            hub.detach(one)


async def test_a_deletion_that_the_follower_has_not_seen_is_told_before_the_new_stream(
    streams: Streams, hub: Hub
) -> None:
    await append(streams, b'"old"')
    client = RecordingClient()
    one = subscriber(client)
    await hub.attach(one)
    follower = hub.followers["a"]
    await follower.go_live(one)
    async with follower.delivery_lock:
        await append(streams, b'"older"')
        await asyncio.sleep(0.02)  # The follower has read it, and waits to deliver it.
        await streams.delete("a")
        await append(streams, b'"new"')
    await client.hear("older", "deleted", "new")
    hub.detach(one)


@pytest.mark.parametrize("held", [False, True])
async def test_a_subscriber_that_reads_by_itself_is_told_of_the_deletion(
    streams: Streams, hub: Hub, held: bool
) -> None:
    await append(streams, b"1")
    client = RecordingClient()
    one = subscriber(client)
    await hub.attach(one)
    follower = hub.followers["a"]
    if not held:
        await follower.go_live(one)
        await follower.catch_up(one, MissedMessages(0, {}))
    await streams.delete("a")
    async with asyncio.timeout(120):
        while follower.chain is not None:  # noqa: ASYNC110 - the follower notices it
            await asyncio.sleep(0.001)
    assert client.told == []
    await follower.go_live(one)
    await append(streams, b"2")
    await client.hear("deleted", 2)
    hub.detach(one)


async def test_history_of_a_stream_that_the_follower_has_not_found_yet_is_sent_once(
    streams: Streams,
) -> None:
    shared = Hub(streams, Settings(store="dynamodb", poll_slowest=60))
    stranger = Streams(streams.store, Settings())
    client = RecordingClient()
    one = subscriber(client)
    await shared.attach(one)
    follower = shared.followers["a"]
    await append(stranger, b"1", b"2")
    await follower.replay(one, EVERYTHING)
    assert follower.chain is None
    assert client.offsets == [1, 2]
    streams._notify("a")  # In place of the next poll.
    async with asyncio.timeout(120):
        while follower.slot < 2:  # noqa: ASYNC110 - the follower finds the stream by itself
            await asyncio.sleep(0.01)
    await append(streams, b"3")
    assert await client.until(3) == [1, 2, 3]
    shared.detach(one)


async def test_a_client_that_resumes_past_the_follower_gets_nothing_twice(
    streams: Streams, hub: Hub
) -> None:
    """It got the messages from another process, whose follower was quicker."""
    await append(streams, b"1")
    client = RecordingClient()
    one = subscriber(client)
    await hub.attach(one)
    follower = hub.followers["a"]
    async with follower.delivery_lock:
        await append(streams, b"2", b"3")
        epoch = epoch_of((await streams.find("a")).stream.id)
        await follower.replay(one, MissedMessages(0, {"a": HistoryPosition(epoch, 3)}))
    await append(streams, b"4")
    assert await client.until(1) == [4]
    hub.detach(one)


async def test_a_stream_that_is_created_after_the_subscription_is_sent_whole(
    streams: Streams, hub: Hub
) -> None:
    """Even if the client's clock is ahead, and it asks only for messages after that time."""
    client = RecordingClient()
    one = subscriber(client)
    await hub.attach(one)
    await append(streams, b"1", b"2")
    await hub.followers["a"].replay(one, MissedMessages(2**40, {}))
    assert await client.until(2) == [1, 2]
    hub.detach(one)


@pytest.mark.parametrize("live", [True, False])
async def test_messages_go_on_with_the_first_one_that_retention_keeps(
    tmp_path: Path, live: bool
) -> None:
    settings = {"retention": "**=100B", "segment_max_messages": 10}
    clock = Clock()
    async with serving(tmp_path / "data", clock, **settings) as streams:
        store: Any = streams.store
        hub = Hub(streams, Settings())
        await append(streams, b'"000"')
        client = RecordingClient()
        one = subscriber(client)
        await hub.attach(one)
        follower = hub.followers["a"]
        if live:
            await follower.go_live(one)
        # The follower cannot deliver, except for what it had read before.
        async with follower.delivery_lock:
            await append(streams, *[b'"%03d"' % i for i in range(1, 101)])
            await store.compact()
            clock.pass_s(10)
            await store.maintenance.retain()
        kept = (await streams.find("a")).earliest
        assert kept > 2
        async with asyncio.timeout(120):
            while follower.slot < kept:  # noqa: ASYNC110 - the follower goes on by itself
                await asyncio.sleep(0.001)
        if not live:
            await follower.go_live(one)
        await append(streams, b'"101"')
        async with asyncio.timeout(120):
            while client.offsets[-1:] != [102]:  # noqa: ASYNC110 - the follower sends it
                await asyncio.sleep(0.001)
        read_before = client.offsets[: client.offsets.index(kept + 1)]
        assert client.offsets == [*read_before, *range(kept + 1, 103)]
        assert read_before == list(range(2, 2 + len(read_before)))
        hub.detach(one)


async def test_history_from_a_trimmed_position_is_rejected(tmp_path: Path) -> None:
    clock = Clock()
    settings = {"retention": "**=100B", "segment_max_messages": 10}
    async with serving(tmp_path / "data", clock, **settings) as streams:
        store: Any = streams.store
        await append(streams, *[b'"%03d"' % i for i in range(1, 101)])
        await store.compact()
        clock.pass_s(10)
        await store.maintenance.retain()
        tail = await streams.find("a")
        assert tail.earliest > 0
        hub = Hub(streams, Settings())
        kept = tail.earliest
        for offset, found in ((kept, True), (kept - 1, False), (0, False), (100, True)):
            client = RecordingClient()
            one = subscriber(client)
            await hub.attach(one)
            place = MissedMessages(0, {"a": HistoryPosition(epoch_of(tail.stream.id), offset)})
            await hub.followers["a"].replay(one, place)
            told = client.received[-1]["type"]
            assert told == ("confirm_history" if found else "reject_history")
            assert client.offsets == (list(range(offset + 1, 101)) if found else [])
            hub.detach(one)


async def test_new_messages_are_sent_although_history_cannot_be_read(
    streams: Streams, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    await append(streams, b"1")
    client = RecordingClient()
    one = subscriber(client)
    await hub.attach(one)

    async def fail(*_: object) -> None:
        raise StoreUnavailable("the disk is away")

    monkeypatch.setattr(streams, "access", fail)
    await hub.followers["a"].replay(one, EVERYTHING)
    assert client.received == [{"type": "reject_history", "identifier": "i"}]
    await append(streams, b"2")
    assert await client.until(1) == [2]
    hub.detach(one)


async def test_a_follower_lasts_as_long_as_it_has_subscribers(hub: Hub) -> None:
    two = [subscriber(RecordingClient()), subscriber(RecordingClient())]
    for one in two:
        await hub.attach(one)
    follower = hub.followers["a"]
    hub.detach(two[0])
    assert hub.followers["a"] is follower
    hub.detach(two[1])
    assert not hub.followers
    with suppress(asyncio.CancelledError):
        await follower._task


async def test_options_are_removed_once_their_messages_are_delivered(
    streams: Streams, hub: Hub
) -> None:
    publisher = Publisher(streams, hub, Settings())
    clients = [RecordingClient("s1"), RecordingClient("s2")]
    some = [subscriber(client) for client in clients]
    for one in some:
        await hub.attach(one)
        await hub.followers["a"].go_live(one)
    batch = [
        {"stream": "a", "data": "1", "meta": {"exclude_socket": "s1"}},
        {"stream": "a", "data": "2"},
        {"stream": "a", "data": "3", "meta": {"broadcast_type": "odd"}},
    ]
    asked = parse(json.dumps(batch).encode())
    assert isinstance(asked, list)
    await publisher.publish(asked)
    assert await clients[0].until(2) == [2, 3]
    assert await clients[1].until(3) == [1, 2, 3]
    assert clients[1].received[-1]["type"] == "odd"
    assert hub.followers["a"].options == {}
    for one in some:
        hub.detach(one)


class Iterations:
    """Counts how often another task runs meanwhile."""

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
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every slice of work end after one step."""
    monkeypatch.setattr(follower, "SLICE_SECONDS", 0)


@pytest.mark.usefixtures("short_slices")
async def test_a_large_append_lets_other_tasks_run(streams: Streams, hub: Hub) -> None:
    await append(streams, b"0")
    clients = [RecordingClient(str(i)) for i in range(3)]
    for client in clients:
        one = subscriber(client)
        await hub.attach(one)
        await hub.followers["a"].go_live(one)
    iterations = Iterations()
    await append(streams, BATCH)
    for client in clients:
        assert await client.until(MANY) == list(range(2, MANY + 2))
    assert iterations.number > MANY / 256
    iterations.end()


@pytest.mark.usefixtures("short_slices")
async def test_subscribers_come_and_go_while_a_large_append_is_delivered(
    streams: Streams, hub: Hub
) -> None:
    await append(streams, b"0")
    first = RecordingClient("first")
    one = subscriber(first)
    await hub.attach(one)
    follower = hub.followers["a"]
    await follower.go_live(one)
    await append(streams, BATCH)
    await first.until(1)
    late, leaving = RecordingClient("late"), RecordingClient("leaving")
    comes, goes = subscriber(late), subscriber(leaving)
    for each in (comes, goes):
        await hub.attach(each)
        await follower.go_live(each)
    hub.detach(goes)
    replayed = asyncio.create_task(follower.replay(one, EVERYTHING))
    await append(streams, b"[1,2]")
    whole = list(range(1, MANY + 4))
    # The messages delivered before the replay, then all of them again, in order.
    received = await first.until(MANY + len(whole))
    await replayed
    begin = len(received) - len(whole)
    assert received[begin:] == whole
    assert received[:begin] == list(range(2, begin + 2))
    # It subscribed after the append: it gets what follows, and nothing twice.
    assert (await late.until(2))[-2:] == [MANY + 2, MANY + 3]
    assert late.offsets == sorted(set(late.offsets))
    assert not leaving.offsets


@pytest.mark.usefixtures("short_slices")
async def test_a_large_append_is_replayed_in_order(streams: Streams, hub: Hub) -> None:
    await append(streams, b"0", BATCH, b"1")
    client = RecordingClient()
    one = subscriber(client)
    await hub.attach(one)
    iterations = Iterations()
    position = HistoryPosition(epoch_of((await streams.find("a")).stream.id), 1000)
    await hub.followers["a"].replay(one, MissedMessages(0, {"a": position}))
    assert client.offsets == list(range(1001, MANY + 3))
    assert iterations.number > MANY / 256
    iterations.end()


async def test_a_message_that_is_too_large_is_left_out(streams: Streams, hub: Hub) -> None:
    large = b'"%b"' % (b"a" * CABLE_MESSAGE_BYTES)
    await append(streams, b"1", large, b"3")
    client = RecordingClient()
    one = subscriber(client)
    await hub.attach(one)
    position = HistoryPosition(epoch_of((await streams.find("a")).stream.id), 1)
    await hub.followers["a"].replay(one, MissedMessages(0, {"a": position}))
    assert client.offsets == [3]
    assert client.received[-1]["type"] == "confirm_history"
    await append(streams, large, b"5")
    assert await client.until(2) == [3, 5]
