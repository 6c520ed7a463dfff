"""`/ds`: a stream that does not exist yet reads as an empty one, and live reads wait for it."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from devtools.server import Server
from tailrace.settings import Settings
from tests.integration.durable_streams.conftest import SECONDS, Connect, local
from tests.support.events import EventStream
from tests.support.wire import CLOSE, JSON, START, TEXT, Connection, request, target

DS = "/ds"


@pytest.mark.parametrize("query", ["", "offset=", "offset=0", "offset=-1", "offset=now", "last=5"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_missing_stream_reads_as_an_empty_one(
    wire: Connection, path: str, method: str, query: str
) -> None:
    answer = wire.ask(method, f"{target(path, DS)}?{query}")
    assert (answer.status, answer.body) == (200, b"[]" if method == "GET" else b"")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["stream-up-to-date"] == "true"
    assert answer.offset == START
    assert ("stream-cursor" in answer.headers) is (method == "GET")
    assert wire.ask(method, f"{target(path)}?{query}").status == 404


def waiting(wire: Connection, path: str, live: str, offset: str) -> None:
    wire.send(request("GET", target(path, DS, live=live, offset=offset)))
    assert wire.quiet(0.1)


@pytest.mark.parametrize("offset", ["-1", "now", START])
def test_a_long_poll_waits_for_the_first_message(
    client: httpx.Client, wire: Connection, path: str, offset: str
) -> None:
    waiting(wire, path, "long-poll", offset)
    client.put(path, headers=JSON)
    assert wire.quiet(0.1)
    appended = client.post(path, content=b'["first"]', headers=JSON)
    answer = wire.answer()
    assert (answer.status, answer.body) == (200, b'["first"]')
    assert answer.offset == appended.headers["stream-next-offset"]


def test_a_long_poll_of_a_missing_stream_ends_with_204(
    cramped: Server, connect: Connect, path: str
) -> None:
    answer = connect(cramped).ask("GET", target(path, DS, live="long-poll", offset="-1"))
    assert (answer.status, answer.offset) == (204, START)
    assert answer.headers["cache-control"].startswith("public, max-age=1")
    assert "content-type" not in answer.headers


def test_events_begin_before_the_stream_does(
    client: httpx.Client, wire: Connection, path: str
) -> None:
    events = EventStream(wire, path, mount=DS).caught_up()
    client.put(path, content=b'["first"]', headers=JSON)
    data, control = events.pair()
    assert data == '["first"]'
    client.post(path, content=b'"second"', headers=JSON | CLOSE)
    data, control = events.pair()
    assert (data, control["streamClosed"]) == ('["second"]', True)
    assert control["streamNextOffset"] == client.head(path).headers["stream-next-offset"]


def test_events_of_bytes_need_a_head_of_their_own(
    client: httpx.Client, wire: Connection, path: str
) -> None:
    events = EventStream(wire, path, mount=DS).caught_up()
    client.put(path, content=b"\xff")
    assert list(events) == []


@pytest.mark.parametrize("live", ["false", "long-poll", "sse"])
def test_an_offset_of_a_deleted_stream_is_refused(
    client: httpx.Client, wire: Connection, path: str, live: str
) -> None:
    offset = client.put(path, content=b"x", headers=TEXT).headers["stream-next-offset"]
    client.delete(path)
    answer = wire.ask("GET", target(path, DS, live=live, offset=offset))
    assert (answer.status, answer.code) == (410, "STALE_OFFSET")


async def test_waits_are_bounded(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.protocols.durable_streams.missing.MISSING_WAITS", 0)
    async with local(Settings(data=str(tmp_path / "data"))) as client:
        for live in ("long-poll", "sse"):
            answer = await client.get(target(path, DS, live=live, offset="-1"))
            assert (answer.status_code, answer.headers["retry-after"]) == (429, "5")
        assert (await client.get(target(path, DS))).content == b"[]"


async def test_the_mount_can_be_moved_or_removed(tmp_path: Path, path: str) -> None:
    async with local(Settings(data=str(tmp_path / "a"), ds_path="/log/of")) as client:
        assert (await client.get(target(path, "/log/of"))).content == b"[]"
        assert (await client.get(target(path, DS))).status_code == 404
    async with local(Settings(data=str(tmp_path / "b"), ds_path="")) as client:
        assert (await client.get(target(path, DS))).status_code == 404
        assert (await client.put(target(path), timeout=SECONDS)).status_code == 201
