"""Server-sent events whose responses are finite, so that a cache in front can share them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from devtools.server import Server
from tailrace.protocols.durable_streams.caching import EPOCH_MS
from tests.integration.durable_streams.conftest import SECONDS, Connect
from tests.support.event_source import EventSource
from tests.support.events import Event, parsed
from tests.support.wire import CLOSE, JSON, TEXT, request, target


@pytest.fixture
def client(sharing: Server) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=f"{sharing.url}/v1/stream/", timeout=SECONDS, trust_env=False
    ) as client:
        yield client


def read(client: httpx.Client, path: str, offset: str = "-1", **query: str) -> list[Event]:
    """All events of a response, which ends by itself."""
    answer = client.get(path, params={"live": "sse", "offset": offset, **query})
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "public, max-age=1, stale-if-error=0"
    assert answer.content.startswith(b"retry: 100\n\n")
    return parsed(answer.content)


def kinds(events: list[Event]) -> list[str]:
    return [event.kind for event in events]


def current_cursor() -> int:
    return int(time.time() * 1000 - EPOCH_MS) // 20_000


def interval() -> int:
    """The interval of one second in which the cache in front counts."""
    return int(time.time() * 1000 - EPOCH_MS) // 1000


def test_data_ends_the_response(client: httpx.Client, path: str) -> None:
    client.put(path, content=b"one", headers=TEXT)
    data, control = read(client, path)
    assert (data.data, control.control["upToDate"]) == ("one", True)
    assert control.control["streamNextOffset"] == client.head(path).headers["stream-next-offset"]


def test_a_response_has_all_chunks_there_are(client: httpx.Client, path: str) -> None:
    client.put(path, headers=TEXT)
    for _ in range(3):
        client.post(path, content=b"x" * (1 << 20), headers=TEXT)
    events = read(client, path)
    assert len(events) > 2
    assert sum(len(event.data) for event in events if event.kind == "data") == 3 << 20
    assert [event.control.get("upToDate") for event in events if event.kind == "control"][-1]


def test_the_first_append_ends_the_wait(
    client: httpx.Client, sharing: Server, connect: Connect, path: str
) -> None:
    client.put(path, headers=TEXT)
    wire = connect(sharing)
    wire.send(request("GET", target(path, live="sse", offset="now")))
    assert wire.head()[0] == 200
    first = wire.chunk()
    assert kinds(parsed(first)) == ["control"]
    client.post(path, content=b"news", headers=TEXT)
    rest = parsed(b"".join(iter(wire.chunk, b"")))
    # On a slow machine the wait was over before.
    assert kinds(rest) in (["data", "control"], ["control"])


def test_without_data_it_ends_with_a_cursor_that_leads_on(client: httpx.Client, path: str) -> None:
    client.put(path, headers=TEXT)
    before, key = current_cursor(), interval()
    first, last = read(client, path, cursor=str(key))
    assert first.control["streamNextOffset"] == last.control["streamNextOffset"]
    # The interval of the key is over, so a reader need not be ahead of the time to get another one.
    assert before <= int(last.control["streamCursor"]) <= current_cursor()
    ahead = read(client, path, cursor=str(interval() + 10))[-1]
    assert int(ahead.control["streamCursor"]) > current_cursor()


def test_a_closed_stream_says_so_at_once(client: httpx.Client, path: str) -> None:
    client.put(path, content=b"end", headers=TEXT | CLOSE)
    data, control = read(client, path)
    assert (data.data, control.control["streamClosed"]) == ("end", True)
    offset = control.control["streamNextOffset"]
    (only,) = read(client, path, offset)
    assert only.control["streamClosed"] is True
    resumed = {"last-event-id": offset}
    answer = client.get(path, params={"live": "sse", "offset": "-1"}, headers=resumed)
    assert answer.status_code == 204
    assert answer.headers["cache-control"] == "no-store"


def test_a_reader_by_last_is_not_shared(client: httpx.Client, path: str) -> None:
    client.put(path, content=b"abc", headers=TEXT)
    answer = client.get(path, params={"live": "sse", "last": "1"})
    assert answer.headers["cache-control"] == "no-cache"
    assert kinds(parsed(answer.content)) == ["data", "control"]


def test_a_missing_stream_of_the_second_mount_is_waited_for(
    client: httpx.Client, sharing: Server, path: str
) -> None:
    url = f"{sharing.url}/ds/{path}"
    query: dict[str, Any] = {"live": "sse", "offset": "-1"}
    answer = client.get(url, params=query)
    assert kinds(parsed(answer.content)) == ["control", "control"]
    client.put(path, content=b"[1]", headers=JSON)
    assert parsed(client.get(url, params=query).content)[0].data == "[1]"


def test_a_browser_goes_on_by_itself(client: httpx.Client, sharing: Server, path: str) -> None:
    client.put(path, headers=JSON)
    source = EventSource(f"{sharing.url}/v1/stream/{path}?live=sse&offset=-1")
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(lambda: list(source.messages()))
        for number in range(30):
            client.post(path, content=f"[{number},{number}]".encode(), headers=JSON)
            time.sleep(0.02)
        client.post(path, headers=CLOSE)
        received = reading.result(SECONDS)
    assert received == [number for number in range(30) for _ in range(2)]
    assert source.connections > 3
