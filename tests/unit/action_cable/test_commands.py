from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.errors import BadRequest
from tailrace.protocols.action_cable.core.commands import Command, History, Position, parse


def test_a_command_has_a_name_an_identifier_and_more() -> None:
    text = '{"command":"message","identifier":"{\\"a\\": 1}","data":"{}"}'
    assert parse(text) == Command("message", '{"a": 1}', "{}")
    assert parse('{"command":"pong"}') == Command("pong")


@pytest.mark.parametrize(
    "text", ["", "x", "[]", "1", "null", "{}", '{"command":1}', '{"command":"a","identifier":1}']
)
def test_what_is_no_command_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        parse(text)


@pytest.mark.parametrize(
    ("given", "history"),
    [
        ({}, History(0, {})),
        ({"since": 1700000000}, History(1700000000, {})),
        ({"since": 1.5, "streams": {}}, History(1.5, {})),
        ({"since": -1}, History(0, {})),
        ({"since": True, "streams": []}, History(0, {})),
        ({"since": "1"}, History(0, {})),
        (
            {"streams": {"a": {"epoch": "e", "offset": 3}, "b": {"epoch": "f", "offset": 0}}},
            History(0, {"a": Position("e", 3), "b": Position("f", 0)}),
        ),
        ({"streams": {"a": {"offset": 3}}}, History(0, {"a": Position("", 0)})),
        ({"streams": {"a": {"epoch": "e", "offset": -1}}}, History(0, {"a": Position("", 0)})),
        ({"streams": {"a": 1}}, History(0, {})),
        (None, None),
        ("all", None),
    ],
)
def test_a_history_says_since_when_or_after_what(given: Any, history: History | None) -> None:
    text = json.dumps({"command": "history", "identifier": "i", "history": given})
    assert parse(text).history == history


def test_presence_is_an_object_or_nothing() -> None:
    assert parse('{"command":"join","presence":{"id":"a"}}').presence == {"id": "a"}
    assert parse('{"command":"join","presence":"a"}').presence is None
