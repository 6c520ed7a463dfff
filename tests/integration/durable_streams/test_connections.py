"""Connections: reuse, pipelining, unusual clients, and malformed requests."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from devtools.server import Server
from tests.integration.durable_streams.conftest import SECONDS, Connect
from tests.support.wire import (
    CLOSE,
    START,
    TEXT,
    Connection,
    Hangup,
    Headers,
    error_of,
    place,
    producer,
    request,
    target,
)


def test_a_connection_serves_many_requests(wire: Connection, path: str) -> None:
    assert wire.ask("PUT", target(path), TEXT).status == 201
    for n in range(30):
        assert wire.ask("POST", target(path), TEXT, b"%d" % (n % 10)).status == 204
        assert len(wire.ask("GET", target(path)).body) == n + 1
    assert "connection" not in wire.ask("HEAD", target(path)).headers
    assert wire.ask("DELETE", target(path)).status == 204


@pytest.mark.parametrize("value", ["close", "Close", "keep-alive, close"])
def test_the_client_ends_the_connection(wire: Connection, path: str, value: str) -> None:
    answer = wire.ask("PUT", target(path), TEXT | {"connection": value}, b"x")
    assert (answer.status, answer.headers["connection"]) == (201, "close")
    assert wire.ended(SECONDS)


def test_data_after_the_last_request_is_ignored(
    client: httpx.Client, wire: Connection, path: str
) -> None:
    client.put(path, headers=TEXT)
    wire.send(
        request("POST", target(path), TEXT | {"connection": "close"}, b"last")
        + request("POST", target(path), TEXT, b"too late")
    )
    assert wire.answer("POST").status == 204
    assert wire.ended(SECONDS)
    assert client.get(path).content == b"last"


@pytest.mark.parametrize("headers", [{}, {"connection": "keep-alive"}])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_http_1_0(
    client: httpx.Client, wire: Connection, path: str, headers: dict[str, str], method: str
) -> None:
    client.put(path, content=b"data", headers=TEXT)
    body = b"!" if method == "POST" else None
    raw = request(method, target(path), TEXT | headers, body, version="1.0")
    wire.send(raw.replace(b"Host: localhost\r\n", b""))
    answer = wire.answer(method)
    assert answer.status == (204 if method == "POST" else 200)
    assert answer.body == (b"data" if method == "GET" else b"")
    assert "transfer-encoding" not in answer.headers
    assert wire.ended(SECONDS)


def test_a_pipeline_is_answered_in_order(wire: Connection, path: str) -> None:
    wire.send(
        b"".join(
            [
                request("PUT", target(path), TEXT),
                *(request("POST", target(path), TEXT, b"%d;" % n) for n in range(20)),
                request("GET", target(path)),
                request("HEAD", target(path)),
                request("GET", "/health"),
                request("GET", target(f"{path}/none")),
                request("POST", target(path), TEXT | CLOSE, b"end"),
                request("GET", "/health"),
                request("GET", "/no/such/page"),
                request("GET", target(path, offset=f"{20:016d}_{50:016d}")),
                request("DELETE", target(path)),
                request("HEAD", target(path)),
            ]
        )
    )
    assert wire.answer().status == 201
    offsets = [wire.answer("POST").offset for _ in range(20)]
    assert offsets == sorted(set(offsets))
    assert wire.answer().body == b"".join(b"%d;" % n for n in range(20))
    assert wire.answer("HEAD").offset == offsets[-1]
    assert b"ok" in wire.answer().body
    assert wire.answer().code == "STREAM_NOT_FOUND"
    assert wire.answer("POST").headers["stream-closed"] == "true"
    assert b"ok" in wire.answer().body
    assert wire.answer().status == 404
    assert wire.answer().body == b"end"
    assert wire.answer("DELETE").status == 204
    assert wire.answer("HEAD").status == 404
    assert wire.ask("PUT", target(path)).status == 201


def test_a_request_behind_a_long_poll_waits(
    client: httpx.Client, wire: Connection, path: str
) -> None:
    client.put(path, headers=TEXT)
    wire.send(
        request("GET", target(path, live="long-poll", offset=START))
        + request("GET", "/health")
        + request("POST", target(f"{path}/other"), TEXT, b"x")
    )
    assert wire.quiet(0.1)
    client.post(path, content=b"news", headers=TEXT)
    assert wire.answer().body == b"news"
    assert b"ok" in wire.answer().body
    assert wire.answer("POST").status == 404


@contextlib.contextmanager
def paused(server: Server) -> Iterator[None]:
    """Pause the server: data that is sent meanwhile reaches it all at once."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
        time.sleep(0.05)
    finally:
        os.kill(server.pid, signal.SIGCONT)


@pytest.mark.parametrize("size", [1_000, 200_000])
def test_a_pipeline_may_be_split_anywhere(
    server: Server, wire: Connection, path: str, size: int
) -> None:
    """A large body and half of the next request's head arrive together."""
    wire.ask("PUT", target(path), TEXT)
    large = request("POST", target(path), TEXT, b"x" * size)
    small = request("POST", target(path), TEXT | {"x-padding": "y" * 2000}, b"!")
    for cut in (1, 1500):
        with paused(server):
            wire.send(large + small[:cut])
        assert wire.answer("POST").status == 204
        wire.send(small[cut:])
        assert wire.answer("POST").status == 204
    assert place(wire.ask("HEAD", target(path)).offset) == f"{4:016d}_{2 * size + 2:016d}"


def test_requests_byte_by_byte(client: httpx.Client, connect: Connect, path: str) -> None:
    client.put(path, headers=TEXT)
    slow = connect()
    for byte in request("POST", target(path), TEXT | producer("p", 0, 0), b"slow"):
        slow.send(bytes([byte]))
    assert slow.answer("POST").status == 200
    assert client.get(path).content == b"slow"


def test_slow_clients_do_not_hold_up_others(
    client: httpx.Client, connect: Connect, path: str
) -> None:
    client.put(path, content=b"x" * (20 << 20), headers=TEXT)
    stalled = []
    for sent in (
        b"GET ",
        request("POST", target(path), TEXT | {"content-length": "1000"}, b"x" * 10),
        request("GET", target(path)),
        request("GET", target(path)) * 5,
        b"",
    ):
        stalled.append(connect(receive_bytes=4096))
        stalled[-1].send(sent)
    for _ in range(20):
        assert client.head(path).status_code == 200
    assert client.put(f"{path}/other", headers=TEXT).status_code == 201
    assert stalled[2].head()[0] == 200


def resident_bytes(server: Server) -> int:
    pages = Path(f"/proc/{server.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGESIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_unread_answers_do_not_fill_the_memory(
    server: Server, client: httpx.Client, connect: Connect, path: str
) -> None:
    """A client sends a few kilobytes of requests, each for a megabyte, and reads no answers."""
    client.put(path, content=b"x" * 700_000, headers=TEXT)
    client.post(path, content=b"y" * 700_000, headers=TEXT)
    before = resident_bytes(server)
    greedy = connect(receive_bytes=4096)
    greedy.send(request("GET", target(path)) * 150)
    time.sleep(0.5)
    assert client.head(path).status_code == 200
    assert resident_bytes(server) - before < 50_000_000
    assert greedy.head()[0] == 200


def test_many_concurrent_connections(client: httpx.Client, connect: Connect, path: str) -> None:
    client.put(path, headers=TEXT)
    connections = [connect() for _ in range(100)]
    for connection in connections:
        connection.send(request("POST", target(path), TEXT, b"x"))
    assert {connection.answer("POST").status for connection in connections} == {204}
    assert len(client.get(path).content) == 100


# Heads that are too large.


def fields(count: int) -> list[tuple[str, str]]:
    return [(f"x-{n}", "y") for n in range(count)]


def test_the_largest_number_of_header_fields_is_accepted(wire: Connection, path: str) -> None:
    wire.ask("PUT", target(path), TEXT, b"data")
    assert wire.ask("GET", target(path), fields(127)).body == b"data"  # and Host


@pytest.mark.parametrize("count", [128, 1000])
def test_too_many_header_fields_are_431(connect: Connect, path: str, count: int) -> None:
    for where in (target(path), "/health"):
        wire = connect()
        answer = wire.ask("GET", where, fields(count))
        assert (answer.status, answer.code) == (431, "HEADERS_TOO_LARGE")
        assert answer.headers["connection"] == "close"
        assert wire.ended(SECONDS)


@pytest.mark.parametrize(
    ("size", "piece"), [(70_000, 1_000), (300_000, 10_000_000), (3_000_000, 50_000)]
)
def test_header_fields_that_are_too_large_are_431(
    connect: Connect, path: str, size: int, piece: int
) -> None:
    wire = connect()
    raw = request("GET", target(path), {"x-large": "y" * size})
    try:
        for at in range(0, len(raw), piece):
            wire.send(raw[at : at + piece])
    except ConnectionError:
        pass  # The server need not read to the end of it; its answer is there all the same.
    answer = wire.answer()
    assert (answer.status, answer.code) == (431, "HEADERS_TOO_LARGE")


def test_the_largest_head_in_pieces_is_accepted(wire: Connection, path: str) -> None:
    wire.ask("PUT", target(path), TEXT, b"data")
    raw = request("GET", target(path), {"x-large": "y" * 60_000})
    for at in range(0, len(raw), 1_000):
        wire.send(raw[at : at + 1_000])
    assert wire.answer().body == b"data"


@pytest.mark.parametrize("refused", [fields(200), {"x-large": "y" * 300_000}])
@pytest.mark.parametrize("body", [None, b"more"])
def test_a_refused_head_does_not_repeat_the_request_before_it(
    connect: Connect, path: str, refused: Headers, body: bytes | None
) -> None:
    wire = connect()
    wire.ask("PUT", target(path), TEXT)
    assert wire.ask("POST", target(path), TEXT, b"once").status == 204
    assert wire.ask("POST", target(path), refused, body).status == 431
    assert wire.ended(SECONDS)
    assert connect().ask("GET", target(path)).body == b"once"


# Malformed requests.

MALFORMED = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"HELLO\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET /ds/x HTTP/3.0\r\n\r\n",
    b"GET /ds/x HTTP/1.1\r\nno colon\r\n\r\n",
    b"GET /ds/x HTTP/1.1\r\n: empty\r\n\r\n",
    b"GET /ds/x HTTP/1.1\r\nbad name: x\r\n\r\n",
    b"GET /ds/x HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n",
    b"GET /ds/x\x00 HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /ds/x HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    b"POST /ds/x HTTP/1.1\r\nHost: a\r\nContent-Length: 1x\r\n\r\nx",
    b"POST /ds/x HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999999\r\n\r\nx",
    b"\x00" * 100,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]


@pytest.mark.parametrize("raw", MALFORMED)
def test_malformed_requests_are_refused(wire: Connection, raw: bytes) -> None:
    wire.send(raw)
    answer = wire.answer()
    assert answer.status == 400
    error_of(answer)
    assert answer.headers["connection"] == "close"
    assert wire.ended(SECONDS)


SMUGGLED = [
    [("content-length", "5"), ("transfer-encoding", "chunked")],
    [("transfer-encoding", "chunked"), ("content-length", "5")],
    [("content-length", "5"), ("content-length", "6")],
    [("content-length", "5, 5")],
    [("content-length", "+5")],
    [("content-length", "0x5")],
    [("transfer-encoding", "xchunked")],
    [("transfer-encoding", "chunked, identity")],
    [("transfer-encoding ", "chunked")],
    [("content-length ", "5")],
]


@pytest.mark.parametrize("headers", SMUGGLED)
def test_a_body_of_unclear_length_is_refused(
    connect: Connect, path: str, headers: list[tuple[str, str]]
) -> None:
    wire = connect()
    wire.ask("PUT", target(path), TEXT)
    smuggled = request("POST", target(path), TEXT, b"smuggled")
    framed = b"0\r\n\r\n" + smuggled
    wire.send(request("POST", target(path), [*TEXT.items(), *headers]) + framed)
    assert 400 <= wire.answer("POST").status <= 501
    assert wire.ended(SECONDS)
    assert connect().ask("GET", target(path)).body == b""


def test_a_malformed_request_is_answered_after_those_before_it(wire: Connection, path: str) -> None:
    """Answers are in the order of requests: a 400 sent first would be that of the POST."""
    wire.ask("PUT", target(path), TEXT)
    wire.send(request("POST", target(path), TEXT, b"stored") + b"NONSENSE\r\n\r\n")
    assert wire.answer("POST").status == 204
    with contextlib.suppress(Hangup):
        assert wire.answer().status == 400
    assert wire.ended(SECONDS)


def test_a_refused_head_is_answered_after_the_requests_before_it(
    wire: Connection, path: str
) -> None:
    wire.ask("PUT", target(path), TEXT)
    wire.send(
        request("POST", target(path), TEXT, b"stored") + request("GET", target(path), fields(200))
    )
    assert wire.answer("POST").status == 204
    with contextlib.suppress(Hangup):
        assert wire.answer().status == 431
    assert wire.ended(SECONDS)


@pytest.mark.parametrize("refused", [fields(200), {"x-large": "y" * 300_000}])
def test_a_refused_head_does_not_affect_other_requests(
    client: httpx.Client, wire: Connection, path: str, refused: Headers
) -> None:
    client.put(path, headers=TEXT)
    wire.send(
        request("POST", target(path), TEXT, b"before")
        + request("POST", target(path), refused, b"refused")
        + request("POST", target(path), TEXT, b"after")
    )
    with contextlib.suppress(ConnectionResetError):
        wire.rest()
    assert client.get(path).content == b"before"


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_upgrade_to_http_2_is_ignored(wire: Connection, path: str, method: str) -> None:
    """Java's HttpClient and `curl --http2` send it with every request, even with a body."""
    wire.ask("PUT", target(path), TEXT, b"data")
    offer = {
        "connection": "Upgrade, HTTP2-Settings",
        "upgrade": "h2c",
        "http2-settings": "AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAAAAYABgAA",
    }
    body = b"!" if method == "POST" else None
    answer = wire.ask(method, target(path), TEXT | offer, body)
    assert answer.status == (204 if method == "POST" else 200)
    assert wire.ask("GET", target(path)).body == b"data" + (body or b"")


def test_a_stream_is_no_websocket(connect: Connect, path: str) -> None:
    wire = connect()
    wire.ask("PUT", target(path), TEXT, b"data")
    offer = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    assert wire.ask("GET", target(path), offer).status in (200, 400, 403, 404, 426)
    assert connect().ask("GET", target(path)).body == b"data"


def test_clients_that_disconnect_at_any_time_do_no_harm(
    client: httpx.Client, connect: Connect, path: str
) -> None:
    client.put(path, content=b"x" * 3_000_000, headers=TEXT)

    def vanish(sent: bytes) -> None:
        with connect() as wire:
            wire.send(sent)

    requests = [
        request("GET", target(path)),
        request("GET", target(path, live="sse", offset="-1")),
        request("GET", target(path, live="long-poll", offset="now")),
        request("POST", target(path), TEXT | {"content-length": "100"}, b"x"),
        request("GET", target(path)) * 10,
        b"GET /",
        b"",
    ]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(vanish, requests * 8))
    assert client.head(path).status_code == 200
    assert len(client.get(path).content) == 3_000_000
