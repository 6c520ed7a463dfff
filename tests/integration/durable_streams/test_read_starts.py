"""`last` and `since` over HTTP: in every mode, and never from a cache."""

from __future__ import annotations

import httpx
import pytest

from tests.integration.durable_streams.conftest import Connect
from tests.support.events import EventStream
from tests.support.wire import CLOSE, JSON, Connection, request, target


@pytest.fixture
def stream(client: httpx.Client, path: str) -> str:
    client.put(path, content=b"[1,2]", headers=JSON)
    client.post(path, content=b"[3,4,5]", headers=JSON)
    return path


@pytest.mark.parametrize(("query", "body"), [("last=2", b"[4,5]"), ("last=0", b"[]"),
                                             ("since=0", b"[1,2,3,4,5]"),
                                             ("since=2199-01-01T00:00:00Z", b"[]")])  # fmt: skip
def test_a_catch_up_read_is_not_stored_by_caches(
    client: httpx.Client, stream: str, query: str, body: bytes
) -> None:
    answer = client.get(f"{stream}?{query}")
    assert (answer.status_code, answer.content) == (200, body)
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["stream-up-to-date"] == "true"
    end = client.head(stream).headers["stream-next-offset"]
    assert answer.headers["stream-next-offset"] == end
    assert "etag" not in answer.headers


@pytest.mark.parametrize("query", ["last=2", "since=0"])
def test_a_long_poll_answers_with_data_at_once(
    client: httpx.Client, stream: str, query: str
) -> None:
    answer = client.get(f"{stream}?{query}&live=long-poll")
    assert answer.json()[-2:] == [4, 5]
    assert answer.headers["cache-control"] == "no-store"


def test_a_long_poll_of_nothing_waits(client: httpx.Client, wire: Connection, stream: str) -> None:
    wire.send(request("GET", target(stream, last="0", live="long-poll")))
    assert wire.quiet(0.1)
    client.post(stream, content=b"6", headers=JSON)
    assert wire.answer().body == b"[6]"


def test_events_begin_there_and_go_on(client: httpx.Client, connect: Connect, stream: str) -> None:
    wire = connect()
    wire.send(request("GET", target(stream, last="1", live="sse")))
    assert wire.head()[0] == 200
    assert wire.chunk().startswith(b"retry: 1000\n\nevent: data\ndata:[5]\n\nevent: control\n")
    client.post(stream, content=b"6", headers=JSON | CLOSE)
    assert b"data:[6]\n" in wire.chunk()
    # The offset of the first answer is an ordinary one.
    end = client.head(stream).headers["stream-next-offset"]
    [control] = EventStream(connect(), stream, end)
    assert control.control["streamClosed"] is True


@pytest.mark.parametrize("query", ["last=x", "since=x", "last=1&offset=-1", "last=1&since=1"])
def test_bad_parameters_are_400(client: httpx.Client, stream: str, query: str) -> None:
    assert client.get(f"{stream}?{query}").json()["error"]["code"] == "BAD_PARAMETER"
    assert client.get(f"{stream}/missing?{query}").status_code == 404


def test_head_says_where_the_stream_begins_and_when_it_was_written(
    client: httpx.Client, path: str
) -> None:
    client.put(path, headers=JSON)
    created = client.head(path).headers
    assert created["stream-earliest-offset"] == created["stream-next-offset"]
    offset = client.post(path, content=b"1", headers=JSON).headers["stream-next-offset"]
    written = client.head(path).headers
    assert written["stream-earliest-offset"] == created["stream-earliest-offset"]
    assert created["stream-last-written-at"] <= written["stream-last-written-at"]
    since = client.get(path, params={"since": written["stream-last-written-at"]})
    assert (since.content, since.headers["stream-next-offset"]) == (b"[1]", offset)
