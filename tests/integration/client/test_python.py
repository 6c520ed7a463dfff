"""The public Python client, as far as it works against the reference server.

It knows neither closing nor producers, cannot read bytes over SSE, and must be told an offset for
live reads; its long-poll never ends on a closed stream, so that is not asked of it here.
"""

from __future__ import annotations

import threading
from typing import Literal
from uuid import uuid4

import httpx
import pytest
from durable_streams import (
    DurableStream,
    HeadersLike,
    SeqConflictError,
    StreamExistsError,
    StreamNotFoundError,
    astream,
    stream,
)

from devtools.server import Server

JSON = "application/json"


@pytest.fixture
def url(server: Server) -> str:
    return f"{server.url}/v1/stream/client/{uuid4()}"


def test_create_head_and_delete(url: str) -> None:
    with DurableStream.create(url, content_type=JSON) as handle:
        head = handle.head()
        assert head.content_type == JSON
        assert head.offset is not None
        handle.delete()
    with pytest.raises(StreamNotFoundError):
        DurableStream.head_static(url)


def test_create_again_is_harmless_but_not_with_another_type(url: str) -> None:
    with DurableStream.create(url, content_type=JSON), DurableStream.create(url, content_type=JSON):
        pass
    with pytest.raises(StreamExistsError):
        DurableStream.create(url, content_type="text/plain")


def test_append_and_catch_up(url: str) -> None:
    with DurableStream.create(url, content_type=JSON) as handle:
        handle.append({"n": 1})
        middle = handle.append({"n": 2}).next_offset
        handle.append({"n": 3})
    with stream(url, live=False) as everything:
        assert everything.read_json() == [{"n": 1}, {"n": 2}, {"n": 3}]
    with stream(url, offset=middle, live=False) as rest:
        assert rest.read_json() == [{"n": 3}]


def test_bytes_and_text(url: str) -> None:
    with DurableStream.create(url, content_type="text/plain") as handle:
        handle.append("grüße, ")
        handle.append("世界".encode())
    with stream(url, live=False) as as_text:
        assert as_text.read_text() == "grüße, 世界"
    with stream(url, live=False) as as_bytes:
        assert as_bytes.read_bytes() == "grüße, 世界".encode()


async def test_async_read(url: str) -> None:
    with DurableStream.create(url, content_type=JSON, body=b"[1, 2]"):
        pass
    async with astream(url, live=False) as response:
        assert await response.read_json() == [1, 2]


def test_sequence_conflict(url: str) -> None:
    with DurableStream.create(url, content_type="text/plain") as handle:
        handle.append("a", seq="0002")
        with pytest.raises(SeqConflictError):
            handle.append("b", seq="0001")


@pytest.mark.parametrize("live", ["long-poll", "sse"])
def test_live_read_gets_later_appends(url: str, live: Literal["long-poll", "sse"]) -> None:
    with DurableStream.create(url, content_type=JSON, body=b"[1]") as handle:
        later = threading.Timer(0.2, handle.append, [2])
        later.start()
        received = []
        with stream(url, offset="-1", live=live) as response:
            for item in response.iter_json():
                received.append(item)
                if len(received) == 2:
                    break
        later.join()
    assert received == [1, 2]


def test_sse_ends_on_a_closed_stream(url: str) -> None:
    with DurableStream.create(url, content_type="text/plain", body=b"all") as handle:
        httpx.post(url, headers={"Stream-Closed": "true"}, trust_env=False).raise_for_status()
        with handle.stream(offset="-1", live="sse") as response:
            assert list(response.iter_text()) == ["all"]


def test_fork_by_headers(url: str) -> None:
    fork = f"{url}-fork"
    headers: HeadersLike = {"Stream-Forked-From": httpx.URL(url).path}
    with (
        DurableStream.create(url, content_type=JSON, body=b"[1]"),
        DurableStream.create(fork, content_type=JSON, headers=headers) as handle,
    ):
        handle.append(2)
    with stream(fork, live=False) as response:
        assert response.read_json() == [1, 2]
