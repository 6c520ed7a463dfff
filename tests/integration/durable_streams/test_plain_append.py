"""Appends without a task of their own: the same answers, byte for byte, as on the general path."""

from __future__ import annotations

import re
from collections.abc import Callable

import httpx
import pytest

from tests.integration.durable_streams.conftest import Connect
from tests.support.wire import CLOSE, JSON, TEXT, chunked, request, target

Append = Callable[[str, dict[str, str]], bytes]
"""Encodes requests for the stream at a path, with more header fields."""

GENERAL = {"origin": "http://localhost"}
"""A field that changes no answer here, and that a plain append does not have."""

STREAMS: dict[str, list[tuple[str, dict[str, str], bytes]]] = {
    "json": [("PUT", JSON, b"[1]")],
    "text": [("PUT", TEXT, b"")],
    "closed": [("PUT", JSON, b"1"), ("POST", CLOSE, b"")],
    "expiring": [("PUT", JSON | {"stream-ttl": "3600"}, b"")],
    "deleted": [("PUT", JSON, b"1"), ("DELETE", {}, b"")],
    "missing": [],
}

BODIES = (
    b"2", b"[2, 3]", b"[]", b" [ 4 ]\n", b"", b"{", b"[1,]", b'{"a": "\xff"}', b"x" * 70_000,
    b"[" + b"1," * 200_000 + b"1]",
)  # fmt: skip

HEADERS: tuple[dict[str, str], ...] = (
    JSON,
    TEXT,
    {},
    {"content-type": ""},
    {"content-type": " Application/JSON ; charset=utf-8 "},
    JSON | {"connection": "close"},
    JSON | {"expect": "100-continue"},
    JSON | {"user-agent": "a", "accept": "*/*", "x-other": "b"},
)


def normalised(answer: bytes) -> bytes:
    """An answer without what is new in each: time, request id, and the epoch of the stream."""
    answer = re.sub(rb"(?m)^(date|stream-last-written-at): [^\r]*", rb"\1:", answer)
    answer = re.sub(rb"(?m)^stream-cursor: [0-9]+", b"stream-cursor:", answer)
    answer = re.sub(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", b"ID", answer)
    return re.sub(rb"[0-9]{4}(?=[0-9]{12}_[0-9]{16})", b"0000", answer)


def answers(connect: Connect, data: bytes) -> bytes:
    with connect() as wire:
        wire.send(data + request("HEAD", target("none"), {"connection": "close"}))
        return normalised(wire.rest())


@pytest.mark.parametrize("kind", STREAMS)
def test_both_paths_answer_the_same(
    client: httpx.Client, connect: Connect, path: str, kind: str
) -> None:
    plain, general = f"{path}/a", f"{path}/b"
    for each in (plain, general):
        for method, headers, body in STREAMS[kind]:
            assert client.request(method, each, headers=headers, content=body).is_success
    for headers in HEADERS:
        for body in BODIES:
            expected = answers(connect, request("POST", target(general), headers | GENERAL, body))
            assert answers(
                connect, request("POST", target(plain), headers, body)
            ) == expected.replace(general.encode(), plain.encode()), (headers, body[:20])
    first, second = client.get(plain), client.get(general)
    assert first.status_code == second.status_code
    assert not first.is_success or first.content == second.content


@pytest.mark.parametrize(
    "append",
    [
        lambda path, more: request("POST", target(path), JSON | more, b"2", version="1.0"),
        lambda path, more: request(
            "POST",
            target(path),
            JSON | more | {"transfer-encoding": "chunked"},
            chunked(b"2", b"3"),
        ),
        lambda path, more: request("POST", target(path) + "?a=b", JSON | more, b"2"),
        lambda path, more: request(
            "POST", target(path), [*JSON.items(), *TEXT.items(), *more.items()], b"2"
        ),
        lambda path, more: request("POST", target(path), JSON | more, b"2") * 3,
        lambda path, more: (
            request("POST", target(path), JSON | more, b"2")
            + request("HEAD", target(path), more)
            + request("POST", target(path), JSON | more, b"{")
            + request("POST", target(path), JSON | more | {"connection": "close"}, b"4")
        ),
    ],
    ids=["HTTP/1.0", "chunked", "with a query", "two types", "three at once", "many at once"],
)
def test_both_paths_keep_to_http(
    client: httpx.Client, connect: Connect, path: str, append: Append
) -> None:
    plain, general = f"{path}/a", f"{path}/b"
    for each in (plain, general):
        client.put(each, headers=JSON)
    assert answers(connect, append(plain, {})) == answers(connect, append(general, GENERAL))
    assert client.get(plain).content == client.get(general).content
