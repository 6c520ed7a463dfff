"""`live=sse`: the exact bytes of events, and the lifetime of event streams."""

from __future__ import annotations

import base64
import contextlib
import json
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from durable_streams._sse import SSEDataEvent, SSEParser

from devtools.server import Server
from tests.conftest import StoreSettings
from tests.integration.durable_streams.conftest import SECONDS, Connect
from tests.support.event_source import EventSource
from tests.support.events import EventStream, parsed
from tests.support.wire import (
    CLOSE,
    COMMON_HEADERS,
    JSON,
    START,
    TEXT,
    Connection,
    Hangup,
    eventually,
    place,
    producer,
    request,
    target,
)


def whole(connection: Connection, path: str, offset: str = "-1") -> bytes:
    """Read the whole of a response that ends by itself."""
    return connection.ask("GET", target(path, live="sse", offset=offset)).body


def test_the_headers_of_an_event_stream(client: httpx.Client, wire: Connection, path: str) -> None:
    client.put(path, headers=TEXT)
    headers = EventStream(wire, path).headers
    assert headers["content-type"] == "text/event-stream"
    assert headers["cache-control"] == "no-cache"
    assert headers["transfer-encoding"] == "chunked"
    unwanted = ("content-length", "content-encoding", "stream-sse-data-encoding", "stream-closed")
    assert not [name for name in unwanted if name in headers]
    assert COMMON_HEADERS.items() <= dict(headers).items()


def test_the_exact_bytes_of_a_closed_stream(
    client: httpx.Client, wire: Connection, path: str
) -> None:
    client.put(path, content=b"hello", headers=TEXT | CLOSE)
    end = client.head(path).headers["stream-next-offset"].encode()
    assert whole(wire, path) == (
        b"retry: 1000\n\nevent: data\ndata:hello\n\n"
        b'event: control\ndata:{"streamNextOffset":"%b",'
        b'"upToDate":true,"streamClosed":true}\nid:%b\n\n' % (end, end)
    )


def test_the_exact_bytes_of_an_open_stream(
    client: httpx.Client, wire: Connection, path: str
) -> None:
    client.put(path, content=b"hello", headers=TEXT)
    wire.send(request("GET", target(path, live="sse", offset="-1")))
    wire.head()
    assert re.fullmatch(
        rb"retry: 1000\n\nevent: data\ndata:hello\n\n"
        rb'event: control\ndata:\{"streamNextOffset":"([0-9]{4}000000000001_0000000000000005)",'
        rb'"streamCursor":"[0-9]+","upToDate":true\}\nid:\1\n\n',
        wire.chunk(),
    )


@pytest.mark.parametrize(
    ("payload", "wire_form"),
    [
        ("line1\nline2", "data:line1\ndata:line2\n"),
        ("line1\rline2", "data:line1\ndata:line2\n"),
        ("\r\n\r\n", "data:\ndata:\ndata:\n"),
        ("\n\r", "data:\ndata:\ndata:\n"),
        ("é😀", "data:é😀\n"),
        ("a\u2028b\x0bc\x0cd\x85e\x00f", "data:a\u2028b\x0bc\x0cd\x85e\x00f\n"),
        (": not a comment", "data:: not a comment\n"),
        ("data:x", "data:data:x\n"),
    ],
)
def test_every_line_of_text_gets_its_own_field(
    client: httpx.Client, wire: Connection, path: str, payload: str, wire_form: str
) -> None:
    client.put(path, content=payload.encode(), headers=TEXT | CLOSE)
    sent = whole(wire, path).decode()
    assert sent.startswith(f"retry: 1000\n\nevent: data\n{wire_form}\nevent: control\n")
    data, control = parsed(sent.encode())
    assert data.data == re.sub("\r\n|\r", "\n", payload)
    assert control.control["streamNextOffset"] == client.head(path).headers["stream-next-offset"]


@pytest.mark.parametrize("payload", ["  x", " ", "a\n b\n  c"])
def test_leading_spaces_survive_real_parsers(
    client: httpx.Client, wire: Connection, path: str, payload: str
) -> None:
    client.put(path, content=payload.encode(), headers=TEXT | CLOSE)
    sent = whole(wire, path)
    expected = payload.replace("\r\n", "\n")
    assert parsed(sent)[0].data == expected
    [published, _] = SSEParser().feed(sent.decode())
    assert isinstance(published, SSEDataEvent)
    assert published.data == expected


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
@pytest.mark.parametrize("headers", [TEXT, JSON, {"content-type": "application/x-evil"}])
def test_no_payload_can_forge_an_event(
    client: httpx.Client, wire: Connection, path: str, end: str, headers: dict[str, str]
) -> None:
    forged = f'x{end}{end}event: control{end}data:{{"streamNextOffset":"evil"}}{end}{end}'
    if headers is JSON:
        forged = f'[{end}"x",{end}{end}"event: control",{end} "data:{{}}"{end}]'
    client.put(path, content=forged.encode(), headers=headers | CLOSE)
    events = parsed(whole(wire, path))
    assert [event.kind for event in events] == ["data", "control"]
    assert events[1].control == {
        "streamNextOffset": client.head(path).headers["stream-next-offset"],
        "upToDate": True,
        "streamClosed": True,
    }
    if headers is JSON:
        assert json.loads(events[0].data) == json.loads(forged)


@pytest.mark.parametrize(
    ("kind", "encoded"),
    [
        ("text/plain", False),
        ("TEXT/x-anything", False),
        ("application/json", False),
        ("application/JSON; charset=utf-8", False),
        ("application/ndjson", True),
        ("image/png", True),
    ],
)
def test_only_text_and_json_are_not_encoded(
    client: httpx.Client, wire: Connection, path: str, kind: str, encoded: bool
) -> None:
    client.put(path, content=b'"a"', headers={"content-type": kind} | CLOSE)
    events = EventStream(wire, path)
    expected = "base64" if encoded else None
    assert events.headers.get("stream-sse-data-encoding") == expected
    data, _ = events.pair()
    text = base64.b64decode(data, validate=True).decode() if encoded else data
    assert text.strip("[]") == '"a"'


def test_every_binary_event_decodes_by_itself(
    client: httpx.Client, wire: Connection, path: str
) -> None:
    client.put(path)
    events = EventStream(wire, path)
    assert next(events).control["upToDate"]
    for body in (b"\x00", b"\xff\xfe", bytes(range(256)), b"\n\r\n", b"\x00" * 100_000):
        client.post(path, content=body, headers={"content-type": "application/octet-stream"})
        data, control = events.pair()
        assert base64.b64decode(data, validate=True) == body
        assert control["upToDate"]


def test_json_events_are_arrays(client: httpx.Client, wire: Connection, path: str) -> None:
    client.put(path, content=b"[1,2]", headers=JSON)
    client.post(path, content=b'{"a": [3]}', headers=JSON)
    events = EventStream(wire, path)
    assert json.loads(events.pair()[0]) == [1, 2, {"a": [3]}]
    client.post(path, content=b"[[4,5]]", headers=JSON)
    assert json.loads(events.pair()[0]) == [[4, 5]]


@pytest.mark.parametrize("offset", ["-1", "now", START])
def test_an_empty_stream_begins_with_a_control_event(
    client: httpx.Client, wire: Connection, path: str, offset: str
) -> None:
    client.put(path, headers=TEXT)
    control = next(EventStream(wire, path, offset)).control
    assert control.keys() == {"streamNextOffset", "streamCursor", "upToDate"}
    assert place(control["streamNextOffset"]) == START
    assert control["upToDate"] is True
    assert control["streamCursor"].isdigit()


def test_now_skips_history(client: httpx.Client, wire: Connection, path: str) -> None:
    client.put(path, content=b"old", headers=TEXT)
    events = EventStream(wire, path, "now")
    control = next(events).control
    assert place(control["streamNextOffset"]) == f"{1:016d}_{3:016d}"
    assert control["upToDate"] is True
    client.post(path, content=b"new", headers=TEXT)
    assert events.pair()[0] == "new"


def test_a_control_event_after_every_data_event(
    client: httpx.Client, wire: Connection, path: str
) -> None:
    client.put(path, content=b"0", headers=TEXT)
    events = EventStream(wire, path)
    assert events.pair()[0] == "0"
    for n in range(1, 20):
        answer = client.post(path, content=b"%d" % n, headers=TEXT)
        data, control = events.pair()
        assert data == str(n)
        assert control["streamNextOffset"] == answer.headers["stream-next-offset"]
        assert control["upToDate"] is True
        assert "streamClosed" not in control


def test_a_reader_beside_a_writer_gets_every_message_once(
    client: httpx.Client, connect: Connect, path: str
) -> None:
    client.put(path, headers=JSON)
    count = 100

    def write() -> None:
        for n in range(count - 1):
            client.post(path, content=b"%d" % n, headers=JSON)
        client.post(path, content=b"%d" % (count - 1), headers=JSON | CLOSE)

    writer = threading.Thread(target=write)
    writer.start()
    readers = [EventStream(connect(), path) for _ in range(4)]
    try:
        for reader in readers:
            seen: list[int] = []
            kinds: list[str] = []
            for event in reader:
                kinds.append(event.kind)
                if event.kind == "data":
                    seen += json.loads(event.data)
            assert seen == list(range(count))
            assert "data, data" not in ", ".join(kinds)
            assert kinds[-1] == "control"
    finally:
        writer.join()


def test_reconnecting_does_not_replay(client: httpx.Client, connect: Connect, path: str) -> None:
    client.put(path, content=b"a", headers=TEXT)
    first = connect()
    _, control = EventStream(first, path).pair()
    first.close()
    client.post(path, content=b"b", headers=TEXT)
    again = EventStream(
        connect(), path, control["streamNextOffset"], cursor=control["streamCursor"]
    )
    data, later = again.pair()
    assert data == "b"
    assert int(later["streamCursor"]) > int(control["streamCursor"])


Ending = Callable[[httpx.Client, str], object]

ENDINGS: dict[str, tuple[Ending, list[str]]] = {
    "close": (lambda client, path: client.post(path, headers=CLOSE), []),
    "close by a producer": (
        lambda client, path: client.post(path, headers=CLOSE | producer("p", 0, 0)),
        [],
    ),
    "append and close": (
        lambda client, path: client.post(path, content=b"last", headers=TEXT | CLOSE),
        ["last"],
    ),
    "append, then close": (
        lambda client, path: [
            client.post(path, content=b"last", headers=TEXT),
            client.post(path, headers=CLOSE),
        ],
        ["last"],
    ),
}


@pytest.mark.parametrize(("end", "data"), ENDINGS.values(), ids=ENDINGS)
def test_closing_ends_the_response_after_the_last_data(
    client: httpx.Client, wire: Connection, path: str, end: Ending, data: list[str]
) -> None:
    client.put(path, headers=TEXT)
    events = EventStream(wire, path).caught_up()
    end(client, path)
    rest = list(events)
    assert [event.data for event in rest if event.kind == "data"] == data
    assert rest[-1].control == {
        "streamNextOffset": client.head(path).headers["stream-next-offset"],
        "upToDate": True,
        "streamClosed": True,
    }
    assert not any("streamClosed" in event.data for event in rest[:-1])
    # The last chunk was sent: the connection can be used again.
    assert wire.ask("HEAD", target(path)).status == 200


@pytest.mark.parametrize("offset", ["now", f"{1:016d}_{1:016d}"])
def test_the_end_of_a_closed_stream_is_one_event(
    client: httpx.Client, wire: Connection, path: str, offset: str
) -> None:
    client.put(path, content=b"x", headers=TEXT | CLOSE)
    [event] = list(EventStream(wire, path, offset))
    assert event.control == {
        "streamNextOffset": client.head(path).headers["stream-next-offset"],
        "upToDate": True,
        "streamClosed": True,
    }


@pytest.mark.parametrize("again", [False, True])
def test_deleting_ends_the_response(
    client: httpx.Client, wire: Connection, path: str, again: bool
) -> None:
    client.put(path, content=b"x", headers=TEXT)
    events = EventStream(wire, path).caught_up()
    client.delete(path)
    if again:
        client.put(path, content=b"of another stream", headers=TEXT)
    assert list(events) == [("deleted", "{}")]
    assert wire.ask("HEAD", target(path)).status == (200 if again else 404)


@pytest.fixture(scope="module")
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that keeps little in memory and evicts streams at once."""
    env = {
        "TAILRACE_CHUNK_BYTES": "1024",
        "TAILRACE_HOT_BYTES": "0",
        "TAILRACE_OPEN_STREAMS": "16",
        "TAILRACE_SWEEP_INTERVAL": "0.05",
    }
    with Server(tmp_path_factory.mktemp("forgetful") / "data", env) as server:
        yield server


BACKLOG = 20


def lagging(server: Server, connect: Connect, path: str) -> EventStream:
    """A reader that is behind by more data than the buffers between it and the server hold."""
    url = f"{server.url}{target(path)}"
    with httpx.Client(trust_env=False, timeout=SECONDS) as client:
        client.put(url, headers=TEXT)
        for _ in range(BACKLOG):
            client.post(url, content=b"x" * 500_000, headers=TEXT)
    events = EventStream(connect(server, receive_bytes=4096), path)
    assert len(events.pair()[0]) == 500_000
    return events


def test_deleting_ends_the_response_of_a_reader_that_is_behind(
    forgetful: Server, connect: Connect, path: str
) -> None:
    events = lagging(forgetful, connect, path)
    assert connect(forgetful).ask("DELETE", target(path)).status == 204
    eventually(lambda: not list(forgetful.data.glob("bodies/*/*")), seconds=SECONDS)
    seen = 1
    # It has to end, by its last chunk or by a closed connection.
    with contextlib.suppress(Hangup):
        for event in events:
            seen += event.kind == "data"
    assert seen < BACKLOG
    assert "Traceback" not in forgetful.output()


def test_a_reader_that_has_caught_up_gets_new_appends(
    forgetful: Server, connect: Connect, path: str
) -> None:
    """Meanwhile the server has evicted the stream and opened it again."""
    events = lagging(forgetful, connect, path)
    writer = connect(forgetful)
    for n in range(40):
        assert writer.ask("PUT", target(f"{path}/{n}"), TEXT).status == 201
    events.caught_up()
    # There was no append before this one, so there may be no event before it.
    writer.ask("POST", target(path), TEXT, b"news")
    assert events.pair()[0] == "news"


@pytest.fixture
def lasting(store_settings: StoreSettings, tmp_path: Path) -> Iterator[Server]:
    """A server whose event streams do not end before their stream."""
    env = {"TAILRACE_SSE_LIFETIME": "3600"}
    with Server(tmp_path / "data", {**store_settings(), **env}) as server:
        yield server


def test_a_slow_reader_gets_what_was_appended_while_its_buffers_were_full(
    lasting: Server, connect: Connect, path: str
) -> None:
    writer = connect(lasting)
    # More than the buffers between the server and a client that does not read.
    large = b"x" * (4 << 20)
    assert writer.ask("PUT", target(path), TEXT, large).status == 201
    delivered_late = False
    # The server disconnects a client that does not read for 30 s, as on a busy machine.
    while not delivered_late:
        with contextlib.suppress(Hangup, ConnectionResetError):
            delivered_late = _delivered_late(
                writer, connect(lasting), connect(lasting, receive_bytes=4096), path
            )


def _delivered_late(writer: Connection, quick: Connection, slow: Connection, path: str) -> bool:
    """Whether a slow reader gets an append that others got while its buffers were full."""
    slow.send(request("GET", target(path, live="sse", offset="-1")))
    assert slow.head()[0] == 200
    events = EventStream(quick, path, "now").caught_up()
    assert writer.ask("POST", target(path), TEXT, b"news").status == 204
    assert events.pair()[0] == "news"
    end = time.monotonic() + SECONDS
    while chunk := slow.chunk():
        if b"data:news" in chunk:
            return True
        assert time.monotonic() < end, "there are keep-alives only"
    raise AssertionError("the response ended")


def test_the_id_of_an_event_wins_over_the_offset(
    client: httpx.Client, connect: Connect, path: str
) -> None:
    client.put(path, content=b"old", headers=TEXT)
    middle = client.head(path).headers["stream-next-offset"]
    client.post(path, content=b"new", headers=TEXT)
    events = EventStream(connect(), path, "-1", {"last-event-id": middle})
    assert events.pair()[0] == "new"
    # Without live=sse it is a header like any other.
    answer = client.get(path, params={"offset": "-1"}, headers={"last-event-id": middle})
    assert answer.content == b"oldnew"


def test_a_browser_at_the_end_of_a_closed_stream_is_told_to_stop(
    client: httpx.Client, wire: Connection, path: str
) -> None:
    client.put(path, content=b"x", headers=TEXT | CLOSE)
    end = client.head(path).headers["stream-next-offset"]
    answer = wire.ask("GET", target(path, live="sse", offset="-1"), {"last-event-id": end})
    assert (answer.status, answer.offset) == (204, end)
    assert answer.headers["stream-closed"] == "true"
    assert answer.headers["cache-control"] == "no-store"


def test_a_small_client_survives_lifetimes_restarts_and_drops(tmp_path: Path, path: str) -> None:
    """It loses and repeats nothing, though its connections break anywhere within an event."""
    chance = random.Random(path)
    with Server(tmp_path / "data", {"TAILRACE_SSE_LIFETIME": "0.2"}) as server:
        url = f"{server.url}{target(path)}"
        source = EventSource(
            f"{url}?offset=-1&live=sse", cut=lambda: chance.choice((100, 700, 10**9))
        )
        expected = []
        received: list[int] = []
        with ThreadPoolExecutor(1) as pool, httpx.Client(trust_env=False) as client:
            client.put(url, headers=JSON)
            reading = pool.submit(lambda: received.extend(source.messages()))
            for turn in range(40):
                if turn == 20:
                    server.restart()
                expected += [turn, turn + 1000]
                client.post(url, content=json.dumps(expected[-2:]).encode(), headers=JSON)
                time.sleep(0.02)
            client.post(url, headers=CLOSE)
            reading.result(SECONDS)
    assert received == expected
    assert source.connections > 3


def test_an_idle_response_ends_after_its_lifetime(
    cramped: Server, cramped_client: httpx.Client, connect: Connect, path: str
) -> None:
    cramped_client.put(path, headers=TEXT)
    wire = connect(cramped)
    began = time.monotonic()
    wire.send(request("GET", target(path, live="sse", offset="-1")))
    assert wire.head()[0] == 200
    [first] = iter(wire.chunk, b"")
    assert time.monotonic() - began > 0.8
    [control] = parsed(first)
    # The connection can be used again, from the same offset.
    cramped_client.post(path, content=b"next", headers=TEXT)
    events = EventStream(wire, path, control.control["streamNextOffset"])
    assert events.pair()[0] == "next"


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [("?live=sse", 400, "BAD_OFFSET"), ("?live=sse&offset=x", 400, "BAD_OFFSET")],
)
def test_a_bad_request_is_400_and_no_event_stream(
    client: httpx.Client, wire: Connection, path: str, query: str, status: int, code: str
) -> None:
    client.put(path, headers=TEXT)
    answer = wire.ask("GET", target(path) + query)
    assert (answer.status, answer.code) == (status, code)


def test_a_missing_stream_is_404_and_no_event_stream(wire: Connection, path: str) -> None:
    for offset in ("-1", "now"):
        answer = wire.ask("GET", target(path, live="sse", offset=offset))
        assert (answer.status, answer.code) == (404, "STREAM_NOT_FOUND")


@pytest.mark.parametrize("ahead", [0, 3])
def test_the_cursor_advances(client: httpx.Client, connect: Connect, path: str, ahead: int) -> None:
    client.put(path, content=b"x", headers=TEXT)
    current = int(EventStream(connect(), path).pair()[1]["streamCursor"])
    held = current + ahead
    events = EventStream(connect(), path, cursor=str(held))
    first = int(events.pair()[1]["streamCursor"])
    assert first > held
    client.post(path, content=b"y", headers=TEXT)
    assert int(events.pair()[1]["streamCursor"]) >= first


def test_http_1_0_gets_events_until_the_connection_ends(
    client: httpx.Client, wire: Connection, path: str
) -> None:
    client.put(path, content=b"x", headers=TEXT | CLOSE)
    wire.send(request("GET", target(path, live="sse", offset="-1"), version="1.0"))
    status, headers = wire.head()
    assert status == 200
    assert "transfer-encoding" not in headers
    assert [event.kind for event in parsed(wire.rest())] == ["data", "control"]


def test_many_readers_get_the_same_events(
    client: httpx.Client, connect: Connect, path: str
) -> None:
    client.put(path, headers=TEXT)
    readers = [EventStream(connect(), path).caught_up() for _ in range(10)]
    leaving = connect()
    EventStream(leaving, path).caught_up()
    leaving.close()
    client.post(path, content=b"one", headers=TEXT)
    client.post(path, content=b"two", headers=TEXT | CLOSE)
    for reader in readers:
        events: list[Any] = list(reader)
        assert "".join(event.data for event in events if event.kind == "data") == "onetwo"


def test_events_of_a_fork_have_its_own_appends_only(
    client: httpx.Client, wire: Connection, path: str
) -> None:
    fork = f"{path}/fork"
    client.put(path, content=b"shared", headers=TEXT)
    client.put(fork, headers={"stream-forked-from": f"/v1/stream/{path}"})
    events = EventStream(wire, fork)
    assert events.pair()[0] == "shared"
    client.post(path, content=b"source", headers=TEXT)
    client.post(fork, content=b"own", headers=TEXT)
    assert events.pair()[0] == "own"


def test_head_of_a_live_url_returns_at_once(
    wire: Connection, client: httpx.Client, path: str
) -> None:
    client.put(path, headers=TEXT)
    answer = wire.ask("HEAD", target(path, live="sse", offset="-1"))
    assert (answer.status, answer.headers["content-type"]) == (200, "text/plain")
