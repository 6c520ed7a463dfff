"""Caching and collapsing at the edge: Varnish and edge.mjs for CloudFront."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from contextlib import suppress

import httpx
import pytest

from devtools.local_aws.edge import Edge
from tests.integration.edge.conftest import MakeEdge, Origins, client, needs_varnish
from tests.integration.edge.origin import Answer, Exchange
from tests.integration.edge.template import distribution

pytestmark = needs_varnish

WAITERS = 50
LIVE = {"cache-control": "public, max-age=1000", "content-type": "text/plain"}
"""Longer than the app says, so that a slow machine changes nothing."""
SHORT = {"cache-control": "public, max-age=1", "etag": '"tag"'}
CHUNK = {
    "cache-control": "public, max-age=60",
    "content-type": "text/plain",
    "etag": '"tag"',
    "cache-tag": "s-0123456789abcdef",
}
TOKEN = "0042000000000007_0000000000000123"
POLL = {"offset": TOKEN, "live": "long-poll"}
SECONDS = 120.0
"""How long anything may take: a safety net, not a measure."""


def always(status: int, headers: dict[str, str], body: bytes = b"") -> Answer:
    return lambda exchange: exchange.send(status, headers, body)


async def until(gate: threading.Event) -> None:
    assert await asyncio.to_thread(gate.wait, SECONDS)


def outcome(answer: httpx.Response) -> str:
    return str(answer.headers["x-cache"]).removesuffix(" from cloudfront")


# Waiting together


@pytest.mark.parametrize(("status", "body"), [(200, b"news"), (204, b"")])
async def test_long_polls_of_one_position_share_one_origin_request(
    viewer: httpx.AsyncClient, origins: Origins, path: str, status: int, body: bytes
) -> None:
    gate = threading.Event()

    def answer(exchange: Exchange) -> None:
        gate.wait(SECONDS)
        exchange.send(status, {**LIVE, "stream-cursor": "7"}, body)

    origins.http.on(path, answer)
    waiting = [asyncio.ensure_future(viewer.get(path, params=POLL)) for _ in range(WAITERS)]
    await asyncio.sleep(0.5)  # Most have come by then; those who come later find the answer kept.
    gate.set()
    answers = await asyncio.gather(*waiting)
    assert {(each.status_code, each.content) for each in answers} == {(status, body)}
    assert {each.headers["stream-cursor"] for each in answers} == {"7"}
    assert Counter(map(outcome, answers)) == {"Miss": 1, "Hit": WAITERS - 1}
    assert len(origins.http.asked(path)) == 1


async def test_viewers_with_different_encodings_share_a_long_poll(
    viewer: httpx.AsyncClient, origins: Origins, path: str
) -> None:
    gate = threading.Event()

    def answer(exchange: Exchange) -> None:
        gate.wait(SECONDS)
        exchange.send(200, {**LIVE, "etag": '"tag"'}, b"x" * 2_000)

    origins.http.on(path, answer)
    kinds = [
        {"accept-encoding": "br"},
        {"accept-encoding": "gzip"},
        {"if-none-match": '"tag"'},
        {"cookie": "session=1"},
        {"authorization": "Bearer one"},
    ]
    waiting = [
        asyncio.ensure_future(viewer.get(path, params=POLL, headers=headers)) for headers in kinds
    ]
    await asyncio.sleep(0.5)
    gate.set()
    answers = await asyncio.gather(*waiting)
    assert {(each.status_code, each.content) for each in answers} == {(200, b"x" * 2_000)}
    assert len(origins.http.asked(path)) == 1


async def test_readers_with_any_cursor_share_one_of_two_waits(
    viewer: httpx.AsyncClient, origins: Origins, path: str
) -> None:
    def answer(exchange: Exchange) -> None:
        exchange.send(204, {**LIVE, "stream-cursor": "7"})

    origins.http.on(path, answer)
    held = ["", "1", "8", "x", str(10**12), str(10**15 - 1)]
    given = [await viewer.get(path, params={**POLL, "cursor": cursor}) for cursor in held]
    asked = origins.http.asked(path)
    cursors = [int(each.target.partition("&live=long-poll&cursor=")[2]) for each in asked]
    assert cursors == [cursors[0], cursors[0] + 1]
    assert not [each for each in asked if "x-tailrace-cursor" in each.headers]
    # Each reader gets a greater one than it held.
    wanted = ["7", "7", "9", "7", str(10**12 + 1), str(10**15)]
    assert [each.headers["stream-cursor"] for each in given] == wanted
    assert all(each.headers["x-amz-cf-id"] for each in given)


async def test_forwarded_cookies_end_the_waiting_together(
    make_edge: MakeEdge, origins: Origins, path: str
) -> None:
    """So says CloudFront's documentation; a policy that does it must not go unnoticed."""
    together = threading.Barrier(5)

    def answer(exchange: Exchange) -> None:
        together.wait(SECONDS)
        exchange.send(204, LIVE)

    origins.http.on(path, answer)
    with make_edge(distribution(cookies="all")) as other:
        async with client(other) as viewer:
            await asyncio.gather(*(viewer.get(path, params=POLL) for _ in range(5)))
    assert len(origins.http.asked(path)) == 5


# Server-sent events


async def test_server_sent_events_come_at_once_and_each_reader_has_its_own(
    viewer: httpx.AsyncClient, origins: Origins, path: str
) -> None:
    gates = [threading.Event(), threading.Event()]

    def answer(exchange: Exchange) -> None:
        exchange.start(200, {"content-type": "text/event-stream", "cache-control": "no-cache"})
        exchange.write(b"data: first\n\n")
        for gate in gates:
            gate.wait(SECONDS)
            exchange.write(b"data: next\n\n")
        exchange.write(b"")

    origins.live.on(path, answer)

    async def read() -> list[bytes]:
        async with viewer.stream("GET", path, params={"offset": "-1", "live": "sse"}) as answer:
            pieces = answer.aiter_raw()
            got = [await anext(pieces)]
            for gate in gates:
                both.release()
                await until(gate)
                got.append(await anext(pieces))
            assert [each async for each in pieces] == []
            return got

    both = asyncio.Semaphore(0)
    readers = [asyncio.ensure_future(read()) for _ in range(2)]
    for gate in gates:
        await both.acquire()
        await both.acquire()
        gate.set()
    wanted = [b"data: first\n\n", b"data: next\n\n", b"data: next\n\n"]
    assert await asyncio.gather(*readers) == [wanted, wanted]
    ids = {asked.headers["x-tailrace-reader"] for asked in origins.live.asked(path)}
    assert len(ids) == 2
    assert origins.http.asked(path) == []


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", "/api/v1/watch"),
        ("POST", "/api/v1/replay"),
        ("GET", "/events"),
        ("POST", "/events"),
    ],
)
async def test_other_answers_that_go_on_come_at_once_and_from_the_origin_that_streams(
    viewer: httpx.AsyncClient, origins: Origins, method: str, target: str
) -> None:
    gate = threading.Event()

    def answer(exchange: Exchange) -> None:
        exchange.start(200, {"content-type": "text/event-stream", "cache-control": "no-cache"})
        exchange.write(b"data: first\n\n")
        gate.wait(SECONDS)
        exchange.write(b"data: next\n\n")
        exchange.write(b"")

    origins.live.on(target, answer)
    body = b'{"event_type":"mars"}' if method == "POST" else None
    async with viewer.stream(method, f"{target}?a=1", content=body) as told:
        pieces = told.aiter_raw()
        assert await anext(pieces) == b"data: first\n\n"
        gate.set()
        assert [each async for each in pieces] == [b"data: next\n\n"]
    asked = origins.live.asked(target)[-1]
    assert (asked.method, asked.target, asked.body) == (method, f"{target}?a=1", body or b"")
    assert origins.http.asked(target) == []


async def test_a_disconnect_ends_the_request_to_the_origin(
    viewer: httpx.AsyncClient, origins: Origins, path: str
) -> None:
    left = threading.Event()

    def answer(exchange: Exchange) -> None:
        exchange.start(200, {"content-type": "text/event-stream", "cache-control": "no-cache"})
        try:
            while True:
                exchange.write(b": still here\n\n")
                time.sleep(0.02)
        except OSError:
            left.set()

    origins.live.on(path, answer)
    async with viewer.stream("GET", path, params={"offset": "-1", "live": "sse"}) as answer_:
        await anext(answer_.aiter_raw())
    await until(left)


# What is kept


@pytest.mark.parametrize("mount", ["/v1/stream/", "/ds/"])
async def test_all_spellings_of_an_address_share_a_cached_chunk(
    viewer: httpx.AsyncClient, origins: Origins, path: str, mount: str
) -> None:
    path = path.replace("/v1/stream/", mount)
    origins.http.on(path, always(200, CHUNK, b"chunk"))
    first, *rest = [
        await viewer.get(path),
        await viewer.get(f"{path}?offset=-1"),
        await viewer.get(f"{path}?utm=1&live=&cursor=9&signed=x"),
        await viewer.get(f"{path}?offset=%2D1&live=false", headers={"cookie": "a=1"}),
        await viewer.get(path, headers={"range": "bytes=0-1", "if-match": "x"}),
    ]
    assert outcome(first) == "Miss"
    assert {outcome(each) for each in rest} == {"Hit"}
    assert {(each.status_code, each.content) for each in [first, *rest]} == {(200, b"chunk")}
    assert [asked.target for asked in origins.http.asked(path)] == [path]


async def test_no_store_responses_are_requested_each_time(
    viewer: httpx.AsyncClient, origins: Origins, path: str
) -> None:
    for number, directive in enumerate(("no-store", "public, no-cache", "private, max-age=9")):
        at = f"{path}/{number}"
        origins.http.on(at, always(200, {"cache-control": directive}, b"x"))
        assert [outcome(await viewer.get(at)) for _ in range(3)] == ["Miss"] * 3
        assert len(origins.http.asked(at)) == 3


async def test_requests_are_sent_in_parallel_after_an_uncacheable_response(
    viewer: httpx.AsyncClient, origins: Origins, path: str
) -> None:
    """The first answer turns out to be for one only; the others must not queue for theirs."""
    first = threading.Event()
    side_by_side = threading.Barrier(9)

    def answer(exchange: Exchange) -> None:
        if len(origins.http.asked(path)) == 1:
            first.wait(SECONDS)
        else:
            side_by_side.wait(SECONDS)
        exchange.send(200, {"cache-control": "public, no-cache"}, b"x")

    origins.http.on(path, answer)
    waiting = [asyncio.ensure_future(viewer.get(path)) for _ in range(10)]
    await asyncio.sleep(0.5)
    assert len(origins.http.asked(path)) == 1
    first.set()
    assert {each.status_code for each in await asyncio.gather(*waiting)} == {200}
    assert len(origins.http.asked(path)) == 10


@pytest.mark.parametrize("status", [400, 404, 409, 410, 429, 500, 503])
async def test_an_error_does_not_stick(
    viewer: httpx.AsyncClient, origins: Origins, path: str, status: int
) -> None:
    origins.http.on(path, always(status, {}, b"no"))
    assert (await viewer.get(path, params=POLL)).status_code == status
    origins.http.on(path, always(200, LIVE, b"yes"))
    assert (await viewer.get(path, params=POLL)).content == b"yes"


async def test_without_the_setting_for_errors_a_404_sticks(
    make_edge: MakeEdge, origins: Origins, path: str
) -> None:
    origins.http.on(path, always(404, {"cache-control": "no-store"}))
    with make_edge(distribution(error_seconds=None)) as other:
        async with client(other) as viewer:
            assert (await viewer.get(path)).status_code == 404
            origins.http.on(path, always(200, CHUNK, b"yes"))
            assert (await viewer.get(path)).status_code == 404


async def test_after_an_error_waiting_together_works_again(
    viewer: httpx.AsyncClient, origins: Origins, path: str
) -> None:
    assert (await viewer.get(path, params=POLL)).status_code == 404
    await asyncio.sleep(1.5)
    gate = threading.Event()

    def answer(exchange: Exchange) -> None:
        gate.wait(SECONDS)
        exchange.send(204, LIVE)

    origins.http.on(path, answer)
    waiting = [asyncio.ensure_future(viewer.get(path, params=POLL)) for _ in range(5)]
    await asyncio.sleep(0.5)
    gate.set()
    await asyncio.gather(*waiting)
    assert len(origins.http.asked(path)) == 2


async def test_a_truncated_response_is_not_cached(
    viewer: httpx.AsyncClient, origins: Origins, path: str
) -> None:
    def break_off(exchange: Exchange) -> None:
        exchange.send(200, {**CHUNK, "content-length": "100"}, b"only this")
        exchange.close_connection = True

    origins.http.on(path, break_off)
    with suppress(httpx.RemoteProtocolError):  # if Varnish had begun to pass it on
        assert (await viewer.get(path)).status_code == 503
    origins.http.on(path, always(200, CHUNK, b"whole"))
    assert (await viewer.get(path)).content == b"whole"


async def test_a_tag_is_purged_and_no_other(
    viewer: httpx.AsyncClient, edge: Edge, origins: Origins, path: str
) -> None:
    tags = [
        "s-000000000000000a",
        "s-000000000000000b",
        "x, s-000000000000000A",
        "s-000000000000000aa",
    ]
    paths = [f"{path}/{number}" for number in range(len(tags))]
    for at, tag in zip(paths, tags, strict=True):
        origins.http.on(at, always(200, {**CHUNK, "cache-tag": tag}, b"x"))
        await viewer.get(at)
    edge.purge("s-000000000000000a")
    answers = [outcome(await viewer.get(at)) for at in paths]
    assert answers == ["Miss", "Hit", "Miss", "Hit"]


# What has expired


async def test_expired_responses_are_revalidated_by_etag(
    viewer: httpx.AsyncClient, origins: Origins, path: str
) -> None:
    def answer(exchange: Exchange) -> None:
        known = exchange.asked.headers["if-none-match"] == '"tag"'
        exchange.send(304 if known else 200, SHORT, b"data")

    origins.http.on(path, answer)
    assert (await viewer.get(path)).content == b"data"
    await asyncio.sleep(1.5)
    again = await viewer.get(path)
    assert (again.status_code, again.content) == (200, b"data")
    tags = [asked.headers["if-none-match"] for asked in origins.http.asked(path)]
    assert tags == [None, '"tag"']


async def test_a_stale_response_is_served_while_revalidating(
    viewer: httpx.AsyncClient, origins: Origins, path: str
) -> None:
    headers = {"cache-control": "public, max-age=1, stale-while-revalidate=60"}
    origins.http.on(path, always(200, headers, b"old"))
    assert (await viewer.get(path)).content == b"old"
    await asyncio.sleep(1.5)
    gate = threading.Event()

    def answer(exchange: Exchange) -> None:
        gate.wait(SECONDS)
        exchange.send(200, CHUNK, b"new")

    origins.http.on(path, answer)
    assert (await viewer.get(path)).content == b"old"
    gate.set()
    while (await viewer.get(path)).content == b"old":  # noqa: ASYNC110 - the cache tells nobody
        await asyncio.sleep(0.05)
    assert len(origins.http.asked(path)) == 2
