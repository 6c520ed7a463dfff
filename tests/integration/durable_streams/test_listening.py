"""Connections whose server-sent events wait for data, and what their clients send meanwhile."""

from __future__ import annotations

import httpx

from tests.integration.durable_streams.conftest import Connect
from tests.support.events import EventStream
from tests.support.wire import CLOSE, TEXT, Connection, request, target


def test_a_connection_serves_requests_after_its_events(
    client: httpx.Client, wire: Connection, path: str
) -> None:
    client.put(path, content=b"1", headers=TEXT)
    for _ in range(2):
        events = EventStream(wire, path).caught_up()
        client.post(path, content=b"2", headers=TEXT)
        assert events.pair()[0] == "2"
        client.delete(path)
        assert [event.kind for event in events] == ["deleted"]
        client.put(path, content=b"1", headers=TEXT)
        assert wire.ask("GET", target(path)).body == b"1"


def test_requests_that_come_while_events_wait_are_answered_after_them(
    client: httpx.Client, wire: Connection, path: str
) -> None:
    client.put(path, content=b"1", headers=TEXT)
    events = EventStream(wire, path).caught_up()
    wire.send(request("POST", target(path, seen="1"), TEXT | CLOSE, b"") + b"GET ")
    wire.send(f"{target(path)} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    client.post(path, content=b"2", headers=TEXT)
    assert events.pair()[0] == "2"
    client.post(path, headers=CLOSE)
    assert [event.control["streamClosed"] for event in events] == [True]
    assert wire.answer("POST").status == 204
    assert wire.answer().body == b"12"


def test_requests_that_come_with_that_of_the_events_are_answered_after_them(
    client: httpx.Client, connect: Connect, path: str
) -> None:
    client.put(path, content=b"1", headers=TEXT)
    following = request("GET", target(path))
    for length in (5, len(following)):
        wire = connect()
        wire.send(request("GET", target(path, live="sse", offset="now")) + following[:length])
        assert wire.head()[0] == 200
        assert b"upToDate" in wire.chunk()
        client.post(path, content=b"2", headers=TEXT)
        assert b"data:2" in wire.chunk()
        wire.send(following[length:])
        client.delete(path)
        assert b"event: deleted" in wire.chunk()
        assert not wire.chunk()
        assert wire.answer().status == 404
        client.put(path, content=b"1", headers=TEXT)


def test_a_connection_that_is_to_be_closed_is_closed_after_its_events(
    client: httpx.Client, wire: Connection, path: str
) -> None:
    client.put(path, content=b"1", headers=TEXT)
    events = EventStream(wire, path, headers={"connection": "close"}).caught_up()
    client.delete(path)
    assert [event.kind for event in events] == ["deleted"]
    assert wire.ended()


def test_events_of_http_1_0_have_no_chunks(
    client: httpx.Client, wire: Connection, path: str
) -> None:
    client.put(path, content=b"1", headers=TEXT)
    wire.send(request("GET", target(path, live="sse", offset="now"), version="1.0"))
    assert wire.head()[0] == 200
    assert client.post(path, content=b"2", headers=TEXT).status_code == 204
    client.delete(path)
    body = wire.rest()
    assert body.startswith(b"retry: 1000\n\nevent: control\n")
    assert body.endswith(b"event: deleted\ndata:{}\n\n")
