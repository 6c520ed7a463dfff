"""Request bodies: too large, chunked, with 100 Continue, and incomplete ones."""

from __future__ import annotations

import contextlib
import random

import httpx
import pytest

from devtools.server import Server
from tests.integration.durable_streams.conftest import SECONDS, Connect
from tests.support.wire import (
    START,
    TEXT,
    Connection,
    chunked,
    eventually,
    place,
    producer,
    request,
    target,
)

MOST = 100_000
"""Of the cramped server."""

CHUNKED = {"transfer-encoding": "chunked"}


def pieces(body: bytes, size: int) -> list[bytes]:
    return [body[at : at + size] for at in range(0, len(body), size)]


@pytest.mark.parametrize(
    ("method", "framing", "size"),
    [
        ("POST", "length", MOST + 1),
        ("POST", "chunked", MOST + 1),
        ("PUT", "length", 8 << 20),
        ("PUT", "chunked", 8 << 20),
    ],
)
def test_a_body_that_is_too_large_is_413(
    cramped: Server, connect: Connect, path: str, framing: str, size: int, method: str
) -> None:
    wire = connect(cramped)
    wire.ask("PUT", target(path), TEXT, b"kept")
    where = target(path if method == "POST" else f"{path}/new")
    headers = TEXT | producer("p", 0, 0)
    body = b"x" * size
    if framing == "length":
        wire.send(request(method, where, headers, body))
    else:
        wire.send(request(method, where, headers | CHUNKED, chunked(*pieces(body, 60_000))))
    answer = wire.answer(method)
    assert (answer.status, answer.code) == (413, "BODY_TOO_LARGE")
    assert str(MOST) in answer.body.decode()
    # The stream is unchanged.
    wire = connect(cramped)
    assert wire.ask("GET", target(path)).body == b"kept"
    assert wire.ask("HEAD", target(f"{path}/new")).status == 404
    assert wire.ask("POST", target(path), headers, b"!").status == 200


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_the_largest_body_is_accepted(
    cramped: Server, connect: Connect, path: str, framing: str
) -> None:
    wire = connect(cramped)
    body = random.Random(1).randbytes(MOST)
    wire.ask("PUT", target(path), TEXT)
    sent = chunked(*pieces(body, 7_777)) if framing == "chunked" else body
    headers = TEXT | (CHUNKED if framing == "chunked" else {})
    assert wire.ask("POST", target(path), headers, sent).status == 204
    assert wire.ask("GET", target(path)).body == body


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        (chunked(b"hello"), b"hello"),
        (chunked(b"h", b"e", b"l", b"l", b"o"), b"hello"),
        (b"5;ext=1\r\nhello\r\n0\r\n\r\n", b"hello"),
        (b'5;a="b;c"\r\nhello\r\n0;last\r\n\r\n', b"hello"),
        (b"0005\r\nhello\r\n000\r\n\r\n", b"hello"),
        (b"5\r\nhello\r\n0\r\nX-Trailer: 1\r\nProducer-Id: x\r\n\r\n", b"hello"),
        (chunked(b"\r\n0\r\n\r\n"), b"\r\n0\r\n\r\n"),
        (chunked(b"a" * 0xFFF, b"b" * 0x1000), b"a" * 0xFFF + b"b" * 0x1000),
    ],
)
def test_chunked_bodies(wire: Connection, path: str, sent: bytes, stored: bytes) -> None:
    wire.ask("PUT", target(path), TEXT)
    wire.send(request("POST", target(path), TEXT | CHUNKED, sent))
    assert wire.answer("POST").status == 204
    assert wire.ask("GET", target(path)).body == stored
    assert wire.ask("PUT", target(f"{path}/new"), TEXT | CHUNKED, sent).status == 201
    assert wire.ask("GET", target(f"{path}/new")).body == stored


def test_a_chunked_body_without_chunks_is_empty(wire: Connection, path: str) -> None:
    wire.ask("PUT", target(path), TEXT)
    empty = wire.ask("POST", target(path), TEXT | CHUNKED, chunked())
    assert (empty.status, empty.code) == (400, "EMPTY_BODY")
    close = CHUNKED | {"stream-closed": "true"}
    assert wire.ask("POST", target(path), close, chunked()).headers["stream-closed"] == "true"
    assert place(wire.ask("PUT", target(f"{path}/new"), CHUNKED, chunked()).offset) == START


@pytest.mark.parametrize(
    "sent",
    [b"5\r\nhelloX\r\n0\r\n\r\n", b"x\r\nhello\r\n", b"-1\r\n", b"\r\n", b"5\nhello\n0\n\n"],
)
def test_malformed_chunks_are_refused(connect: Connect, path: str, sent: bytes) -> None:
    wire = connect()
    wire.ask("PUT", target(path), TEXT)
    wire.send(request("POST", target(path), TEXT | CHUNKED, sent))
    assert wire.answer("POST").status == 400
    assert wire.ended(SECONDS)
    assert connect().ask("GET", target(path)).body == b""


@pytest.mark.parametrize(
    ("expect", "framing"), [("100-continue", "length"), ("100-Continue", "chunked")]
)
def test_100_continue(wire: Connection, path: str, expect: str, framing: str) -> None:
    wire.ask("PUT", target(path), TEXT)
    headers = TEXT | {"expect": expect}
    headers |= CHUNKED if framing == "chunked" else {"content-length": "5"}
    wire.send(request("POST", target(path), headers))
    assert wire.answer().status == 100
    wire.send(chunked(b"hello") if framing == "chunked" else b"hello")
    assert wire.answer("POST").status == 204
    assert wire.ask("GET", target(path)).body == b"hello"


def test_no_100_continue_for_a_client_that_does_not_wait(wire: Connection, path: str) -> None:
    wire.ask("PUT", target(path), TEXT)
    wire.send(request("POST", target(path), TEXT | {"expect": "100-continue"}, b"hello"))
    answer = wire.answer()
    if answer.status == 100:
        answer = wire.answer("POST")
    assert answer.status == 204
    assert wire.ask("GET", target(path)).body == b"hello"


def test_100_continue_before_an_error(wire: Connection, path: str) -> None:
    wire.send(
        request("POST", target(path), TEXT | {"expect": "100-continue", "content-length": "5"})
    )
    answer = wire.answer()
    if answer.status == 100:
        wire.send(b"hello")
        answer = wire.answer()
    assert answer.status == 404


def test_a_declared_length_that_is_too_large_is_413_before_the_body(
    cramped: Server, connect: Connect, path: str
) -> None:
    wire = connect(cramped)
    wire.ask("PUT", target(path), TEXT)
    size = 50 << 20
    headers = TEXT | {"expect": "100-continue", "content-length": str(size)}
    wire.send(request("POST", target(path), headers))
    answer = wire.answer()
    assert (answer.status, answer.code) == (413, "BODY_TOO_LARGE"), "instead of `send me all of it`"


def test_an_incomplete_body_appends_nothing(
    client: httpx.Client, connect: Connect, path: str
) -> None:
    client.put(path, headers=TEXT)
    for sent in (
        request("POST", target(path), TEXT | {"content-length": "10"}, b"12345"),
        request("POST", target(path), TEXT | CHUNKED, b"5\r\nhello\r\n"),
        request("POST", target(path), TEXT | CHUNKED, b"5\r\nhello\r\n0\r\n"),
        request("PUT", target(f"{path}/new"), TEXT | {"content-length": "1000000"}, b"x" * 99_999),
        request("POST", target(path), TEXT | {"content-length": "10"}),
        request("POST", target(path), TEXT | {"content-length": "1"})[:-2],
    ):
        with connect() as wire:
            wire.send(sent)
            wire.stop_sending()
            with contextlib.suppress(ConnectionError):
                wire.rest()
    assert client.get(path).content == b""
    assert client.head(f"{path}/new").status_code == 404


def test_a_received_write_is_done_although_the_client_disconnects(
    client: httpx.Client, connect: Connect, path: str
) -> None:
    client.put(path, headers=TEXT)
    with connect() as wire:
        wire.send(request("POST", target(path), TEXT, b"whole"))
    eventually(lambda: client.get(path).content == b"whole", seconds=SECONDS)


def test_an_unexpected_body_is_skipped(wire: Connection, path: str) -> None:
    wire.ask("PUT", target(path), TEXT, b"data")
    for method in ("GET", "HEAD", "OPTIONS", "PATCH"):
        for headers, body in (({}, b"GET / HTTP/1.1\r\n\r\n"), (CHUNKED, chunked(b"x" * 5000))):
            assert wire.ask(method, target(path), headers, body).status in (200, 204, 405)
    assert wire.ask("GET", target(path)).body == b"data"
    assert wire.ask("DELETE", target(path), {}, b"ignored").status == 204
