from __future__ import annotations

import base64
import json

import pytest

from tailrace.cable.contents import Message, messages
from tailrace.log.content import Mode


@pytest.mark.parametrize("start", [None, 4])
def test_each_append_of_one_message_is_a_message(start: int | None) -> None:
    bodies = [b'{"a": 1}', b"[1, 2]", b'"x,y"']
    assert messages(Mode.JSON, bodies, 7, 7, start) == [
        Message(7, 5, 1, '{"a": 1}'),
        Message(8, 6, 1, "[1, 2]"),
        Message(9, 7, 1, '"x,y"'),
    ]


@pytest.mark.parametrize("start", [None, 0])
def test_an_append_of_several_is_taken_apart(start: int | None) -> None:
    found = messages(Mode.JSON, [b'{"a":1},  2', b"3"], 0, 3, start)
    assert found == [
        Message(0, 1, 1, '{"a":1}'),
        Message(0, 2, 1, "2"),
        Message(1, 3, 1, "3"),
    ]


def test_text_is_a_string_for_each_append() -> None:
    found = messages(Mode.TEXT, ["é\n".encode(), b'"'], 3, 10)
    assert [(each.slot, each.offset, each.length) for each in found] == [(3, 9, 3), (4, 10, 1)]
    assert [json.loads(each.text) for each in found] == ["é\n", '"']


def test_text_that_is_no_utf8_is_readable_nevertheless() -> None:
    (found,) = messages(Mode.TEXT, [b"a\xff"], 0, 2)
    assert json.loads(found.text) == "a\ufffd"


def test_bytes_are_base64() -> None:
    (found,) = messages(Mode.BYTES, [bytes(range(256))], 0, 256)
    assert base64.b64decode(json.loads(found.text)) == bytes(range(256))
    assert found.offset == 256


def test_nothing_is_nothing() -> None:
    for mode in Mode:
        assert messages(mode, [], 5, 9) == []
