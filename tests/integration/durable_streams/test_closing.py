"""Stream-Closed: the end of a stream, for writers and for readers."""

from __future__ import annotations

import httpx
import pytest

from tests.support.wire import CLOSE, JSON, TEXT, Connection, error_of, place, producer, target

FINAL = f"{1:016d}_{1:016d}"


@pytest.mark.parametrize(
    ("value", "closes"), [("  tRUE ", True), ("yes", False), ("", False), ("true, true", False)]
)
def test_only_true_closes_in_any_case(
    wire: Connection, path: str, value: str, closes: bool
) -> None:
    wire.ask("PUT", target(path), TEXT)
    answer = wire.ask("POST", target(path), TEXT | {"stream-closed": value}, b"x")
    assert answer.status == 204
    assert answer.headers.get("stream-closed") == ("true" if closes else None)
    bare = wire.ask("POST", target(path), {"stream-closed": value})
    assert bare.status == (204 if closes else 400)
    head = wire.ask("HEAD", target(path))
    assert head.headers.get("stream-closed") == ("true" if closes else None)


@pytest.mark.parametrize("kind", [None, "no type at all"])
def test_closing_without_a_body_ignores_the_type(
    client: httpx.Client, path: str, kind: str | None
) -> None:
    client.put(path, content=b"x", headers=TEXT)
    headers = CLOSE | ({} if kind is None else {"content-type": kind})
    for _ in range(2):
        answer = client.post(path, headers=headers)
        assert answer.status_code == 204
        assert answer.headers["stream-closed"] == "true"
        assert place(answer.headers["stream-next-offset"]) == FINAL


Request = tuple[bytes, dict[str, str]]

P00, P01, Q00 = producer("p", 0, 0), producer("p", 0, 1), producer("q", 0, 0)

OPEN: list[tuple[Request, int, dict[str, str], bytes]] = [
    ((b"", CLOSE), 204, {}, b"x"),
    ((b"y", TEXT | CLOSE), 204, {}, b"xy"),
    ((b"y", TEXT | CLOSE | P00), 200, {"producer-epoch": "0", "producer-seq": "0"}, b"xy"),
    ((b"", CLOSE | P00), 204, {"producer-epoch": "0", "producer-seq": "0"}, b"x"),
]


@pytest.mark.parametrize(("request_", "status", "echoed", "content"), OPEN)
def test_an_open_stream_is_closed(
    client: httpx.Client,
    path: str,
    request_: Request,
    status: int,
    echoed: dict[str, str],
    content: bytes,
) -> None:
    client.put(path, content=b"x", headers=TEXT)
    body, headers = request_
    answer = client.post(path, content=body, headers=headers)
    assert answer.status_code == status
    assert answer.headers["stream-closed"] == "true"
    final = f"{len(content):016d}_{len(content):016d}"
    assert place(answer.headers["stream-next-offset"]) == final
    assert {n: v for n, v in answer.headers.items() if n.startswith("producer-")} == echoed
    read = client.get(path)
    assert (read.content, read.headers["stream-closed"]) == (content, "true")
    assert place(read.headers["stream-next-offset"]) == final


CLOSED: list[tuple[str, Request, int, str | None]] = [
    ("plain", (b"", CLOSE), 204, None),
    ("plain", (b"y", JSON), 409, "STREAM_CLOSED"),
    ("producer", (b"", CLOSE | P00), 204, None),
    ("producer", (b"", CLOSE | Q00), 409, "STREAM_CLOSED"),
    ("final", (b"another", TEXT | CLOSE | P00), 204, None),
    ("final", (b"y", TEXT | CLOSE | P01), 409, "STREAM_CLOSED"),
]
"""One of each kind; tests/unit/log/test_append.py has all combinations."""


@pytest.mark.parametrize(("closed_by", "request_", "status", "code"), CLOSED)
def test_requests_of_a_closed_stream(
    client: httpx.Client,
    path: str,
    closed_by: str,
    request_: Request,
    status: int,
    code: str | None,
) -> None:
    if closed_by == "final":
        client.put(path, headers=TEXT)
        client.post(path, content=b"x", headers=TEXT | CLOSE | P00)
    else:
        client.put(path, content=b"x", headers=TEXT)
        client.post(path, headers=CLOSE | (P00 if closed_by == "producer" else {}))
    body, headers = request_
    answer = client.post(path, content=body, headers=headers)
    assert answer.status_code == status
    assert answer.headers["stream-closed"] == "true"
    assert place(answer.headers["stream-next-offset"]) == FINAL
    if code is not None:
        assert error_of(answer)["code"] == code
    elif "producer-id" in headers:
        assert (answer.headers["producer-epoch"], answer.headers["producer-seq"]) == ("0", "0")
    assert client.get(path).content == b"x"


@pytest.mark.parametrize(
    ("request_", "status", "named"),
    [
        ((b"", CLOSE | producer("p", 3, 5)), 409, {"producer-expected-seq": "1"}),
        ((b"", CLOSE | producer("p", 2, 0)), 403, {"producer-epoch": "3"}),
        ((b"{", JSON | CLOSE), 400, {}),
        ((b"1", CLOSE), 400, {}),
    ],
)
def test_a_refused_request_does_not_close(
    client: httpx.Client, path: str, request_: Request, status: int, named: dict[str, str]
) -> None:
    client.put(path, headers=JSON)
    client.post(path, content=b"0", headers=JSON | producer("p", 3, 0) | {"stream-seq": "m"})
    body, headers = request_
    answer = client.post(path, content=body, headers=headers)
    assert answer.status_code == status
    assert named.items() <= dict(answer.headers).items()
    assert "stream-closed" not in answer.headers
    assert "stream-closed" not in client.head(path).headers
    assert client.post(path, content=b"1", headers=JSON | producer("p", 3, 1)).status_code == 200


def test_a_producer_may_close_the_stream(client: httpx.Client, path: str) -> None:
    client.put(path, headers=TEXT)
    assert client.post(path, content=b"x", headers=TEXT | P00).status_code == 200
    closed = client.post(path, headers=CLOSE | P01)
    assert (closed.status_code, closed.headers["producer-seq"]) == (204, "1")
    late = client.post(path, content=b"y", headers=TEXT | producer("p", 0, 2))
    assert late.status_code == 409


def test_closing_does_not_move_the_offset(client: httpx.Client, path: str) -> None:
    client.put(path, content=b"x", headers=TEXT)
    tail = client.head(path).headers["stream-next-offset"]
    client.post(path, headers=CLOSE)
    at_tail = client.get(path, params={"offset": tail})
    assert (at_tail.status_code, at_tail.content) == (200, b"")
    assert at_tail.headers["stream-next-offset"] == tail
    assert at_tail.headers["stream-closed"] == at_tail.headers["stream-up-to-date"] == "true"


def test_a_closed_stream_can_be_deleted(client: httpx.Client, path: str) -> None:
    client.put(path, content=b"x", headers=TEXT | CLOSE)
    assert client.delete(path).status_code == 204
    assert client.head(path).status_code == 404
    assert "stream-closed" not in client.put(path, headers=TEXT).headers
