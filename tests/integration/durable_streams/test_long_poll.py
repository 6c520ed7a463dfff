"""`live=long-poll`: data at once, or as soon as there is some, or 204."""

from __future__ import annotations

import time
from collections.abc import Callable

import httpx
import pytest

from devtools.server import Server
from tests.integration.durable_streams.conftest import SECONDS, Connect
from tests.support.wire import (
    CLOSE,
    JSON,
    START,
    TEXT,
    Answer,
    Connection,
    eventually,
    place,
    producer,
    request,
    target,
)

EPOCH = 1_728_432_000
"""2024-10-09, from which cursors count intervals of 20 seconds."""


def poll(connection: Connection, path: str, offset: str, **query: str) -> None:
    connection.send(request("GET", target(path, live="long-poll", offset=offset, **query)))


def waiting(connection: Connection, path: str, offset: str) -> Connection:
    """The connection, with a poll that most likely waits by now.

    `offset` is a real one, not `now`: the answer is the same if the poll is late.
    """
    poll(connection, path, offset)
    assert connection.quiet(0.05)
    return connection


def assert_live(answer: Answer) -> None:
    assert answer.headers["stream-cursor"].isdigit()
    assert answer.headers["cache-control"] == "public, max-age=1, stale-if-error=0"


def test_data_after_the_offset_is_returned_at_once(client: httpx.Client, path: str) -> None:
    client.put(path, content=b"hello", headers=TEXT)
    answer = client.get(path, params={"live": "long-poll", "offset": "-1"})
    assert (answer.status_code, answer.content) == (200, b"hello")
    assert answer.headers["content-type"] == "text/plain"
    assert place(answer.headers["stream-next-offset"]) == f"{1:016d}_{5:016d}"
    assert answer.headers["stream-up-to-date"] == "true"
    assert answer.headers["etag"]
    assert answer.headers["stream-cursor"].isdigit()
    assert "stream-closed" not in answer.headers


TAIL = f"{1:016d}_{5:016d}"


@pytest.mark.parametrize(("headers", "body"), [(TEXT, b"hello"), (JSON, b"[1,2,3,4,5]")])
def test_new_data_ends_the_wait(
    client: httpx.Client, wire: Connection, path: str, headers: dict[str, str], body: bytes
) -> None:
    client.put(path, content=body, headers=headers)
    waiting(wire, path, TAIL)
    appended = client.post(path, content=b"12", headers=headers)
    answer = wire.answer()
    assert answer.status == 200
    assert answer.body == (b"[12]" if headers is JSON else b"12")
    assert answer.offset == appended.headers["stream-next-offset"]
    assert answer.headers["stream-up-to-date"] == "true"
    assert answer.headers["etag"]
    assert_live(answer)


@pytest.mark.parametrize("offset", ["now", f"{1:016d}_{9:016d}"], ids=["now", "too much data"])
def test_data_after_the_tail_ends_the_wait(
    client: httpx.Client, wire: Connection, path: str, offset: str
) -> None:
    client.put(path, content=b"old", headers=TEXT)
    poll(wire, path, offset)
    # The poll does not return an append that precedes it: then another one is needed.
    eventually(lambda: not _append_unheard(client, wire, path), seconds=SECONDS)
    answer = wire.answer()
    assert (answer.status, set(answer.body)) == (200, {ord("!")})


def _append_unheard(client: httpx.Client, wire: Connection, path: str) -> bool:
    client.post(path, content=b"!", headers=TEXT)
    return wire.quiet(0.2)


def test_a_long_poll_without_news_is_204(
    cramped: Server, cramped_client: httpx.Client, connect: Connect, path: str
) -> None:
    cramped_client.put(path, content=b"hello", headers=TEXT)
    wire = connect(cramped)
    began = time.monotonic()
    poll(wire, path, "now")
    answer = wire.answer()
    assert time.monotonic() - began > 0.35
    assert (answer.status, answer.body) == (204, b"")
    assert place(answer.offset) == TAIL
    assert answer.headers["stream-up-to-date"] == "true"
    unwanted = ("stream-closed", "content-type", "content-length", "etag", "transfer-encoding")
    assert not [name for name in unwanted if name in answer.headers]
    assert_live(answer)
    assert wire.ask("GET", target(path)).body == b"hello"


@pytest.mark.parametrize("offset", ["now", START])
def test_the_end_of_a_closed_stream_is_returned_at_once(
    client: httpx.Client, path: str, offset: str
) -> None:
    client.put(path, headers=TEXT | CLOSE)
    answer = client.get(path, params={"live": "long-poll", "offset": offset})
    assert answer.status_code == 204
    assert answer.headers["stream-closed"] == answer.headers["stream-up-to-date"] == "true"
    assert place(answer.headers["stream-next-offset"]) == START


def test_the_last_data_of_a_closed_stream_has_stream_closed(
    client: httpx.Client, path: str
) -> None:
    client.put(path, content=b"hello", headers=TEXT | CLOSE)
    answer = client.get(path, params={"live": "long-poll", "offset": "-1"})
    assert (answer.status_code, answer.content) == (200, b"hello")
    assert answer.headers["stream-closed"] == "true"


ENDINGS: dict[str, tuple[Callable[[httpx.Client, str], object], int, bytes, bool]] = {
    "close": (lambda client, path: client.post(path, headers=CLOSE), 204, b"", True),
    "close by a producer": (
        lambda client, path: client.post(path, headers=CLOSE | producer("p", 0, 0)),
        204,
        b"",
        True,
    ),
    "append and close": (
        lambda client, path: client.post(path, content=b"last", headers=TEXT | CLOSE),
        200,
        b"last",
        True,
    ),
    "delete": (lambda client, path: client.delete(path), 404, b"", False),
}


@pytest.mark.parametrize(("end", "status", "body", "closed"), ENDINGS.values(), ids=ENDINGS)
def test_closing_or_deleting_ends_the_wait(
    client: httpx.Client,
    wire: Connection,
    path: str,
    end: Callable[[httpx.Client, str], object],
    status: int,
    body: bytes,
    closed: bool,
) -> None:
    client.put(path, content=b"first", headers=TEXT)
    waiting(wire, path, TAIL)
    end(client, path)
    answer = wire.answer()
    assert answer.status == status
    assert answer.headers.get("stream-closed") == ("true" if closed else None)
    if status != 404:
        assert answer.body == body
        assert answer.headers["stream-up-to-date"] == "true"
        assert answer.offset == client.head(path).headers["stream-next-offset"]


def test_requests_that_append_nothing_do_not_end_the_wait(
    client: httpx.Client, wire: Connection, path: str
) -> None:
    client.put(path, headers=JSON)
    first = client.post(path, content=b"1", headers=JSON | producer("p", 0, 0))
    waiting(wire, path, first.headers["stream-next-offset"])
    assert client.post(path, content=b"1", headers=JSON | producer("p", 0, 0)).status_code == 204
    assert client.post(path, content=b"{", headers=JSON).status_code == 400
    assert client.post(path, content=b"1", headers=TEXT).status_code == 409
    client.get(path)
    client.put(path, headers=JSON)
    client.post(path, content=b"2", headers=JSON)
    assert wire.answer().body == b"[2]"


def test_a_poll_waits_at_an_empty_stream(client: httpx.Client, wire: Connection, path: str) -> None:
    client.put(path, headers=TEXT)
    waiting(wire, path, "-1")
    client.post(path, content=b"first", headers=TEXT)
    answer = wire.answer()
    assert (answer.status, answer.body) == (200, b"first")


def test_a_poll_of_a_fork_ends_by_its_own_appends_only(
    client: httpx.Client, wire: Connection, path: str
) -> None:
    fork = f"{path}/fork"
    client.put(path, content=b"shared", headers=TEXT)
    client.put(fork, headers={"stream-forked-from": f"/v1/stream/{path}"})
    inherited = client.get(fork, params={"live": "long-poll", "offset": "-1"})
    assert inherited.content == b"shared"
    waiting(wire, fork, inherited.headers["stream-next-offset"])
    client.post(path, content=b"source", headers=TEXT)
    client.post(fork, content=b"own", headers=TEXT)
    assert wire.answer().body == b"own"


def test_an_append_ends_all_waits(client: httpx.Client, connect: Connect, path: str) -> None:
    client.put(path, headers=TEXT)
    readers = [connect() for _ in range(20)]
    for reader in readers:
        poll(reader, path, START)
    assert readers[-1].quiet(0.1)
    client.post(path, content=b"news", headers=TEXT)
    answers = [reader.answer() for reader in readers]
    assert {(answer.status, answer.body) for answer in answers} == {(200, b"news")}
    assert len({answer.headers["etag"] for answer in answers}) == 1


def test_a_reader_may_disconnect(client: httpx.Client, connect: Connect, path: str) -> None:
    client.put(path, headers=TEXT)
    stays, leaves = connect(), connect()
    for reader in (stays, leaves):
        waiting(reader, path, START)
    leaves.close()
    client.post(path, content=b"news", headers=TEXT)
    assert stays.answer().body == b"news"


def current_cursor() -> int:
    return int(time.time() - EPOCH) // 20


@pytest.mark.parametrize("held", ["", "1", "abc", "%D9%A1"])
def test_an_old_or_missing_cursor_becomes_the_current_one(
    wire: Connection, path: str, held: str
) -> None:
    wire.ask("PUT", target(path), TEXT, b"x")
    low = current_cursor()
    answer = wire.ask("GET", f"{target(path)}?live=long-poll&offset=-1&cursor={held}")
    assert answer.headers["stream-cursor"].isascii()
    assert low <= int(answer.headers["stream-cursor"]) <= current_cursor()


@pytest.mark.parametrize("ahead", [0, 5])
def test_a_cursor_that_is_not_behind_advances(client: httpx.Client, path: str, ahead: int) -> None:
    client.put(path, content=b"x", headers=TEXT | CLOSE)
    held = current_cursor() + ahead
    for offset in ("-1", "now"):
        query = {"live": "long-poll", "offset": offset, "cursor": str(held)}
        got = int(client.get(path, params=query).headers["stream-cursor"])
        # The next interval may begin between two requests.
        assert got > held or (ahead == 0 and got == current_cursor())
        assert got - held <= 180


def test_pipelined_polls_do_not_pile_up(client: httpx.Client, connect: Connect, path: str) -> None:
    """One request waits; the next one of the connection is answered after it."""
    client.put(path, headers=TEXT)
    wire = connect()
    waiting(wire, path, START)
    wire.send(request("GET", target(path, offset="-1")))
    client.post(path, content=b"a", headers=TEXT)
    assert (wire.answer().body, wire.answer().body) == (b"a", b"a")
