from __future__ import annotations

import base64
import json

import pytest

from tailrace.limits import JSON_SPLIT_BYTES
from tailrace.log.content import Mode
from tailrace.protocols.action_cable.core import contents
from tailrace.protocols.action_cable.core.contents import Message, batches, messages


@pytest.mark.parametrize("start", [None, 4])
def test_each_append_of_one_message_is_a_message(start: int | None) -> None:
    bodies = [b'{"a": 1}', b"[1, 2]", b'"x,y"']
    assert messages(Mode.JSON, bodies, 7, start) == [
        Message(5, 1, '{"a": 1}'),
        Message(6, 1, "[1, 2]"),
        Message(7, 1, '"x,y"'),
    ]


@pytest.mark.parametrize("start", [None, 0])
def test_an_append_of_several_messages_is_split(start: int | None) -> None:
    found = messages(Mode.JSON, [b'{"a":1},  2', b"3"], 3, start)
    assert found == [Message(1, 1, '{"a":1}'), Message(2, 1, "2"), Message(3, 1, "3")]


def test_text_is_a_string_for_each_append() -> None:
    found = messages(Mode.TEXT, ["é\n".encode(), b'"'], 10)
    assert [(each.offset, each.length) for each in found] == [(9, 3), (10, 1)]
    assert [json.loads(each.text) for each in found] == ["é\n", '"']


def test_text_that_is_no_utf8_is_readable_nevertheless() -> None:
    (found,) = messages(Mode.TEXT, [b"a\xff"], 2)
    assert json.loads(found.text) == "a\ufffd"


def test_bytes_are_base64() -> None:
    (found,) = messages(Mode.BYTES, [bytes(range(256))], 256)
    assert base64.b64decode(json.loads(found.text)) == bytes(range(256))
    assert found.offset == 256


def test_nothing_is_nothing() -> None:
    for mode in Mode:
        assert messages(mode, [], 9) == []


@pytest.mark.parametrize("mode", [Mode.JSON, Mode.TEXT, Mode.BYTES])
def test_a_message_that_is_too_large_has_no_text(mode: Mode) -> None:
    small, large = b"1", b'"%b"' % (b"a" * 20)
    end = 3 if mode is Mode.JSON else 24
    found = [each for some in batches(mode, [small, large, small], 0, end, 20) for each in some]
    assert [bool(each.text) for each in found] == [True, False, True]
    assert [each.offset for each in found] == ([1, 2, 3] if mode is Mode.JSON else [1, 23, 24])


@pytest.mark.parametrize("mode", [Mode.TEXT, Mode.BYTES])
def test_large_appends_are_quoted_in_pieces(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = ['a"é\n\r\u20ac😀'.encode() * 3 + b"\xff\xe2\x82x\xf0\x9f", b""]
    whole = messages(mode, bodies, 100)
    for size in (3, 4, 5, 7):
        monkeypatch.setattr(contents, "EVENT_STEP_BYTES", size)
        assert messages(mode, bodies, 100) == whole


def test_work_is_bounded_in_each_step() -> None:
    body = b",".join([b"1"] * 100_000)
    steps = list(batches(Mode.JSON, [body, b"2", b"[%b]" % body], 0, 100_002))
    assert max(map(len, steps)) <= 256
    assert sum(map(len, steps)) == 100_002
    # Most steps of a large message yield nothing.
    assert steps.count([]) > len(body) // JSON_SPLIT_BYTES // 2
