"""Bodies leave when the app sends them, whole, and without piling up."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from pathlib import Path

import pytest

from devtools.local_aws.runtime_api import RuntimeApi
from tests.integration.runtime.conftest import (
    SECONDS,
    Runtime,
    event,
    parsed,
    see_events,
    streamed,
    until,
)

MEGABYTE = 1 << 20


@pytest.mark.parametrize("padding", ["0", "64"])
async def test_each_event_leaves_at_once(
    api: RuntimeApi, runtime: Runtime, tmp_path: Path, padding: str
) -> None:
    runtime.start(api.address, env={"ASGI_STREAM_PADDING": padding})
    await see_events(api.invoke(event("/events", str(tmp_path)), seconds=SECONDS), tmp_path)


async def test_the_prelude_does_not_wait_for_the_body(plain: RuntimeApi) -> None:
    """The app sends no body at all, and does not end."""
    invocation = plain.invoke(event("/quiet"), seconds=SECONDS)
    await invocation.begun()
    pieces = invocation.body()
    prelude = parsed(await anext(pieces))
    assert prelude.status == 200
    assert plain.waiting is False
    assert await anext(pieces) == b":" + b" " * 61 + b"\n\n"


async def test_each_piece_is_a_chunk_of_its_own(plain: RuntimeApi) -> None:
    invocation = plain.invoke(event("/large", "1"), seconds=SECONDS)
    await streamed(invocation)
    assert [size for _, size in invocation.arrivals[1:]] == [64 * 1024] * 16


async def test_events_are_followed_by_padding_but_never_interrupted(plain: RuntimeApi) -> None:
    invocation = plain.invoke(event("/halves"), seconds=SECONDS)
    await invocation.begun()
    _, *pieces = [piece async for piece in invocation.body()]
    padding = b":" + b" " * 61 + b"\n\n"
    assert pieces == [
        padding,
        b"data: a\n",
        b"data: b\n",
        b"\n",
        padding,
        b"data: c\r\n\r",
        b"\n",
        padding,
        b"data: d\n\ndata: ",
        b"e\n\n",
    ]


@pytest.mark.parametrize(("setting", "size"), [("0", 0), ("200", 200), ("1", 3)])
async def test_padding_is_as_long_as_it_is_set(
    api: RuntimeApi, runtime: Runtime, setting: str, size: int
) -> None:
    runtime.start(api.address, env={"ASGI_STREAM_PADDING": setting})
    response = await streamed(api.invoke(event("/halves"), seconds=SECONDS))
    whole = b"data: a\ndata: b\n\ndata: c\r\n\r\ndata: d\n\ndata: e\n\n"
    assert len(response.body) == len(whole) + 3 * size


@pytest.mark.parametrize("path", ["/zipped", "/paragraphs"])
async def test_nothing_is_added_where_it_would_be_content(plain: RuntimeApi, path: str) -> None:
    response = await streamed(plain.invoke(event(path), seconds=SECONDS))
    assert b":" not in response.body


async def test_ten_megabytes_arrive_as_they_were_sent(plain: RuntimeApi) -> None:
    response = await streamed(plain.invoke(event("/large", "10"), seconds=SECONDS))
    wanted = b"".join(b"%016d" % number * 4096 for number in range(160))
    assert hashlib.sha256(response.body).digest() == hashlib.sha256(wanted).digest()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_a_body_is_not_buffered_while_the_client_does_not_read(
    plain: RuntimeApi, runtime: Runtime
) -> None:
    """64 MB, as sockets alone hold about 10."""
    await streamed(plain.invoke(event("/large", "1"), seconds=SECONDS))
    before = runtime.memory()
    invocation = plain.invoke(event("/large", "64"), seconds=SECONDS)
    await invocation.begun()
    await asyncio.sleep(1)
    received = grown = 0
    async for piece in invocation.body():
        received += len(piece)
        grown = max(grown, runtime.memory() - before)
    assert received > 64 * MEGABYTE
    assert grown < 8 * MEGABYTE, f"{grown / MEGABYTE:.1f} MB"  # observed: 0.0


@pytest.mark.parametrize("status", [200, 204, 304])
async def test_a_body_is_never_empty(plain: RuntimeApi, status: int) -> None:
    response = await streamed(plain.invoke(event("/empty", str(status)), seconds=SECONDS))
    assert response.status == status
    assert response.body == b"\n"


async def test_bytes_arrive_as_they_are(plain: RuntimeApi) -> None:
    response = await streamed(plain.invoke(event("/binary"), seconds=SECONDS))
    assert response.body == bytes(range(256)) * 4
    assert response.headers == {"content-type": "application/octet-stream"}


async def test_the_prelude_has_each_header_once_and_cookies_apart(plain: RuntimeApi) -> None:
    response = await streamed(plain.invoke(event("/headers"), seconds=SECONDS))
    assert response.status == 201
    assert response.headers == {
        "content-type": "text/plain",
        "x-many": "one, two",
        "x-odd": 'café "\\ \x00 end',
    }
    assert response.cookies == ["a=1; Path=/", "b=2"]


async def test_one_connection_serves_many_invocations(plain: RuntimeApi) -> None:
    for path in ("/binary", "/early", "/midway", "/binary"):
        await plain.invoke(event(path), seconds=SECONDS).whole()
    await until(lambda: plain.waiting)
    assert plain.connections == 1
