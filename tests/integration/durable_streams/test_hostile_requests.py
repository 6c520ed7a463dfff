"""Hostile requests: their cost in memory, connections and time, and pages of other sites."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import jwt
import pytest

from devtools.server import Server
from tests.support.wire import JSON, TEXT, Connection, request, target

SECRET = "a-secret-of-more-than-32-bytes-as-it-should-be"
CHUNKED = {"Transfer-Encoding": "chunked"}
LARGE = 30 << 20
MARGIN = 50 << 20
"""Bytes by which the memory of the server may grow."""


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    # Otherwise bodies that are cached for readers would be counted, too.
    settings = {"TAILRACE_SECRET": SECRET, "TAILRACE_HOT_BYTES": "0"}
    with Server(tmp_path_factory.mktemp("closed") / "data", settings) as server:
        yield server


def memory(server: Server) -> int:
    """Resident memory of the server in bytes."""
    match = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{server.pid}/status").read_text())
    assert match is not None
    return int(match[1]) << 10


def token() -> dict[str, str]:
    claims = {"scope": "read write admin", "streams": "**", "exp": time.time() + 600}
    return {"Authorization": f"Bearer {jwt.encode(claims, SECRET)}"}


needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")


@needs_proc
@pytest.mark.parametrize(
    ("where", "headers"),
    [
        (target("refused"), TEXT),
        (target("refused"), TEXT | CHUNKED),
        ("/_broadcast", JSON),
        ("/api/v1/notification", JSON | {"Authorization": "Bearer nothing"}),
    ],
)
def test_refused_bodies_leave_no_memory(
    closed: Server, where: str, headers: dict[str, str]
) -> None:
    body = b"x" * LARGE
    sent = b"%x\r\n%b\r\n0\r\n\r\n" % (LARGE, body) if CHUNKED.items() <= headers.items() else body
    before = memory(closed)
    for _ in range(8):
        with Connection(closed.port) as wire:
            wire.send(request("POST", where, headers, sent))
            assert wire.answer("POST").status == 401
    assert memory(closed) < before + MARGIN


@needs_proc
def test_accepted_bodies_leave_no_memory(closed: Server) -> None:
    with Connection(closed.port) as wire:
        wire.ask("PUT", target("large"), TEXT | token())
    body = b"x" * LARGE
    before = memory(closed)
    for _ in range(8):
        with Connection(closed.port) as wire:
            wire.send(request("POST", target("large"), TEXT | token(), body))
            assert wire.answer("POST").status == 204
    assert memory(closed) < before + 2 * LARGE + MARGIN


def test_a_client_that_expects_100_continue_is_refused_before_it_sends(closed: Server) -> None:
    with Connection(closed.port) as wire:
        asks = TEXT | {"Expect": "100-continue", "Content-Length": "5"}
        wire.send(request("POST", target("refused"), asks))
        answer = wire.answer("POST")
    assert (answer.status, answer.headers["connection"]) == (401, "close")


def test_an_authorized_client_gets_100_continue(closed: Server) -> None:
    with Connection(closed.port) as wire:
        wire.ask("PUT", target("invited"), TEXT | token())
        asks = TEXT | token() | {"Expect": "100-continue", "Content-Length": "5"}
        wire.send(request("POST", target("invited"), asks))
        assert wire.head()[0] == 100
        wire.send(b"hello")
        assert wire.answer("POST").status == 204
        assert wire.ask("GET", target("invited"), token()).body == b"hello"


def test_pipelined_requests_are_authorized_in_order(closed: Server) -> None:
    with Connection(closed.port) as wire:
        wire.ask("PUT", target("ordered"), TEXT | token())
        good = request("POST", target("ordered"), TEXT | token(), b"good")
        half = request("POST", target("ordered"), TEXT | {"Content-Length": "9"}) + b"half"
        wire.send(good + half)
        assert [wire.answer("POST").status for _ in range(2)] == [204, 401]
    with Connection(closed.port) as wire:
        assert wire.ask("GET", target("ordered"), token()).body == b"good"


def test_memory_for_bodies_is_bounded_for_all_clients_together(tmp_path: Path) -> None:
    settings = {"TAILRACE_MAX_BODY_BYTES": "1048576", "TAILRACE_BODY_MEMORY": "1048576"}
    with Server(tmp_path / "data", settings) as server:
        with Connection(server.port) as first, Connection(server.port) as second:
            first.ask("PUT", target("bounded"), TEXT)
            length = {"Content-Length": "1000000"}
            first.send(request("POST", target("bounded"), TEXT | length) + b"x" * 999_999)
            second.ask("GET", target("bounded"))
            # Connections are served in any order: retry until the first one has its memory.
            deadline = time.monotonic() + 120
            while True:
                with Connection(server.port) as third:
                    third.send(request("POST", target("bounded"), TEXT, b"y" * 100_000))
                    answer = third.answer("POST")
                if answer.status == 503:
                    break
                assert answer.status == 204
                assert time.monotonic() < deadline
            assert (answer.code, answer.headers["retry-after"]) == ("SERVER_BUSY", "1")
            first.send(b"x")
            assert first.answer("POST").status == 204
        with Connection(server.port) as wire:
            wire.send(request("POST", target("bounded"), TEXT, b"y" * 100_000))
            assert wire.answer("POST").status == 204


@pytest.mark.parametrize("trailer", [b"x: " + b"y" * 1_000_000, b"x: y\r\n" * 100_000])
def test_trailers_are_bounded(server: Server, trailer: bytes) -> None:
    with Connection(server.port) as wire:
        wire.ask("PUT", target("trailers"), TEXT)
        wire.send(request("POST", target("trailers"), TEXT | CHUNKED, b"1\r\nx\r\n0\r\n"))
        wire.send(trailer)
        assert wire.answer("POST").status == 431
    with Connection(server.port) as wire:
        assert wire.ask("GET", target("trailers")).body == b""


def test_a_few_trailers_are_accepted(server: Server) -> None:
    with Connection(server.port) as wire:
        wire.ask("PUT", target("trailed"), TEXT)
        body = b"1\r\nx\r\n0\r\nx: y\r\n\r\n"
        wire.send(request("POST", target("trailed"), TEXT | CHUNKED, body))
        assert wire.answer("POST").status == 204
        assert wire.ask("GET", target("trailed")).body == b"x"


def test_a_malformed_request_is_refused_and_not_carried_out(server: Server) -> None:
    with Connection(server.port) as wire:
        wire.ask("PUT", target("stays"), TEXT)
    with Connection(server.port) as wire:
        assert wire.ask("DELETE", target("stays"), {"Transfer-Encoding": "x"}).status == 400
        assert wire.ended()
    with Connection(server.port) as wire:
        assert wire.ask("HEAD", target("stays")).status == 200


def test_a_malformed_body_for_another_route_is_refused_without_a_traceback(closed: Server) -> None:
    with Connection(closed.port) as wire:
        wire.send(request("GET", "/health", CHUNKED, b"no chunk\r\n"))
        assert wire.answer().status == 400
        assert wire.ended()
    assert "Traceback" not in closed.output()


def test_an_upgrade_with_too_many_fields_is_refused_without_a_traceback(closed: Server) -> None:
    many = {f"x-{i}": "y" for i in range(200)}
    offer = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
    with Connection(closed.port) as wire:
        wire.send(request("GET", "/cable", offer | many))
        assert wire.answer("GET").status == 431
    assert "Traceback" not in closed.printed()


# Pages of other sites

EVIL: list[dict[str, str]] = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Host": "evil.example:4437"},
]


@pytest.mark.parametrize("evil", EVIL)
@pytest.mark.parametrize(
    ("method", "where"),
    [
        ("PUT", target("pages")),
        ("POST", target("pages")),
        ("GET", target("pages")),
        ("DELETE", target("pages")),
        ("OPTIONS", target("pages")),
        ("GET", "/v1/streams"),
        ("GET", "/health"),
        ("GET", "/"),
        ("POST", "/_broadcast"),
        ("DELETE", "/api/v1/admin/wipe/all"),
        ("GET", "/nowhere"),
    ],
)
def test_an_open_server_refuses_pages_of_other_sites(
    server: Server, method: str, where: str, evil: dict[str, str]
) -> None:
    answer = httpx.request(method, f"{server.url}{where}", headers=TEXT | evil, trust_env=False)
    # A preflight has no effect, and without CORS headers the browser sends no request after it.
    refused = method != "OPTIONS" or "Host" in evil
    assert answer.status_code == (403 if refused else 204)
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("evil", EVIL)
def test_an_open_server_refuses_websockets_of_other_sites(
    server: Server, evil: dict[str, str]
) -> None:
    offer = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    with Connection(server.port) as wire:
        wire.send(request("GET", "/cable", offer | evil))
        assert wire.answer("GET").status == 403


@pytest.mark.parametrize(
    "settings", [{"TAILRACE_ACCESS": "open"}, {"TAILRACE_ALLOWED_HOSTS": "*.example"}]
)
def test_other_sites_are_answered_if_the_settings_allow_them(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    with Server(tmp_path / "data", settings) as server:
        for headers in ({"Host": "box.example"}, {"Origin": "https://app.example"}):
            url = f"{server.url}/v1/stream/asked"
            assert httpx.put(url, headers=headers, trust_env=False).status_code in (200, 201)


def test_scripts_in_a_stream_are_sandboxed(server: Server) -> None:
    url = f"{server.url}/v1/stream/page"
    httpx.put(url, content="<script>1</script>", headers={"Content-Type": "text/html"})
    for query in ("", "?offset=-1&live=long-poll", "?offset=now"):
        assert httpx.get(url + query).headers["content-security-policy"] == "sandbox"


@pytest.mark.parametrize("limit", ["+1", "1_0", "%0b1", "1.0", "-1", "٣", ""])
def test_limits_of_listings_are_digits(server: Server, limit: str) -> None:
    answer = httpx.get(f"{server.url}/v1/streams?limit={limit}", trust_env=False)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "BAD_PARAMETER")


def test_a_client_that_reads_nothing_does_not_block_others(server: Server) -> None:
    with Connection(server.port) as wire:
        wire.ask("PUT", target("taken"), TEXT, b"x" * (1 << 20))
    with socket.create_connection(("127.0.0.1", server.port)) as stalled:
        for _ in range(20):
            stalled.sendall(request("GET", target("taken"), {}))
        with Connection(server.port) as wire:
            assert wire.ask("GET", target("taken")).status == 200
