"""Reads without a task: the same answers, byte for byte, as on the general path."""

from __future__ import annotations

import re

import httpx
import pytest

from tests.integration.durable_streams.conftest import Connect
from tests.integration.durable_streams.test_plain_append import GENERAL, answers
from tests.support.wire import CLOSE, JSON, START, TEXT, request, target

LONG = b"[" + b",".join([b'"%b"' % (b"x" * 100)] * 100) + b"]"

STREAMS: dict[str, list[tuple[str, dict[str, str], bytes]]] = {
    "empty": [("PUT", JSON, b"")],
    "json": [("PUT", JSON, b"[1]"), ("POST", JSON, b"[2, 3]")],
    "long": [("PUT", JSON, LONG), ("POST", JSON, LONG)],
    "text": [("PUT", TEXT, b"a"), ("POST", TEXT, b"b")],
    "closed": [("PUT", JSON, b"1"), ("POST", CLOSE, b"")],
    "expiring": [("PUT", JSON | {"stream-ttl": "3600"}, b"1")],
    "deleted": [("PUT", JSON, b"1"), ("DELETE", {}, b"")],
    "missing": [],
}

QUERIES: tuple[dict[str, str], ...] = (
    {},
    {"offset": "-1"},
    {"offset": "now"},
    {"offset": START},
    {"offset": "x"},
    {"offset": "-1", "cursor": "7"},
    {"offset": "-1", "other": "1"},
    {"last": "1"},
    {"live": "false"},
)

HEADERS: tuple[dict[str, str], ...] = (
    {},
    {"accept-encoding": "gzip"},
    {"accept-encoding": "br, zstd"},
    {"if-none-match": "*"},
    {"connection": "close"},
    {"user-agent": "a", "accept": "*/*"},
    {"content-length": "0"},
)


def without_cursor(answer: bytes) -> bytes:
    """An answer without the cursor, which depends on the time."""
    return re.sub(rb"(?m)^stream-cursor: [0-9]+", b"stream-cursor:", answer)


@pytest.mark.parametrize("kind", STREAMS)
def test_both_paths_answer_the_same(
    client: httpx.Client, connect: Connect, path: str, kind: str
) -> None:
    for method, headers, body in STREAMS[kind]:
        assert client.request(method, path, headers=headers, content=body).is_success
    for query in QUERIES:
        for headers in HEADERS:
            where = target(path, **query)
            expected = answers(connect, request("GET", where, headers | GENERAL))
            for _ in range(3):
                assert answers(connect, request("GET", where, headers)) == expected, (
                    query,
                    headers,
                )
            several = request("GET", where, headers | GENERAL) * 3
            assert answers(connect, request("GET", where, headers) * 3) == answers(connect, several)


def test_an_answer_is_that_of_the_newest_state(client: httpx.Client, path: str) -> None:
    def read(**query: str) -> list[httpx.Response]:
        """Read by the general path, and twice by the other one."""
        first = client.get(path, params=query, headers=GENERAL)
        return [first, client.get(path, params=query), client.get(path, params=query)]

    def check(content: bytes, **headers: str) -> None:
        general, *plain = read(offset="-1")
        assert general.content == content
        for answer in plain:
            assert answer.content == content
            assert answer.headers["etag"] == general.headers["etag"]
            assert answer.headers["stream-next-offset"] == general.headers["stream-next-offset"]
            assert answer.headers["x-request-id"] != general.headers["x-request-id"]
            for name, value in headers.items():
                assert answer.headers[name.replace("_", "-")] == value

    for _ in range(2):
        client.put(path, content=b"1", headers=TEXT)
        check(b"1", stream_up_to_date="true")
        client.post(path, content=b"2", headers=TEXT)
        check(b"12")
        client.post(path, content=b"3", headers=TEXT | CLOSE)
        check(b"123", stream_closed="true")
        assert client.delete(path).is_success
        assert [answer.status_code for answer in read(offset="-1")] == [404, 404, 404]


def test_a_stream_that_is_kept_for_its_forks_is_gone(client: httpx.Client, path: str) -> None:
    client.put(path, content=b"1", headers=TEXT)
    client.put(f"{path}/fork", headers={"stream-forked-from": target(path)})
    for _ in range(3):
        assert client.get(path).content == client.get(f"{path}/fork").content == b"1"
    client.delete(path)
    assert client.get(path).status_code == 410
    assert client.get(f"{path}/fork").content == b"1"


def test_nothing_is_done_after_the_last_request_of_a_connection(
    client: httpx.Client, connect: Connect, path: str
) -> None:
    client.put(path, content=b"1", headers=TEXT)
    last = request("GET", target(path), {"connection": "close"})
    for _ in range(3):
        with connect() as wire:
            wire.send(last + request("POST", target(path), TEXT, b"2"))
            assert wire.answer().body == b"1"
            assert wire.rest() == b""
    assert client.get(path).content == b"1"
