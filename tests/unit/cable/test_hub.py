"""Who may come back, for how long, and as whom."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.auth.policy import Door
from tailrace.cable.channels import Channels
from tailrace.cable.commands import Command
from tailrace.cable.local import conversation, hub
from tailrace.cable.local.conversation import Conversation
from tailrace.cable.local.hub import Hub
from tailrace.cable.session import Session
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.settings import Settings
from tailrace.streams import Streams
from tests.support.streams import Clock, serving
from tests.unit.cable.test_room import Ear

A = json.dumps({"channel": "$pubsub", "stream_name": "a"})


@pytest.fixture
async def streams(tmp_path: Path) -> AsyncIterator[Streams]:
    async with serving(tmp_path / "data", Clock()) as streams:
        yield streams


def session(sid: str, identity: str = "ada", **settings: Any) -> Session:
    chosen = Settings(**settings)
    return Session(sid, identity, Channels(Door(chosen), chosen))


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
