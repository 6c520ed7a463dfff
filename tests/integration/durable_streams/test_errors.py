"""Errors: every code with its status and its body."""

from __future__ import annotations

import httpx
import pytest

from devtools.server import Server
from tests.integration.durable_streams.conftest import Connect
from tests.support.wire import JSON, TEXT, Connection, error_of, producer, target

REQUESTS: list[tuple[str, str, dict[str, str], bytes | None, int, str]] = [
    ("GET", "{}/none", {}, None, 404, "STREAM_NOT_FOUND"),
    ("GET", "{}?offset=", {}, None, 400, "BAD_OFFSET"),
    ("GET", "{}?offset=-1&live=x", {}, None, 400, "BAD_PARAMETER"),
    ("GET", "%zz", {}, None, 400, "BAD_PATH"),
    ("GET", "{}/" + "x" * 1100, {}, None, 414, "PATH_TOO_LONG"),
    ("GET", "__ds/x", {}, None, 404, "NOT_FOUND"),
    ("PATCH", "{}", {}, None, 405, "METHOD_NOT_ALLOWED"),
    ("PUT", "{}", TEXT, None, 409, "CONTENT_TYPE_CONFLICT"),
    ("PUT", "{}", JSON | {"stream-ttl": "5"}, None, 409, "STREAM_CONFLICT"),
    ("PUT", "{}/new", {"stream-ttl": "x"}, None, 400, "BAD_HEADER"),
    ("PUT", "{}/new", JSON, b"{", 400, "INVALID_JSON"),
    ("PUT", "{}/new", {"stream-forked-from": "{}"}, None, 400, "BAD_PATH"),
    ("POST", "{}", JSON, b"", 400, "EMPTY_BODY"),
    ("POST", "{}", {}, b"1", 400, "BAD_HEADER"),
    ("POST", "{}", JSON, b"[]", 400, "EMPTY_BATCH"),
    ("POST", "{}", JSON | {"stream-seq": "a"}, b"1", 409, "SEQUENCE_CONFLICT"),
    ("POST", "{}", JSON | producer("p", 1, 0), b"1", 403, "PRODUCER_FENCED"),
    ("POST", "{}", JSON | producer("p", 2, 5), b"1", 409, "PRODUCER_GAP"),
    ("POST", "{}", JSON | producer("p", 3, 1), b"1", 400, "NEW_EPOCH_NOT_AT_ZERO"),
    ("POST", "{}", JSON, b"1" * 100_001, 413, "BODY_TOO_LARGE"),
    ("POST", "{}/closed", JSON, b"1", 409, "STREAM_CLOSED"),
    ("GET", "{}/gone", {}, None, 410, "STREAM_GONE"),
]


@pytest.mark.parametrize(("method", "where", "headers", "body", "status", "code"), REQUESTS)
def test_every_error_has_its_status_code_and_message(
    cramped: Server,
    connect: Connect,
    path: str,
    method: str,
    where: str,
    headers: dict[str, str],
    body: bytes | None,
    status: int,
    code: str,
) -> None:
    wire = connect(cramped)
    wire.ask("PUT", target(path), JSON)
    wire.ask("POST", target(path), JSON | producer("p", 2, 0) | {"stream-seq": "m"}, b"1")
    wire.ask("PUT", target(f"{path}/closed"), JSON | {"stream-closed": "true"})
    wire.ask("PUT", target(f"{path}/gone"), JSON)
    wire.ask("PUT", target(f"{path}/fork"), {"stream-forked-from": target(f"{path}/gone")})
    wire.ask("DELETE", target(f"{path}/gone"))
    answer = wire.ask(method, target(where.format(path)), headers, body)
    assert (answer.status, answer.code) == (status, code)
    assert answer.headers["cache-control"] == "no-store"
    assert "etag" not in answer.headers
    if method == "GET":
        head = wire.ask("HEAD", target(where.format(path).partition("?")[0]))
        assert head.status == (status if status in (404, 410, 414) or code == "BAD_PATH" else 200)
        assert head.body == b""
    if status == 413:
        # The rest of the body was not read.
        assert answer.headers["connection"] == "close"
        wire = connect(cramped)
    # The connection can still be used.
    assert wire.ask("HEAD", target(path)).status == 200


@pytest.mark.parametrize(
    ("method", "where", "status"),
    [
        ("GET", "/no/such/page", 404),
        ("GET", "/v1/stream", 404),
        ("GET", "/ds", 404),
        ("POST", "/health", 405),
        ("GET", "/v1/streams?limit=x", 400),
        ("GET", "/v1/streams?limit=0", 400),
    ],
)
def test_errors_beside_the_streams_look_the_same(
    client: httpx.Client, method: str, where: str, status: int
) -> None:
    answer = client.request(method, client.base_url.join(where))
    assert answer.status_code == status
    error_of(answer)
    if status == 405:
        assert "GET" in answer.headers["allow"]


def test_a_message_quotes_a_huge_request_in_part(wire: Connection, path: str) -> None:
    wire.ask("PUT", target(path), TEXT)
    for headers, where in (
        ({"content-type": "x" * 20_000}, target(f"{path}/new")),
        ({"stream-expires-at": "x" * 20_000}, target(f"{path}/new")),
        ({"stream-forked-from": "/ds/" + "x" * 20_000}, target(f"{path}/new")),
        ({}, target(path, offset="x" * 20_000)),
        ({}, target(path, offset="-1", live="x" * 20_000)),
        ({}, target("y" * 20_000)),
    ):
        answer = wire.ask("PUT" if headers else "GET", where, headers)
        assert 400 <= answer.status < 500
        assert len(answer.body) < 2000


@pytest.mark.parametrize("value", ['"', "\\", "<script>", "\xe9", "%0d%0aX-Evil: 1"])
def test_a_message_that_quotes_any_bytes_is_json(wire: Connection, path: str, value: str) -> None:
    wire.ask("PUT", target(path), TEXT | {"stream-seq": "z"})
    for answer in (
        wire.ask("PUT", target(f"{path}/new"), {"content-type": value}),
        wire.ask("POST", target(path), {"content-type": value}, b"x"),
        wire.ask("GET", f"{target(path)}?offset=-1&live={value}"),
    ):
        assert answer.status in (400, 409)
        error_of(answer)
        assert "x-evil" not in answer.headers
