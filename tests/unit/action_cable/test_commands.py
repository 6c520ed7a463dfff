from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.errors import BadRequest
from tailrace.protocols.action_cable.core.commands import (
    Command,
    HistoryPosition,
    MissedMessages,
    parse,
)


def test_a_command_has_a_name_an_identifier_and_more() -> None:
    text = '{"command":"message","identifier":"{\\"a\\": 1}","data":"{}"}'
    assert parse(text) == Command("message", '{"a": 1}', "{}")
    assert parse('{"command":"pong"}') == Command("pong")


@pytest.mark.parametrize(
    "text", ["", "x", "[]", "1", "null", "{}", '{"command":1}', '{"command":"a","identifier":1}']
)
def test_invalid_commands_are_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        parse(text)


@pytest.mark.parametrize(
    ("given", "history"),
    [
        ({}, MissedMessages(0, {})),
        ({"since": 1700000000}, MissedMessages(1700000000, {})),
        ({"since": 1.5, "streams": {}}, MissedMessages(1.5, {})),
        ({"since": -1}, MissedMessages(0, {})),
        ({"since": True, "streams": []}, MissedMessages(0, {})),
        ({"since": "1"}, MissedMessages(0, {})),
        (
            {"streams": {"a": {"epoch": "e", "offset": 3}, "b": {"epoch": "f", "offset": 0}}},
            MissedMessages(0, {"a": HistoryPosition("e", 3), "b": HistoryPosition("f", 0)}),
        ),
        ({"streams": {"a": {"offset": 3}}}, MissedMessages(0, {"a": HistoryPosition("", 0)})),
        (
            {"streams": {"a": {"epoch": "e", "offset": -1}}},
            MissedMessages(0, {"a": HistoryPosition("", 0)}),
        ),
        ({"streams": {"a": 1}}, MissedMessages(0, {})),
        (None, None),
        ("all", None),
    ],
)
def test_a_history_says_since_when_or_after_what(
    given: Any, history: MissedMessages | None
) -> None:
    text = json.dumps({"command": "history", "identifier": "i", "history": given})
    assert parse(text).history == history


def test_presence_is_an_object_or_nothing() -> None:
    assert parse('{"command":"join","presence":{"id":"a"}}').presence == {"id": "a"}
    assert parse('{"command":"join","presence":"a"}').presence is None
