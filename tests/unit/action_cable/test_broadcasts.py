"""Parsing of broadcasts."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from tailrace.errors import BadBroadcast, BodyTooLarge
from tailrace.limits import BROADCAST_BATCH_MESSAGES, BROADCAST_BYTES
from tailrace.protocols.action_cable.core.broadcasts import Disconnect, Publication, parse


def parsed(asked: Any) -> Any:
    return parse(json.dumps(asked).encode())


def text_of(data: str) -> bytes:
    (publication,) = parsed({"stream": "s", "data": data})
    text: bytes = publication.text
    return text


def test_one_publication() -> None:
    assert parsed({"stream": "chat/é", "data": "{}"}) == [
        Publication("chat/é", "chat/%C3%A9", b"{}")
    ]


def test_several_publications_keep_their_order() -> None:
    asked = [{"stream": name, "data": "1"} for name in "bab"]
    assert [each.stream for each in parsed(asked)] == ["b", "a", "b"]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ('{"b": 1,  "a": 1.0}', b'{"b": 1,  "a": 1.0}'),
        (" [1, 2]\n", b"[1, 2]"),
        ("[]", b"[]"),
        ("null", b"null"),
        ('"text"', b'"text"'),
        ("12345678901234567890123", b"12345678901234567890123"),
        ("plain text", b'"plain text"'),
        ("1,2", b'"1,2"'),
        ("", b'""'),
        ("NaN", b'"NaN"'),
        ('"<\u2028é', '"\\"<\u2028é"'.encode()),
        ("\ufeff{}", b"{}"),
    ],
)
def test_json_is_unchanged_and_anything_else_becomes_a_string(data: str, text: bytes) -> None:
    assert text_of(data) == text


def test_a_text_takes_no_more_memory_than_its_length() -> None:
    """The newest are kept in memory, as many as their lengths allow."""
    tracemalloc.start()
    try:
        texts = [text_of(f"plain text {number}") for number in range(1000)]
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 1000 * 200
    assert len({*texts}) == 1000


def test_the_options_of_a_publication() -> None:
    meta = {"exclude_socket": "s1", "transient": True, "broadcast_type": "custom", "other": [1]}
    (found,) = parsed({"stream": "s", "data": "1", "meta": meta})
    assert found == Publication("s", "s", b"1", "s1", transient=True, kind="custom")
    (plain,) = parsed({"stream": "s", "data": "1", "meta": {"transient": False}})
    assert plain == Publication("s", "s", b"1")
    assert found.has_options
    assert not plain.has_options


@pytest.mark.parametrize("reconnect", [True, False, None])
def test_the_disconnect_command(reconnect: bool | None) -> None:
    payload = {"identifier": '{"user":1}', "reconnect": reconnect}
    assert parsed({"command": "disconnect", "payload": payload}) == Disconnect(
        '{"user":1}', reconnect is True
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"x",
        b"1",
        b"null",
        b"[]",
        b"{}",
        b"[1]",
        b'{"stream":"s"}',
        b'{"data":"1"}',
        b'{"stream":"s","data":1}',
        b'{"stream":"s","data":{"a":1}}',
        b'{"stream":7,"data":"1"}',
        b'{"stream":"","data":"1"}',
        b'{"stream":"a/../b","data":"1"}',
        b'{"stream":"__ds/x","data":"1"}',
        b'{"stream":"a\\u0000","data":"1"}',
        b'{"stream":"\\ud800","data":"1"}',
        b'{"stream":"s","data":"1","meta":[]}',
        b'{"stream":"s","data":"1","meta":{"exclude_socket":1}}',
        b'{"stream":"s","data":"1","meta":{"broadcast_type":{}}}',
        b'[{"stream":"s","data":"1"},{"data":"2"}]',
        b'{"command":"dance"}',
        b'{"command":"disconnect"}',
        b'{"command":"disconnect","payload":{"identifier":""}}',
        b'{"command":"disconnect","payload":{"identifier":{"user":1}}}',
    ],
)
def test_garbage_is_refused(body: bytes) -> None:
    with pytest.raises(BadBroadcast):
        parse(body)


def test_a_request_has_limits() -> None:
    one = {"stream": "a", "data": "1"}
    assert len(parsed([one] * BROADCAST_BATCH_MESSAGES)) == BROADCAST_BATCH_MESSAGES
    with pytest.raises(BadBroadcast, match=str(BROADCAST_BATCH_MESSAGES)):
        parsed([one] * (BROADCAST_BATCH_MESSAGES + 1))
    body = json.dumps(one).encode()
    assert parse(body.ljust(BROADCAST_BYTES))
    with pytest.raises(BodyTooLarge):
        parse(body.ljust(BROADCAST_BYTES + 1))
