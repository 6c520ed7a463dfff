"""The application called through ASGI, without our own server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tailrace.app import Application
from tailrace.errors import StoreUnavailable
from tailrace.protocols.durable_streams import sse_responses
from tailrace.settings import Settings


class Call:
    """One ASGI request, with its body in pieces, and the messages that the application sends."""

    def __init__(
        self,
        application: Application,
        method: str,
        target: str,
        *pieces: bytes,
        headers: dict[str, str] | None = None,
    ) -> None:
        path, _, query = target.partition("?")
        self._scope: dict[str, Any] = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(k.encode(), v.encode()) for k, v in (headers or {}).items()],
        }
        self._messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        for number, piece in enumerate(pieces or (b"",), 1):
            more = number < len(pieces)
            self._messages.put_nowait({"type": "http.request", "body": piece, "more_body": more})
        self.sent: list[dict[str, Any]] = []
        self._news = asyncio.Event()
        self.task = asyncio.ensure_future(application(self._scope, self._messages.get, self._send))

    async def _send(self, message: Any) -> None:
        self.sent.append(message)
        self._news.set()

    def disconnect(self) -> None:
        self._messages.put_nowait({"type": "http.disconnect"})

    def disconnect_early(self) -> None:
        """Disconnect before the last piece of the body."""
        first = self._messages.get_nowait()
        self._messages.get_nowait()
        self._messages.put_nowait(first)
        self.disconnect()

    async def ended(self) -> Call:
        await asyncio.wait_for(self.task, 120)
        return self

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.sent[1:])

    async def has(self, text: bytes) -> None:
        async with asyncio.timeout(120):
            while text not in self.body:
                self._news.clear()
                await self._news.wait()


TEXT = {"content-type": "text/plain"}


@pytest.fixture
async def application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Application]:
    monkeypatch.setattr(sse_responses, "SSE_KEEP_ALIVE_SECONDS", 0.2)
    settings = Settings(
        data=str(tmp_path / "data"), max_body_bytes=2048, chunk_bytes=1024, long_poll_timeout=0.2
    )
    application = Application(settings)
    await application.start()
    await Call(application, "PUT", "/v1/stream/a", headers=TEXT).ended()
    yield application
    await application.stop()


async def test_a_body_in_pieces_is_one_append(application: Application) -> None:
    post = await Call(application, "POST", "/v1/stream/a", b"one ", b"two", headers=TEXT).ended()
    assert post.status == 204
    assert b"content-length" not in post.headers
    read = await Call(application, "GET", "/v1/stream/a").ended()
    assert (read.status, read.body) == (200, b"one two")
    assert read.headers[b"content-length"] == b"7"
    assert read.headers[b"x-content-type-options"] == b"nosniff"


async def test_a_head_has_no_body(application: Application) -> None:
    head = await Call(application, "HEAD", "/v1/stream/missing").ended()
    assert (head.status, head.body) == (404, b"")


async def test_a_body_that_is_too_large_is_read_and_refused(application: Application) -> None:
    pieces = [b"x" * 1024] * 3
    post = await Call(application, "POST", "/v1/stream/a", *pieces, headers=TEXT).ended()
    assert post.status == 413
    assert (await Call(application, "GET", "/v1/stream/a").ended()).body == b""


async def test_a_client_that_disconnects_within_its_body_appends_nothing(
    application: Application,
) -> None:
    post = Call(application, "POST", "/v1/stream/a", b"half", b"", headers=TEXT)
    post.disconnect_early()
    assert (await post.ended()).sent == []
    assert (await Call(application, "GET", "/v1/stream/a").ended()).body == b""


async def test_a_long_poll_waits(application: Application) -> None:
    poll = await Call(application, "GET", "/v1/stream/a?offset=now&live=long-poll").ended()
    assert poll.status == 204


async def test_events_are_sent_at_once_and_end_with_the_stream(application: Application) -> None:
    events = Call(application, "GET", "/v1/stream/a?offset=-1&live=sse")
    await events.has(b'"upToDate":true')
    await Call(application, "POST", "/v1/stream/a", b"one", headers=TEXT).ended()
    await events.has(b"data:one\n")
    await events.has(b": keep-alive\n\n")
    last = TEXT | {"stream-closed": "true"}
    await Call(application, "POST", "/v1/stream/a", b"two", headers=last).ended()
    await events.ended()
    assert events.body.count(b"event: data\n") == 2
    assert events.body.index(b"data:two\n") < events.body.index(b'"streamClosed":true')
    assert events.sent[-1] == {"type": "http.response.body", "body": b""}


async def test_a_reader_that_disconnects_is_no_longer_watched(application: Application) -> None:
    events = Call(application, "GET", "/v1/stream/a?offset=-1&live=sse")
    await events.has(b'"upToDate":true')
    events.disconnect()
    await events.ended()
    tail = await application.streams.find("a")
    await asyncio.sleep(0)
    assert not tail.watched


async def test_a_stopping_server_ends_event_streams(application: Application) -> None:
    events = Call(application, "GET", "/v1/stream/a?offset=-1&live=sse")
    await events.has(b'"upToDate":true')
    application.streams.drain()
    await events.ended()
    assert events.sent[-1] == {"type": "http.response.body", "body": b""}


async def test_events_end_when_the_store_fails(
    application: Application, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: Any) -> None:
        raise StoreUnavailable("the disk is gone")

    for _ in range(2):
        await Call(application, "POST", "/v1/stream/a", b"x" * 1500, headers=TEXT).ended()
    monkeypatch.setattr(application.streams, "follow", fail)
    events = await Call(application, "GET", "/v1/stream/a?offset=-1&live=sse").ended()
    assert events.body.count(b"event: data\n") == 1
    assert events.sent[-1] == {"type": "http.response.body", "body": b""}
    assert caplog.messages == ["reading 'a' failed: the disk is gone"]


async def test_other_paths_are_served_by_fastapi(application: Application) -> None:
    health = await Call(application, "GET", "/health").ended()
    assert (health.status, b'"ok"' in health.body) == (200, True)


async def test_a_failed_start_is_reported(tmp_path: Path) -> None:
    """The lifespan protocol starts the application before the first request, and stops it."""
    said: list[Any] = []

    async def send(message: Any) -> None:
        said.append(message)

    async def run(*received: str) -> None:
        messages = iter(received)

        async def receive() -> Any:
            return {"type": next(messages)}

        await Application(Settings(data=str(tmp_path)))({"type": "lifespan"}, receive, send)

    await run("lifespan.startup", "lifespan.shutdown")
    assert [message["type"] for message in said] == [
        "lifespan.startup.complete",
        "lifespan.shutdown.complete",
    ]
    (tmp_path / "tailrace.db").write_bytes(b"not a database" * 100)
    await run("lifespan.startup")
    assert said[-1]["type"] == "lifespan.startup.failed"
    assert str(tmp_path) in said[-1]["message"]


async def test_location_has_the_scheme_of_the_request(application: Application) -> None:
    put = Call(application, "PUT", "/v1/stream/b", headers={"host": "streams.example.com"})
    put._scope["scheme"] = "https"
    assert (await put.ended()).headers[b"location"] == b"https://streams.example.com/v1/stream/b"


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE"])
async def test_a_read_only_server_refuses_writes(
    application: Application, tmp_path: Path, method: str
) -> None:
    await application.stop()
    reader = Application(Settings(data=str(tmp_path / "data"), read_only=True))
    await reader.start()
    try:
        refused = await Call(reader, method, "/v1/stream/a", b"x", headers=TEXT).ended()
        assert refused.status == 405
        assert refused.headers[b"allow"] == b"GET, HEAD, OPTIONS"
        assert (await Call(reader, "GET", "/v1/stream/a").ended()).status == 200
    finally:
        await reader.stop()
        await application.start()


async def test_without_fastapi_only_streams_are_served(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tailrace.api", None)
    assert (await Call(application, "GET", "/health").ended()).status == 404
    assert (await Call(application, "GET", "/v1/stream/a").ended()).status == 200
