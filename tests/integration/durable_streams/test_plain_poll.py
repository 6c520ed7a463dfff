"""Long-polls without a task: the same answers, byte for byte, as on the general path."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from devtools.server import Server
from tailrace.live.follower import SLICE_READERS
from tests.conftest import StoreSettings
from tests.integration.durable_streams.conftest import Connect
from tests.integration.durable_streams.test_plain_append import GENERAL, normalised
from tests.support.wire import CLOSE, JSON, TEXT, Connection, request, target

MANY = b"[" + b",".join([b'"%b"' % (b"x" * 100)] * 100) + b"]"

Change = tuple[str, dict[str, str], bytes]

CHANGES: dict[str, list[Change]] = {
    "append": [("POST", JSON, b"[2, 3]")],
    "large append": [("POST", JSON, MANY)],
    "append and close": [("POST", JSON | CLOSE, b"2")],
    "close": [("POST", CLOSE, b"")],
    "delete": [("DELETE", {}, b"")],
}

HEADERS: tuple[dict[str, str], ...] = (
    {},
    {"accept-encoding": "gzip"},
    {"connection": "close"},
    {"user-agent": "a", "accept": "*/*"},
)


def poll(path: str, offset: str, headers: dict[str, str], **query: str) -> bytes:
    return request("GET", target(path, live="long-poll", offset=offset, **query), headers)


def rest(wire: Connection, *, closes: bool) -> bytes:
    """All that comes until the connection ends. `closes`: the server closes it by itself."""
    if not closes:
        wire.send(request("HEAD", target("none"), {"connection": "close"}))
    return re.sub(rb"(?m)^stream-cursor: [0-9]+", b"", normalised(wire.rest()))


@pytest.mark.parametrize("change", CHANGES)
def test_both_paths_answer_the_same(
    client: httpx.Client, connect: Connect, path: str, change: str
) -> None:
    for number, headers in enumerate(HEADERS):
        for query in ({}, {"cursor": "7"}):
            where = f"{path}/{number}/{len(query)}"
            client.put(where, content=b"1", headers=JSON)
            tail = client.head(where).headers["stream-next-offset"]
            wires = [connect() for _ in range(3)]
            for wire, more in zip(wires, (GENERAL, {}, {}), strict=True):
                wire.send(poll(where, tail, headers | more, **query))
            assert all(wire.quiet(0.02) for wire in wires)
            for method, fields, body in CHANGES[change]:
                assert client.request(method, where, headers=fields, content=body).is_success
            closes = "connection" in headers
            general, *plain = [rest(wire, closes=closes) for wire in wires]
            assert plain == [general, general], (headers, query)


def test_pollers_follow_a_stream(client: httpx.Client, connect: Connect, path: str) -> None:
    client.put(path, headers=TEXT)
    wires = [connect() for _ in range(2 * SLICE_READERS)]
    tail = client.post(path, content=b"0", headers=TEXT).headers["stream-next-offset"]
    for number in range(5):
        for wire in wires:
            wire.send(poll(path, tail, {}))
        # Some of them may not wait yet; all get the same.
        posted = client.post(path, content=b"%d" % number, headers=TEXT)
        for wire in wires:
            got = wire.answer()
            assert (got.status, got.body) == (200, b"%d" % number)
            assert got.offset == posted.headers["stream-next-offset"]
        tail = posted.headers["stream-next-offset"]


def test_polls_of_an_earlier_stream_are_refused(
    client: httpx.Client, connect: Connect, path: str
) -> None:
    client.put(path, content=b"1", headers=TEXT)
    wire = connect()
    wire.send(poll(path, client.head(path).headers["stream-next-offset"], {}))
    assert wire.quiet(0.02)
    client.delete(path)
    client.put(path, content=b"2", headers=TEXT)
    # Not found if it was noticed before the path had another stream, and stale after that.
    assert wire.answer().status in (404, 410)


def test_a_client_that_disconnects_is_forgotten(
    client: httpx.Client, connect: Connect, path: str
) -> None:
    tail = client.put(path, headers=TEXT).headers["stream-next-offset"]
    tail = client.post(path, content=b"1", headers=TEXT).headers["stream-next-offset"]
    gone, there = connect(), connect()
    for wire in (gone, there):
        wire.send(poll(path, tail, {}))
    assert gone.quiet(0.02)
    gone.close()
    client.post(path, content=b"2", headers=TEXT)
    assert there.answer().body == b"2"


@pytest.fixture
def brief(store_settings: StoreSettings, tmp_path: Path) -> Iterator[Server]:
    env = {"TAILRACE_LONG_POLL_TIMEOUT": "0.3"}
    with Server(tmp_path / "data", {**store_settings(), **env}) as server:
        yield server


def test_polls_without_data_end_alike(brief: Server, connect: Connect, path: str) -> None:
    wires = [connect(brief) for _ in range(3)]
    assert wires[0].ask("PUT", target(path), TEXT, b"1").status == 201
    tail = wires[0].ask("HEAD", target(path)).offset
    for _ in range(3):
        for wire, more in zip(wires, (GENERAL, {}, {}), strict=True):
            wire.send(poll(path, tail, more))
        answers = [wire.answer() for wire in wires]
        assert [each.status for each in answers] == [204, 204, 204]
        names = [[name for name, _ in each.headers.items()] for each in answers]
        assert names[1] == names[2] == names[0]
        assert {each.offset for each in answers} == {tail}
