"""Cable messages as server-sent events, without a server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.errors import BadParameter, BadRequest
from tailrace.protocols.action_cable.core import frames
from tailrace.protocols.action_cable.core.commands import Command, HistoryPosition, MissedMessages
from tailrace.protocols.action_cable.core.contents import Message
from tailrace.protocols.action_cable.core.event_stream import (
    ENVELOPES,
    RAW,
    UNWRAPPED,
    commands_of,
    identifier_of,
    is_raw,
    missed_of,
)


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        ({"channel": ["ChatChannel"]}, {"channel": "ChatChannel"}),
        ({"stream": ["a/1"]}, {"channel": "$pubsub", "stream_name": "a/1"}),
        ({"signed_stream": ["x--y"]}, {"channel": "$pubsub", "signed_stream_name": "x--y"}),
        (
            {"turbo_signed_stream_name": ["x--y"]},
            {"channel": "Turbo::StreamsChannel", "signed_stream_name": "x--y"},
        ),
        ({"identifier": ['{"channel":"a"}'], "stream": ["b"]}, {"channel": "a"}),
        ({"channel": [""], "stream": ["b"]}, {"channel": "$pubsub", "stream_name": "b"}),
    ],
)
def test_the_query_names_the_stream(query: Any, fields: Any) -> None:
    assert json.loads(identifier_of(query)) == fields


def test_a_query_without_a_stream_is_refused() -> None:
    with pytest.raises(BadParameter):
        identifier_of({"jid": ["x"]})


@pytest.mark.parametrize(
    ("query", "last_id", "history"),
    [
        ({}, None, None),
        ({}, "7/beef/chat/42", MissedMessages(0, {"chat/42": HistoryPosition("beef", 7)})),
        ({}, "7/e/a%0A%25/b", MissedMessages(0, {"a\n%/b": HistoryPosition("e", 7)})),
        ({"history_since": ["5"]}, "7/e/s", MissedMessages(0, {"s": HistoryPosition("e", 7)})),
        ({"history_since": ["1700000000"]}, None, MissedMessages(1700000000.0, {})),
        ({"history_since": ["1.5"]}, "nonsense", MissedMessages(1.5, {})),
        ({}, "x/e/s", None),
        ({}, "7/e", None),
    ],
)
def test_missed_messages_of_a_request(
    query: Any, last_id: str | None, history: MissedMessages | None
) -> None:
    assert missed_of(query, last_id) == history


@pytest.mark.parametrize("given", ["x", "-1", "1e3", "nan", "1."])
def test_a_time_is_a_time(given: str) -> None:
    with pytest.raises(BadParameter):
        missed_of({"history_since": [given]}, None)


def test_raw_is_a_switch() -> None:
    assert all(is_raw({"raw": [each]}) for each in ("1", "true", "t", "y", "T"))
    assert not any(is_raw({"raw": [each]}) for each in ("", "0", "no"))
    assert not is_raw({})


def test_commands_are_lines() -> None:
    body = b'{"command":"subscribe","identifier":"i"}\n\n{"command":"ping"}\n'
    assert commands_of(body) == [Command("subscribe", "i"), Command("ping")]
    for bad in (b"", b"\n", b"x", b'{"command":"ping"}'):
        with pytest.raises(BadRequest):
            commands_of(bad)


def test_a_message_has_no_name_and_says_where_it_is() -> None:
    message = Message(7, 1, '{"a":1}')
    assert UNWRAPPED.data("i", message, "chat/42", "beef", None) == (
        'data: {"a":1}\nid: 7/beef/chat/42\n\n'
    )
    assert ENVELOPES.data("i", message, "chat/42", "beef", None) == (
        'data: {"identifier":"i","message":{"a":1},"stream_id":"chat/42","epoch":"beef",'
        '"offset":7}\nid: 7/beef/chat/42\n\n'
    )


def test_a_name_with_line_breaks_forges_no_event() -> None:
    for encoder in (UNWRAPPED, ENVELOPES):
        found = encoder.data("i", Message(1, 1, "1"), "a\n\ndata: b%", "e", None)
        assert found.endswith("\nid: 1/e/a%0A%0Adata:%20b%25\n\n")


def test_a_string_arrives_as_its_text_line_by_line() -> None:
    text = json.dumps("<p>\r\nevent: ping\r</p>")
    found = UNWRAPPED.data("i", Message(1, 1, text), "s", "e", None)
    assert found == "data: <p>\ndata: event: ping\ndata: </p>\nid: 1/e/s\n\n"


def test_json_of_several_lines_stays_in_its_event() -> None:
    found = UNWRAPPED.data("i", Message(1, 1, '{\n"a":1}'), "s", "e", None)
    assert found == 'data: {\ndata: "a":1}\nid: 1/e/s\n\n'


def test_transient_messages_have_no_id() -> None:
    assert UNWRAPPED.transient("i", "[1]", "custom") == "data: [1]\n\n"
    assert UNWRAPPED.transient("i", "{}", "presence") == "event: presence\ndata: {}\n\n"
    assert ENVELOPES.transient("i", "1", None) == 'data: {"identifier":"i","message":1}\n\n'


def test_other_frames_are_events_of_their_name() -> None:
    assert UNWRAPPED.control(frames.welcome("s")) == (
        'event: welcome\ndata: {"type":"welcome","sid":"s"}\n\n'
    )


def test_a_final_disconnect_has_a_long_retry() -> None:
    said = UNWRAPPED.control(frames.disconnect("remote", reconnect=False))
    assert said.endswith("\nretry: 31536000000\n\n")
    assert "retry" not in UNWRAPPED.control(frames.disconnect("remote", reconnect=True))


def test_raw_has_nothing_but_messages() -> None:
    assert RAW.control(frames.welcome("s")) == ": welcome\n\n"
    assert RAW.control(frames.disconnect("remote", reconnect=True)) == ""
    assert RAW.control(frames.ping(1)).startswith(":")
