"""The hub: resumable sessions, limits of clients, and server-sent events."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.auth.authorizer import Authorizer
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.protocols.action_cable.core import event_stream
from tailrace.protocols.action_cable.core.channels import Channels
from tailrace.protocols.action_cable.core.commands import Command
from tailrace.protocols.action_cable.core.session import EarlierSession, Session
from tailrace.protocols.action_cable.in_process import conversation, hub
from tailrace.protocols.action_cable.in_process.conversation import Conversation
from tailrace.protocols.action_cable.in_process.event_client import EventClient
from tailrace.protocols.action_cable.in_process.hub import Hub
from tailrace.protocols.action_cable.in_process.stream_follower import StreamFollower
from tailrace.settings import Settings
from tailrace.streams import Streams
from tests.support.aviso import CollectingSink
from tests.support.streams import Clock, serving
from tests.unit.action_cable.test_stream_follower import RecordingClient

A = json.dumps({"channel": "$pubsub", "stream_name": "a"})
EARLIER = EarlierSession([A], asks_history=False)
ASKING = EarlierSession([A], asks_history=True)


@pytest.fixture
async def streams(tmp_path: Path) -> AsyncIterator[Streams]:
    async with serving(tmp_path / "data", Clock()) as streams:
        yield streams


def session(sid: str, identity: str = "ada", **settings: Any) -> Session:
    values = Settings(**settings)
    return Session(sid, identity, Channels(Authorizer(values), values))


def subscribed(sid: str, identity: str = "ada") -> Session:
    created = session(sid, identity)
    created.receive(Command("subscribe", A))
    return created


async def test_a_session_is_restored_once_and_for_its_identity_only(streams: Streams) -> None:
    clients_hub = Hub(streams, Settings())
    one = subscribed("s1")
    clients_hub.connect(RecordingClient("s1"), one)
    assert clients_hub.restore("s1", "ada") == EARLIER
    assert clients_hub.restore("s1", "eve") is None
    clients_hub.disconnect(one)
    assert clients_hub.empty.is_set()
    assert clients_hub.restore("s1", "eve") is None
    assert clients_hub.restore("s1", "ada") == EARLIER
    assert clients_hub.restore("s1", "ada") is None
    assert clients_hub.restore("never", "ada") is None


@pytest.mark.parametrize("ttl", [0, 1])
async def test_sessions_expire(streams: Streams, monkeypatch: pytest.MonkeyPatch, ttl: int) -> None:
    clients_hub = Hub(streams, Settings(sessions_ttl=ttl))
    one = subscribed("s1")
    clients_hub.connect(RecordingClient("s1"), one)
    clients_hub.disconnect(one)
    later = time.monotonic() + 2
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert clients_hub.restore("s1", "ada") is None


async def test_the_number_of_resumable_sessions_is_limited(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "CABLE_SESSIONS", 3)
    clients_hub = Hub(streams, Settings())
    for i in range(5):
        one = subscribed(f"s{i}")
        clients_hub.connect(RecordingClient(one.sid), one)
        clients_hub.disconnect(one)
    restored = [clients_hub.restore(f"s{i}", "ada") is not None for i in range(5)]
    assert restored == [False, False, True, True, True]


async def test_the_memory_of_resumable_sessions_is_limited(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "CABLE_SESSIONS_BYTES", 1000)
    clients_hub = Hub(streams, Settings())
    for i in range(10):
        one = subscribed(f"s{i}")
        clients_hub.connect(RecordingClient(one.sid), one)
        clients_hub.disconnect(one)
    restored = [clients_hub.restore(f"s{i}", "ada") is not None for i in range(10)]
    assert restored == sorted(restored)
    assert 1 < sum(restored) < 6
    assert clients_hub._ended_bytes == 0


async def test_a_session_that_cannot_be_resumed_is_not_kept(streams: Streams) -> None:
    clients_hub = Hub(streams, Settings())
    one = Session("s1", "ada", Channels(Authorizer(Settings()), Settings()), resumable=False)
    one.receive(Command("subscribe", A))
    clients_hub.connect(RecordingClient("s1"), one)
    clients_hub.disconnect(one)
    assert clients_hub.restore("s1", "ada") is None


async def test_whispers_are_rate_limited(streams: Streams) -> None:
    clients_hub = Hub(streams, Settings(whisper_rate=10))
    one, two = RecordingClient("s1"), RecordingClient("s2")
    conversations = [
        Conversation(clients_hub, client, session(client.sid)) for client in (one, two)
    ]
    for conversation_ in conversations:
        await conversation_.begin()
        await conversation_.receive(Command("subscribe", A))
    begun = time.monotonic()
    for i in range(1000):
        await conversations[0].receive(Command("whisper", A, i))
    most = 20 + 10 * (time.monotonic() - begun)
    whispers = [each["message"] for each in two.received if "type" not in each]
    assert whispers[:20] == list(range(20))
    assert len(whispers) <= most
    for conversation_ in conversations:
        conversation_.end()


async def test_commands_beyond_their_rate_wait(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(conversation, "CABLE_COMMAND_BURST", 5)
    monkeypatch.setattr(conversation, "CABLE_COMMAND_RATE", 0.001)
    client = RecordingClient("s1")
    conversation_ = Conversation(Hub(streams, Settings()), client, session("s1"))
    await conversation_.begin()
    monkeypatch.setattr(asyncio, "sleep", sleep)
    for _ in range(6):
        await conversation_.receive(Command("ping"))
    monkeypatch.undo()
    assert len(slept) == 1
    assert 900 < slept[0] < 1001
    assert [each["type"] for each in client.received] == ["welcome", *["pong"] * 6]
    conversation_.end()


@pytest.mark.parametrize("begins", ["begin", "resume"])
async def test_a_session_ends_with_its_token(streams: Streams, begins: str) -> None:
    class Told(RecordingClient):
        ended = asyncio.Event()

        def end(self, reason: str, *, reconnect: bool) -> None:
            assert (reason, reconnect) == ("token_expired", False)
            self.ended.set()

    client = Told("s1")
    client.ended.clear()
    conversation_ = Conversation(
        Hub(streams, Settings()), client, session("s1"), token_seconds=0.01
    )
    await (conversation_.begin() if begins == "begin" else conversation_.begin(lambda _: ASKING))
    await asyncio.wait_for(client.ended.wait(), 120)
    conversation_.end()


async def test_messages_are_held_back_until_a_resumed_client_should_have_asked(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients_hub = Hub(streams, Settings())
    await streams.create("a", Create(b"1", "application/json"))
    clients, conversations = [], []
    for sid, hold in (("s1", 10_000), ("s2", 0.01)):
        monkeypatch.setattr(conversation, "CABLE_HISTORY_REQUEST_SECONDS", hold)
        client = RecordingClient(sid)
        conversation_ = Conversation(clients_hub, client, session(sid))
        await conversation_.begin(lambda _: ASKING)
        assert client.received == [
            {"type": "welcome", "sid": sid, "restored": True, "restored_ids": [A]}
        ]
        await asyncio.sleep(0)  # the hold time begins
        clients.append(client)
        conversations.append(conversation_)
    await streams.append("a", Append(b"2", "application/json"))
    held, released = clients
    assert await released.until(1) == [2]
    assert held.offsets == []
    for conversation_ in conversations:
        conversation_.end()
    assert not clients_hub.followers


async def test_a_resumed_client_that_never_asks_gets_new_messages_at_once(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "CABLE_HISTORY_REQUEST_SECONDS", 10_000)
    await streams.create("a", Create(b"1", "application/json"))
    client = RecordingClient("s1")
    conversation_ = Conversation(Hub(streams, Settings()), client, session("s1"))
    await conversation_.begin(lambda _: EARLIER)
    await streams.append("a", Append(b"2", "application/json"))
    assert await client.until(1) == [2]
    conversation_.end()


async def test_whispers_reach_who_is_still_catching_up(streams: Streams) -> None:
    clients_hub, client = Hub(streams, Settings()), RecordingClient("s1")
    conversation_ = Conversation(clients_hub, client, session("s1"))
    await conversation_.begin(lambda _: ASKING)
    clients_hub.followers["a"].send_transient('"psst"', whisper=True)
    assert client.received[-1]["message"] == "psst"
    conversation_.end()


async def test_events_end_when_their_subscription_fails(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise the client would get nothing but pings."""

    async def fail(*_: object) -> None:
        raise OSError("too many open files")

    monkeypatch.setattr(Hub, "attach", fail)
    client = EventClient("s1", event_stream.UNWRAPPED, CollectingSink())
    conversation_ = Conversation(Hub(streams, Settings()), client, session("s1"))
    converse = client.converse(conversation_, [Command("subscribe", A)])
    await asyncio.wait_for(converse, 120)
    assert "too many open files" in caplog.text


async def test_a_resumed_client_whose_release_fails_must_reconnect(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise OSError("too many open files")

    ended = asyncio.Event()

    class Told(RecordingClient):
        def end(self, reason: str, *, reconnect: bool) -> None:
            assert (reason, reconnect) == ("server_restart", True)
            ended.set()

    monkeypatch.setattr(conversation, "CABLE_HISTORY_REQUEST_SECONDS", 0.001)
    monkeypatch.setattr(StreamFollower, "go_live", fail)
    conversation_ = Conversation(Hub(streams, Settings()), Told("s1"), session("s1"))
    await conversation_.begin(lambda _: ASKING)
    await asyncio.wait_for(ended.wait(), 120)
    conversation_.end()
