"""CORS: the preflight, and the headers of every answer."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from devtools.server import Server
from tests.integration.durable_streams.conftest import Connect
from tests.support.wire import (
    CLOSE,
    COMMON_HEADERS,
    TEXT,
    Answer,
    Connection,
    chunked,
    producer,
    request,
    target,
)

ALLOWED = {
    "content-type", "authorization", "if-none-match", "stream-seq", "stream-ttl",
    "stream-expires-at", "stream-closed", "producer-id", "producer-epoch", "producer-seq",
    "stream-forked-from", "stream-fork-offset", "stream-fork-sub-offset",
}  # fmt: skip
EXPOSED = {
    "stream-next-offset", "stream-cursor", "stream-up-to-date", "stream-closed",
    "stream-sse-data-encoding", "stream-ttl", "stream-expires-at", "etag", "location",
    "content-type", "content-encoding", "vary", "producer-epoch", "producer-seq",
    "producer-expected-seq", "producer-received-seq",
}  # fmt: skip


def names(value: str) -> set[str]:
    return {name.strip().lower() for name in value.split(",")}


def assert_common(headers: httpx.Headers) -> None:
    assert COMMON_HEADERS.items() <= dict(headers).items()
    exposed = names(headers["access-control-expose-headers"])
    assert "*" in exposed or exposed >= EXPOSED


@pytest.mark.parametrize("where", ["{}", "{}/missing", "__ds/x", "%", "x" * 2000])
@pytest.mark.parametrize("prefix", ["/v1/stream/", "/ds/"])
def test_preflight(wire: Connection, path: str, where: str, prefix: str) -> None:
    wire.ask("PUT", target(path), TEXT)
    preflight = {
        "origin": "http://localhost:3000",
        "access-control-request-method": "PUT",
        "access-control-request-headers": "producer-id, stream-closed",
    }
    answer = wire.ask("OPTIONS", prefix + where.format(path), preflight)
    assert answer.status in (200, 204)
    allowed = names(answer.headers["access-control-allow-headers"])
    assert "*" in allowed or allowed >= ALLOWED
    assert names(answer.headers["access-control-allow-methods"]) >= {
        "get", "post", "put", "delete", "head", "options",
    }  # fmt: skip
    assert int(answer.headers["access-control-max-age"]) > 0
    assert_common(answer.headers)


def sent(wire: Connection, data: bytes) -> Answer:
    wire.send(data)
    return wire.answer()


Ask = Callable[[Connection, str], Answer]

ANSWERS: dict[str, tuple[int, Ask]] = {
    "created": (201, lambda wire, path: wire.ask("PUT", target(f"{path}/new"), TEXT)),
    "created before": (200, lambda wire, path: wire.ask("PUT", target(path), TEXT)),
    "appended": (204, lambda wire, path: wire.ask("POST", target(path), TEXT, b"x")),
    "by a producer": (
        200,
        lambda wire, path: wire.ask("POST", target(path), TEXT | producer("p", 0, 0), b"x"),
    ),
    "again": (
        204,
        lambda wire, path: wire.ask("POST", target(path), TEXT | producer("w", 1, 0), b"x"),
    ),
    "read": (200, lambda wire, path: wire.ask("GET", target(path))),
    "now": (200, lambda wire, path: wire.ask("GET", target(path, offset="now"))),
    "head": (200, lambda wire, path: wire.ask("HEAD", target(path))),
    "not modified": (
        304,
        lambda wire, path: wire.ask("GET", target(path), {"if-none-match": "*"}),
    ),
    "long-poll": (
        200,
        lambda wire, path: wire.ask("GET", target(path, live="long-poll", offset="-1")),
    ),
    "long-poll at the end": (
        204,
        lambda wire, path: wire.ask("GET", target(f"{path}/end", live="long-poll", offset="now")),
    ),
    "events": (
        200,
        lambda wire, path: wire.ask("GET", target(f"{path}/end", live="sse", offset="-1")),
    ),
    "deleted": (204, lambda wire, path: wire.ask("DELETE", target(f"{path}/end"))),
    "bad offset": (400, lambda wire, path: wire.ask("GET", target(path, offset="x"))),
    "bad path": (400, lambda wire, _: wire.ask("GET", "/v1/stream/%")),
    "fenced": (
        403,
        lambda wire, path: wire.ask("POST", target(path), TEXT | producer("w", 0, 0), b"x"),
    ),
    "missing": (404, lambda wire, path: wire.ask("GET", target(f"{path}/none"))),
    "missing head": (404, lambda wire, path: wire.ask("HEAD", target(f"{path}/none"))),
    "reserved": (404, lambda wire, _: wire.ask("GET", "/v1/stream/__ds/x")),
    "method": (405, lambda wire, path: wire.ask("PATCH", target(path))),
    "conflict": (409, lambda wire, path: wire.ask("PUT", target(path))),
    "gap": (
        409,
        lambda wire, path: wire.ask("POST", target(path), TEXT | producer("w", 1, 9), b"x"),
    ),
    "gone": (410, lambda wire, path: wire.ask("GET", target(f"{path}/gone"))),
    "too large": (413, lambda wire, path: wire.ask("POST", target(path), TEXT, b"x" * 100_001)),
    "too large in chunks": (
        413,
        lambda wire, path: wire.ask(
            "POST", target(path), {"transfer-encoding": "chunked"}, chunked(b"x" * 100_001)
        ),
    ),
    "too long": (414, lambda wire, _: wire.ask("GET", target("x" * 2000))),
    "too many headers": (
        431,
        lambda wire, path: wire.ask("GET", target(path), [(f"x-{n}", "y") for n in range(200)]),
    ),
    "no http": (400, lambda wire, _: sent(wire, b"HELLO\r\n\r\n")),
    "no http about a stream": (
        400,
        lambda wire, path: sent(wire, f"GET /ds/{path} HTTP/9.9\r\n\r\n".encode()),
    ),
}


@pytest.mark.parametrize(("status", "ask"), ANSWERS.values(), ids=ANSWERS)
def test_every_answer_can_be_read_by_a_page(
    cramped: Server, connect: Connect, path: str, status: int, ask: Ask
) -> None:
    setup = connect(cramped)
    setup.ask("PUT", target(path), TEXT, b"x")
    setup.ask("POST", target(path), TEXT | producer("w", 1, 0), b"x")
    setup.ask("PUT", target(f"{path}/end"), TEXT | CLOSE, b"x")
    setup.ask("PUT", target(f"{path}/gone"), TEXT, b"x")
    setup.ask("PUT", target(f"{path}/fork"), {"stream-forked-from": target(f"{path}/gone")})
    setup.ask("DELETE", target(f"{path}/gone"))
    answer = ask(connect(cramped), path)
    assert answer.status == status
    assert_common(answer.headers)
    assert "server" not in answer.headers
    assert len(answer.headers.get_list("date")) == 1


def test_the_headers_of_a_request_in_pieces(wire: Connection, path: str) -> None:
    wire.ask("PUT", target(path), TEXT, b"x")
    for piece in request("GET", target(path), {"if-none-match": "*"}).split(b" "):
        wire.send(piece + b" ")
    wire.send(b"")
    assert_common(wire.answer().headers)
