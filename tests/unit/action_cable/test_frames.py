from __future__ import annotations

import json

import pytest

from tailrace.protocols.action_cable.core import frames
from tailrace.protocols.action_cable.core.contents import Message
from tailrace.protocols.action_cable.core.encoders import SOCKET

IDENTIFIER = '{"channel": "$pubsub",  "stream_name":"chat/é"}'


def test_a_welcome_names_the_session() -> None:
    assert frames.welcome("s1") == '{"type":"welcome","sid":"s1"}'


def test_a_welcome_to_who_resumed_names_what_is_restored() -> None:
    assert frames.welcome("s2", [IDENTIFIER]) == (
        f'{{"type":"welcome","sid":"s2","restored":true,"restored_ids":[{quoted(IDENTIFIER)}]}}'
    )
    assert frames.welcome("s2", []) == '{"type":"welcome","sid":"s2","restored":true}'


def test_a_ping_has_a_time_and_a_pong_has_nothing() -> None:
    assert frames.ping(1794785941) == '{"type":"ping","message":1794785941}'
    assert frames.PONG == '{"type":"pong"}'


@pytest.mark.parametrize(
    "kind", ["confirm_subscription", "reject_subscription", "confirm_history", "reject_history"]
)
def test_an_identifier_is_echoed_as_it_came(kind: str) -> None:
    frame = getattr(frames, kind)(IDENTIFIER)
    assert frame == f'{{"type":"{kind}","identifier":{quoted(IDENTIFIER)}}}'
    assert json.loads(frame)["identifier"] == IDENTIFIER


@pytest.mark.parametrize("reconnect", [True, False])
def test_a_disconnect_always_says_whether_to_come_back(reconnect: bool) -> None:
    frame = frames.disconnect("remote", reconnect=reconnect)
    said = "true" if reconnect else "false"
    assert frame == f'{{"type":"disconnect","reason":"remote","reconnect":{said}}}'


@pytest.mark.parametrize("text", ['{"b":1, "a":1.0}', "12345678901234567890", '"<&>\\u2028"'])
def test_a_message_is_put_in_as_it_is_stored(text: str) -> None:
    frame = frames.data("i", text, "ws/1", "lKxv", 1)
    assert frame == (
        f'{{"identifier":"i","message":{text},"stream_id":"ws/1","epoch":"lKxv","offset":1}}'
    )


def test_a_message_has_the_type_that_its_publisher_gave_it() -> None:
    frame = frames.data("i", "1", "ws/1", "e", 1, 'cu"stom')
    assert frame.startswith('{"type":"cu\\"stom","identifier":"i","message":1,')


def test_a_message_that_is_in_no_stream_has_no_place() -> None:
    assert frames.transient("i", "[1]") == '{"identifier":"i","message":[1]}'
    assert frames.presence("i", "{}") == '{"type":"presence","identifier":"i","message":{}}'


def test_a_websocket_gets_frames_as_they_are() -> None:
    message = Message(7, 1, "{}")
    assert SOCKET.data("i", message, "s", "e", None) == frames.data("i", "{}", "s", "e", 7)
    assert SOCKET.control(frames.PONG) == frames.PONG


@pytest.mark.parametrize(
    ("offered", "spoken"),
    [
        (["actioncable-v1-json", "actioncable-unsupported"], frames.JSON),
        (["actioncable-v1-ext-json"], frames.EXTENDED),
        (["actioncable-v1-ext-json", "actioncable-v1-json"], frames.JSON),
        (["actioncable-v1-ext-json", "anycable-token.x"], frames.EXTENDED),
        (["graphql-ws"], None),
        ([], None),
    ],
)
def test_the_servers_order_of_protocols_wins(offered: list[str], spoken: str | None) -> None:
    assert frames.choose_protocol(offered) == spoken


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
