"""Answers to plain reads that are kept: for how long, and how many."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tailrace.auth.origins import LocalHosts, Origins
from tailrace.limits import JOINED_BYTES
from tailrace.log.append import Append
from tailrace.log.create import Create
from tailrace.log.offsets import BEGINNING, Position
from tailrace.protocols.durable_streams.caching import INTERVAL_S
from tailrace.protocols.durable_streams.plain_read import PlainReads
from tailrace.streams import Streams
from tailrace.web.messages import RawHeaders, Request, Response
from tests.support.streams import Clock, serving

URL = b"/v1/stream/a?offset=-1"
TEXT = "text/plain"
BODY = b"the body of the answer"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def streams(tmp_path: Path, clock: Clock) -> AsyncIterator[Streams]:
    async with serving(tmp_path / "data", clock) as streams:
        await streams.create("a", Create(b"1", TEXT))
        yield streams


@pytest.fixture
def reads(streams: Streams) -> PlainReads:
    return PlainReads(streams, Origins(""), None)


async def keep(
    streams: Streams, reads: PlainReads, query: str = "offset=-1", body: bytes = BODY
) -> None:
    view = await streams.read("a", Position(BEGINNING))
    request = Request("GET", "/v1/stream/a", query, [], b"")
    reads.keep(request, view, Response(200, [(b"etag", b"x")], body))


def answer(reads: PlainReads, url: bytes = URL, headers: RawHeaders | None = None) -> bytes | None:
    found = reads.answer(url, headers or [])
    return None if found is None else found.body


async def test_an_answer_is_kept_while_the_stream_is_the_same(
    streams: Streams, reads: PlainReads
) -> None:
    await keep(streams, reads)
    assert answer(reads) == answer(reads) == BODY
    assert answer(reads, headers=[(b"accept-encoding", b"gzip")]) is None
    assert answer(reads, b"/v1/stream/a") is None
    await streams.append("a", Append(b"2", TEXT))
    assert answer(reads) is None


async def test_an_answer_is_kept_while_its_cursor_is_that_of_the_time(
    streams: Streams, reads: PlainReads, clock: Clock
) -> None:
    await keep(streams, reads)
    assert answer(reads) == BODY
    clock.now += INTERVAL_S * 1000
    assert answer(reads) is None


async def test_an_answer_that_depends_on_more_is_not_kept(
    streams: Streams, reads: PlainReads
) -> None:
    await keep(streams, reads, "offset=-1&cursor=1")
    assert answer(reads, URL + b"&cursor=1") is None
    await streams.append("a", Append(b"", TEXT, close=True))
    await keep(streams, reads)
    assert answer(reads) is None


async def test_the_oldest_answers_are_forgotten(streams: Streams, reads: PlainReads) -> None:
    large = b"x" * (JOINED_BYTES // 8)
    for number in range(9):
        await keep(streams, reads, f"n={number}", large)
    kept = [answer(reads, b"/v1/stream/a?n=%d" % number) for number in range(9)]
    assert [body is None for body in kept] == [True, True] + [False] * 7
    await keep(streams, reads, "larger", large + b"x")
    assert answer(reads, b"/v1/stream/a?larger") is None


async def test_requests_of_other_hosts_take_the_general_path(streams: Streams) -> None:
    reads = PlainReads(streams, Origins(""), LocalHosts("localhost", ""))
    await keep(streams, reads)
    assert answer(reads, headers=[(b"host", b"localhost:80")]) == BODY
    assert answer(reads, headers=[(b"host", b"example.org")]) is None
