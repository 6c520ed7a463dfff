"""Who may come back, for how long, and as whom."""

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
from tailrace.protocols.action_cable.core.session import Session
from tailrace.protocols.action_cable.in_process import conversation, hub
from tailrace.protocols.action_cable.in_process.conversation import Conversation
from tailrace.protocols.action_cable.in_process.event_client import EventClient
from tailrace.protocols.action_cable.in_process.hub import Hub
from tailrace.protocols.action_cable.in_process.room import Room
from tailrace.settings import Settings
from tailrace.streams import Streams
from tests.support.aviso import Collected
from tests.support.streams import Clock, serving
from tests.unit.action_cable.test_room import Ear

A = json.dumps({"channel": "$pubsub", "stream_name": "a"})


@pytest.fixture
async def streams(tmp_path: Path) -> AsyncIterator[Streams]:
    async with serving(tmp_path / "data", Clock()) as streams:
        yield streams


def session(sid: str, identity: str = "ada", **settings: Any) -> Session:
    chosen = Settings(**settings)
    return Session(sid, identity, Channels(Authorizer(chosen), chosen))


def subscribed(sid: str, identity: str = "ada") -> Session:
    made = session(sid, identity)
    made.receive(Command("subscribe", A))
    return made


async def test_who_dropped_is_remembered_once_and_as_itself(streams: Streams) -> None:
    place = Hub(streams, Settings())
    one = subscribed("s1")
    place.connect(Ear("s1"), one)
    assert place.recall("s1", "ada") == [A]
    assert place.recall("s1", "eve") is None
    place.disconnect(one)
    assert place.empty.is_set()
    assert place.recall("s1", "eve") is None
    assert place.recall("s1", "ada") == [A]
    assert place.recall("s1", "ada") is None
    assert place.recall("never", "ada") is None


@pytest.mark.parametrize("ttl", [0, 1])
async def test_who_dropped_is_forgotten_after_a_while(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, ttl: int
) -> None:
    place = Hub(streams, Settings(sessions_ttl=ttl))
    one = subscribed("s1")
    place.connect(Ear("s1"), one)
    place.disconnect(one)
    later = time.monotonic() + 2
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert place.recall("s1", "ada") is None


async def test_so_many_are_remembered(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "CABLE_SESSIONS", 3)
    place = Hub(streams, Settings())
    for i in range(5):
        one = subscribed(f"s{i}")
        place.connect(Ear(one.sid), one)
        place.disconnect(one)
    found = [place.recall(f"s{i}", "ada") is not None for i in range(5)]
    assert found == [False, False, True, True, True]


async def test_so_much_is_remembered(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "CABLE_SESSIONS_BYTES", 1000)
    place = Hub(streams, Settings())
    for i in range(10):
        one = subscribed(f"s{i}")
        place.connect(Ear(one.sid), one)
        place.disconnect(one)
    found = [place.recall(f"s{i}", "ada") is not None for i in range(10)]
    assert found == sorted(found)
    assert 1 < sum(found) < 6
    assert place._left_bytes == 0


async def test_a_session_that_cannot_be_resumed_is_not_remembered(streams: Streams) -> None:
    place = Hub(streams, Settings())
    one = Session("s1", "ada", Channels(Authorizer(Settings()), Settings()), resumable=False)
    one.receive(Command("subscribe", A))
    place.connect(Ear("s1"), one)
    place.disconnect(one)
    assert place.recall("s1", "ada") is None


async def test_whispers_have_a_rate(streams: Streams) -> None:
    place = Hub(streams, Settings(whisper_rate=10))
    one, two = Ear("s1"), Ear("s2")
    talks = [Conversation(place, ear, session(ear.sid)) for ear in (one, two)]
    for talk in talks:
        await talk.begin()
        await talk.receive(Command("subscribe", A))
    begun = time.monotonic()
    for i in range(1000):
        await talks[0].receive(Command("whisper", A, i))
    most = 20 + 10 * (time.monotonic() - begun)
    whispers = [each["message"] for each in two.heard if "type" not in each]
    assert whispers[:20] == list(range(20))
    assert len(whispers) <= most
    for talk in talks:
        talk.end()


async def test_commands_beyond_their_rate_wait(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(conversation, "CABLE_COMMAND_BURST", 5)
    monkeypatch.setattr(conversation, "CABLE_COMMAND_RATE", 0.001)
    ear = Ear("s1")
    talk = Conversation(Hub(streams, Settings()), ear, session("s1"))
    await talk.begin()
    monkeypatch.setattr(asyncio, "sleep", sleep)
    for _ in range(6):
        await talk.receive(Command("ping"))
    monkeypatch.undo()
    assert len(slept) == 1
    assert 900 < slept[0] < 1001
    assert [each["type"] for each in ear.heard] == ["welcome", *["pong"] * 6]
    talk.end()


@pytest.mark.parametrize("begins", ["begin", "resume"])
async def test_a_session_ends_with_its_token(streams: Streams, begins: str) -> None:
    class Told(Ear):
        ended = asyncio.Event()

        def end(self, reason: str, *, reconnect: bool) -> None:
            assert (reason, reconnect) == ("token_expired", False)
            self.ended.set()

    ear = Told("s1")
    ear.ended.clear()
    talk = Conversation(Hub(streams, Settings()), ear, session("s1"), lasting=0.01)
    await (talk.begin() if begins == "begin" else talk.resume([A]))
    await asyncio.wait_for(ear.ended.wait(), 120)
    talk.end()


async def test_who_resumes_and_does_not_say_what_it_missed_gets_what_is_new(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Hub(streams, Settings())
    await streams.create("a", Create(b"1", "application/json"))
    ears, talks = [], []
    for sid, hold in (("s1", 10_000), ("s2", 0.01)):
        monkeypatch.setattr(conversation, "CABLE_HOLD_SECONDS", hold)
        ear = Ear(sid)
        talk = Conversation(place, ear, session(sid))
        await talk.resume([A])
        assert ear.heard == [{"type": "welcome", "sid": sid, "restored": True, "restored_ids": [A]}]
        await asyncio.sleep(0)  # the time to hold it begins
        ears.append(ear)
        talks.append(talk)
    await streams.append("a", Append(b"2", "application/json"))
    held, released = ears
    assert await released.until(1) == [2]
    assert held.offsets == []
    for talk in talks:
        talk.end()
    assert not place.rooms


async def test_whispers_reach_who_is_still_catching_up(streams: Streams) -> None:
    place, ear = Hub(streams, Settings()), Ear("s1")
    talk = Conversation(place, ear, session("s1"))
    await talk.resume([A])
    place.rooms["a"].tell('"psst"', whisper=True)
    assert ear.heard[-1]["message"] == "psst"
    talk.end()


async def test_events_end_when_their_subscription_fails(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise their client would get pings, and nothing else, for as long as it stays."""

    async def fail(*_: object) -> None:
        raise OSError("too many open files")

    async def never(_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(Hub, "attach", fail)
    client = EventClient("s1", event_stream.UNWRAPPED)
    talk = Conversation(Hub(streams, Settings()), client, session("s1"))
    converse = client.converse(talk, [Command("subscribe", A)], never, Collected())
    await asyncio.wait_for(converse, 120)
    assert "too many open files" in caplog.text


async def test_a_held_client_that_cannot_be_released_is_told_to_come_again(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise OSError("too many open files")

    ended = asyncio.Event()

    class Told(Ear):
        def end(self, reason: str, *, reconnect: bool) -> None:
            assert (reason, reconnect) == ("server_restart", True)
            ended.set()

    monkeypatch.setattr(conversation, "CABLE_HOLD_SECONDS", 0.001)
    monkeypatch.setattr(Room, "release", fail)
    talk = Conversation(Hub(streams, Settings()), Told("s1"), session("s1"))
    await talk.resume([A])
    await asyncio.wait_for(ended.wait(), 120)
    talk.end()
