"""Commands and the frames that they cause, with one function for each command."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tailrace.protocols.action_cable.api_gateway import command_handler
from tests.integration.action_cable.api_gateway.world import World
from tests.support.cable import SECRET, pubsub, signed

A = pubsub("a")
ALL = {"since": 1}


async def publish(world: World, *bodies: bytes, content_type: str = "application/json") -> None:
    await world.append("a", *bodies, content_type=content_type)
    await world.dispatch()


def place(world: World, name: str, back: int = 0) -> dict[str, Any]:
    """The position of a client, or its position `back` messages ago."""
    last = [each for each in world.heard(name) if "stream_id" in each][-1 - back]
    return {"streams": {"a": {"epoch": last["epoch"], "offset": last["offset"]}}}


@pytest.fixture
async def listening(world: World) -> World:
    """The clients one and two have subscribed to `a`."""
    await world.create("a")
    for name in ("one", "two"):
        await world.connect(name)
        await world.subscribe(name, "a")
    return world


# Subscribing


async def test_a_repeated_subscribe_is_confirmed_and_delivers_once(listening: World) -> None:
    await listening.subscribe("one", "a")
    assert listening.heard("one") == [{"type": "confirm_subscription", "identifier": A}] * 2
    await publish(listening, b"1")
    assert listening.messages("one") == [1]


@pytest.mark.parametrize(
    "identifier",
    [
        '{"channel":"ChatChannel"}',
        '{"channel":"Turbo::StreamsChannel","signed_stream_name":"x"}',
        '{"channel":"$pubsub","signed_stream_name":"ImEi--00"}',
        "no JSON",
        pubsub(""),
    ],
)
async def test_unknown_and_forbidden_channels_are_rejected(world: World, identifier: str) -> None:
    await world.connect("one")
    await world.say("one", "subscribe", identifier)
    assert world.heard("one") == [{"type": "reject_subscription", "identifier": identifier}]
    assert await world.items("LUR") == []


async def test_signed_names_are_verified(world: World) -> None:
    world.settings = replace(world.settings, access="private", secret=SECRET)
    await world.create("a")
    await world.connect("one")
    forged = signed("a").replace("--", "--0")
    for identifier in (signed("a"), forged, A):
        await world.say("one", "subscribe", identifier)
    assert world.types("one") == [
        "confirm_subscription",
        "reject_subscription",
        "reject_subscription",
    ]
    await publish(world, b"1")
    assert world.messages("one") == [1]


async def test_a_stream_is_delivered_once_per_identifier(listening: World) -> None:
    other = json.dumps({"channel": "$pubsub", "stream_name": "a", "tab": 2})
    await listening.say("one", "subscribe", other)
    await publish(listening, b"1")
    assert sorted(each["identifier"] for each in listening.heard("one")[2:]) == sorted([A, other])
    await listening.say("one", "unsubscribe", A, at=listening.clock() + 1)
    await publish(listening, b"2")
    assert [each["identifier"] for each in listening.heard("one")[4:]] == [other]


async def test_unsubscribing_ends_messages_and_is_not_answered(listening: World) -> None:
    await listening.say("one", "unsubscribe", A, at=listening.clock() + 1)
    await listening.say("one", "unsubscribe", pubsub("unknown"))
    await publish(listening, b"1")
    assert listening.types("one") == ["confirm_subscription"]
    assert listening.messages("two") == [1]


async def test_a_ping_is_answered_and_unknown_commands_are_ignored(listening: World) -> None:
    await listening.say("one", "ping")
    await listening.say("one", "message", A, data="{}")
    await listening.say("one", "dance", A)
    assert listening.types("one") == ["confirm_subscription", "pong"]


# Messages


async def test_messages_of_text_and_of_bytes(world: World) -> None:
    await world.connect("one")
    for path, kind in {"t": "text/plain", "b": "application/octet-stream"}.items():
        await world.create(path, content_type=kind)
        await world.subscribe("one", path)
        await world.append(path, "né".encode(), b"\xff", content_type=kind)
        await world.dispatch()
    heard = [each for each in world.heard("one") if "stream_id" in each]
    assert [each["message"] for each in heard] == ["né", "\ufffd", "bsOp", "/w=="]
    assert [each["offset"] for each in heard] == [3, 4, 3, 4]


async def test_a_message_carries_its_position(listening: World) -> None:
    await publish(listening, b'[{"x": 1.50}, [2]]')
    first, second = listening.gateway_api.sent["one"][1:]
    epoch = json.loads(first)["epoch"]
    quoted = json.dumps(A)
    rest = f'"stream_id":"a","epoch":"{epoch}","offset"'
    assert first == f'{{"identifier":{quoted},"message":{{"x": 1.50}},{rest}:1}}'
    assert second == f'{{"identifier":{quoted},"message":[2],{rest}:2}}'


async def test_a_body_that_is_too_large_for_an_item_is_delivered(listening: World) -> None:
    body = json.dumps(["x" * 100_000] * 5).encode()
    await publish(listening, body)
    assert [len(each) for each in listening.messages("one")] == [100_000] * 5


# Whispers


async def test_a_whisper_reaches_the_others_and_is_not_kept(listening: World) -> None:
    await listening.connect("silent")
    await listening.say("one", "whisper", A, data={"typing": True})
    assert listening.heard("two")[1:] == [{"identifier": A, "message": {"typing": True}}]
    assert listening.types("one") == ["confirm_subscription"]
    assert listening.heard("silent") == []
    await publish(listening, b"1")
    assert listening.messages("one") == [1]


async def test_a_whisper_needs_a_subscription(listening: World) -> None:
    await listening.connect("three")
    await listening.say("three", "whisper", A, data=1)
    assert listening.types("two") == ["confirm_subscription"]


async def test_signed_streams_carry_no_whispers_by_default(world: World) -> None:
    world.settings = replace(
        world.settings,
        access="private",
        secret=SECRET,
        public_streams="a",
        streams_whisper=False,
    )
    for name, identifier in {"one": A, "two": A, "signed": signed("a")}.items():
        await world.connect(name)
        await world.say(name, "subscribe", identifier)
    await world.say("one", "whisper", A, data=1)
    await world.say("signed", "whisper", signed("a"), data=2)
    assert [each["message"] for each in world.heard("two")[1:]] == [1]
    assert world.types("one") == world.types("signed") == ["confirm_subscription"]


# MissedMessages


async def test_history_since_a_time(world: World) -> None:
    await world.create("a", b"1")
    await world.append("a", b"2")
    await world.connect("one")
    await world.subscribe("one", "a", history=ALL)
    assert world.types("one") == ["confirm_subscription", *["message"] * 2, "confirm_history"]
    await world.connect("two")
    later = {"since": world.clock() // 1000 + 100}
    await world.subscribe("two", "a", history=later)
    assert world.types("two") == ["confirm_subscription", "confirm_history"]
    await publish(world, b"3")
    assert world.messages("one") == [1, 2, 3]
    assert world.messages("two") == [3]


async def test_history_after_a_message_in_the_middle_of_an_append(world: World) -> None:
    await world.create("a", b"[1,2,3]")
    await world.append("a", b"4")
    await world.connect("one")
    await world.subscribe("one", "a", history=ALL)
    await world.connect("two")
    await world.subscribe("two", "a", history=place(world, "one", back=3))
    assert world.messages("two") == [2, 3, 4]
    assert world.types("two")[-1] == "confirm_history"


@pytest.mark.parametrize("change", [{"epoch": "0"}, {"offset": 99}, {"offset": -1}])
async def test_an_unknown_position_is_rejected(world: World, change: dict[str, Any]) -> None:
    await world.create("a", b"[1,2]")
    await world.connect("one")
    await world.subscribe("one", "a", history=ALL)
    asked = place(world, "one")
    asked["streams"]["a"] |= change
    await world.connect("two")
    await world.subscribe("two", "a", history=asked)
    assert world.types("two") == ["confirm_subscription", "reject_history"]
    await publish(world, b"3")
    assert world.messages("two") == [3]


async def test_a_position_of_a_recreated_stream_is_rejected(listening: World) -> None:
    await publish(listening, b"1")
    asked = place(listening, "one")
    await listening.delete("a")
    await listening.create("a", b"2")
    await listening.dispatch()
    assert listening.messages("one") == [1, 2]
    await listening.connect("three")
    await listening.subscribe("three", "a", history=asked)
    assert listening.types("three") == ["confirm_subscription", "reject_history"]


async def test_history_over_the_limit_is_rejected(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_handler, "GATEWAY_HISTORY_MESSAGES", 3)
    await world.create("a", b"1")
    await world.append("a", b"2", b"3")
    for name in ("one", "two"):
        await world.connect(name)
        await world.subscribe(name, "a", history=ALL)
        await publish(world, b"4")
    assert world.messages("one") == [1, 2, 3, 4, 4]
    assert world.types("two") == ["confirm_subscription", "reject_history", "message"]


async def test_history_needs_a_subscription(world: World) -> None:
    await world.connect("one")
    await world.say("one", "history", A, history=ALL)
    assert world.heard("one") == [{"type": "reject_history", "identifier": A}]
