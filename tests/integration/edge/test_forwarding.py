"""Requests and answers as the edge forwards them: policies, compression, conditions, refusals."""

from __future__ import annotations

import gzip
import threading
from collections.abc import AsyncIterator

import brotli
import httpx
import pytest

from devtools.local_aws.edge import Edge, Origin
from devtools.processes import free_port
from tests.integration.edge.conftest import SECRET, MakeEdge, Origins, client, needs_varnish
from tests.integration.edge.origin import Answer, Exchange
from tests.integration.edge.template import distribution

pytestmark = needs_varnish

CHUNK = {"cache-control": "public, max-age=60", "content-type": "text/plain", "etag": '"tag"'}
LARGE = b"a line of text\n" * 100


def always(status: int, headers: dict[str, str], body: bytes = b"") -> Answer:
    return lambda exchange: exchange.send(status, headers, body)


# To the origin


async def test_a_read_reaches_the_origin_as_the_policies_say(
    viewer: httpx.AsyncClient, origins: Origins, path: str
) -> None:
    origins.http.on(path, always(200, CHUNK, b"x"))
    sent = {
        "host": "streams.example.com",
        "user-agent": "a browser",
        "cookie": "session=1",
        "accept-encoding": "deflate, gzip, br;q=0.5, zstd",
        "authorization": "Bearer token",
        "x-tailrace-origin": "forged",
        "x-edge-ttl": "9s",
        "x-forwarded-for": "192.0.2.4",
        "x-forwarded-host": "forged",
        "x-forwarded-proto": "gopher",
    }
    await viewer.get(f"{path}?offset=-1&a=1", headers=sent)
    [asked] = origins.http.asked(path)
    assert asked.target == path
    headers = {name.lower(): value for name, value in asked.headers.items()}
    assert headers.pop("x-amz-cf-id")
    assert headers.pop("via").endswith("(CloudFront)")
    assert headers.pop("connection") == "close"
    assert headers == {
        "host": f"127.0.0.1:{origins.http.port}",
        "user-agent": "a browser",
        "accept": "*/*",
        "accept-encoding": "br,gzip",
        "authorization": "Bearer token",
        "x-tailrace-origin": SECRET,
        "x-forwarded-for": "192.0.2.4, 127.0.0.1",
        "x-forwarded-host": "streams.example.com",
        "x-tailrace-viewer": "127.0.0.1",
    }


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_write_reaches_the_origin_with_its_body(
    viewer: httpx.AsyncClient, origins: Origins, path: str, chunked: bool
) -> None:
    origins.http.on(path, always(204, {"stream-next-offset": "7"}))
    headers = {"content-type": "text/plain", "stream-seq": "5", "cookie": "a=1"}
    body = b"0123456789" * 100_000

    async def pieces() -> AsyncIterator[bytes]:
        yield body[:10]
        yield body[10:]

    content = pieces() if chunked else body
    answer = await viewer.post(f"{path}?x=1", content=content, headers=headers)
    assert (answer.status_code, answer.headers["stream-next-offset"]) == (204, "7")
    [asked] = origins.http.asked(path)
    assert (asked.target, asked.body) == (path, body)
    assert asked.headers["stream-seq"] == "5"
    assert asked.headers["cookie"] is None


async def test_the_path_is_forwarded_unchanged(
    viewer: httpx.AsyncClient, origins: Origins, path: str
) -> None:
    at = f"{path}/a%2Fb/%C3%A9/c%20d"
    origins.http.on(at, always(200, CHUNK, b"x"))
    assert (await viewer.get(at)).content == b"x"


async def test_other_paths_are_never_cached(
    viewer: httpx.AsyncClient, origins: Origins, path: str
) -> None:
    other = path.replace("/v1/stream/", "/v1/streams-")
    origins.http.on(other, always(200, CHUNK, b"x"))
    for _ in range(2):
        answer = await viewer.get(f"{other}?b=2&a=1", headers={"cookie": "a=1"})
        assert answer.headers["x-cache"] == "Miss from cloudfront"
    asked = origins.http.asked(other)
    assert [each.target for each in asked] == [f"{other}?b=2&a=1"] * 2
    assert asked[0].headers["cookie"] == "a=1"
    assert asked[0].headers["x-tailrace-origin"] == SECRET


async def test_head_is_not_answered_from_a_cached_get(
    viewer: httpx.AsyncClient, origins: Origins, path: str
) -> None:
    """The GET of a stream tells the end of its first chunk, the HEAD the end of the stream."""

    def answer(exchange: Exchange) -> None:
        if exchange.asked.method == "GET":
            exchange.send(200, {**CHUNK, "stream-next-offset": "first chunk"}, b"x")
        else:
            exchange.send(200, {"cache-control": "no-store", "stream-next-offset": "tail"})

    origins.http.on(path, answer)
    assert (await viewer.get(path)).headers["stream-next-offset"] == "first chunk"
    assert (await viewer.head(path)).headers["stream-next-offset"] == "tail"
    assert [asked.method for asked in origins.http.asked(path)] == ["GET", "HEAD"]


# To the viewer


async def test_answers_say_that_they_come_from_the_edge(
    viewer: httpx.AsyncClient, origins: Origins, path: str
) -> None:
    origins.http.on(path, always(200, {**CHUNK, "set-cookie": "a=1", "server": "app"}, b"x"))
    first = await viewer.get(path)
    second = await viewer.get(path)
    assert "age" not in first.headers
    assert int(second.headers["age"]) >= 0
    assert first.headers["x-amz-cf-id"] != second.headers["x-amz-cf-id"]
    for answer in (first, second):
        assert answer.headers["via"].endswith("(CloudFront)")
        assert answer.headers["server"] == "app"
        inside = {name for name in answer.headers if name.startswith(("x-edge-", "x-varnish"))}
        assert inside | answer.headers.keys() & {"set-cookie"} == set()


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [("br, gzip", "br"), ("gzip", "gzip"), ("gzip, br;q=0", "gzip"), ("zstd", None), ("", None)],
)
async def test_a_large_chunk_is_compressed_as_the_viewer_likes(
    viewer: httpx.AsyncClient, origins: Origins, path: str, accepted: str, encoding: str | None
) -> None:
    origins.http.on(path, always(200, CHUNK, LARGE))
    async with viewer.stream("GET", path, headers={"accept-encoding": accepted}) as answer:
        body = b"".join([piece async for piece in answer.aiter_raw()])
    decode = {"br": brotli.decompress, "gzip": gzip.decompress, None: bytes}[encoding]
    assert answer.headers.get("content-encoding") == encoding
    assert decode(body) == LARGE
    assert answer.headers["content-length"] == str(len(body))
    assert answer.headers["etag"] == ('"tag"' if encoding is None else 'W/"tag"')


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({}, LARGE[:999]),
        ({"content-type": "application/octet-stream"}, LARGE),
        ({"content-encoding": "zstd"}, LARGE),
    ],
    ids=["too small", "another type", "compressed already"],
)
async def test_some_responses_are_not_compressed(
    viewer: httpx.AsyncClient, origins: Origins, path: str, headers: dict[str, str], body: bytes
) -> None:
    origins.http.on(path, always(200, {**CHUNK, **headers}, body))
    async with viewer.stream("GET", path, headers={"accept-encoding": "br"}) as answer:
        assert b"".join([piece async for piece in answer.aiter_raw()]) == body
    assert answer.headers["etag"] == '"tag"'


async def test_a_matching_etag_of_a_compressed_chunk_gets_304(
    viewer: httpx.AsyncClient, origins: Origins, path: str
) -> None:
    origins.http.on(path, always(200, CHUNK, LARGE))
    held = (await viewer.get(path, headers={"accept-encoding": "br"})).headers["etag"]
    again = {"accept-encoding": "br", "if-none-match": held}
    answer = await viewer.get(path, headers=again)
    assert (answer.status_code, answer.headers["etag"]) == (304, held)


async def test_encodings_have_separate_cache_entries(
    viewer: httpx.AsyncClient, origins: Origins, path: str
) -> None:
    origins.http.on(path, always(200, CHUNK, LARGE))
    for accepted in ("br", "gzip", "identity", "br", "gzip", "identity, x"):
        answer = await viewer.get(path, headers={"accept-encoding": accepted})
        assert answer.content == LARGE
    assert len(origins.http.asked(path)) == 3


@pytest.mark.parametrize("held", ['"tag"', 'W/"tag"', '"other", "tag"', "*"])
@pytest.mark.parametrize("cached", [True, False])
async def test_a_matching_etag_gets_304(
    viewer: httpx.AsyncClient, origins: Origins, path: str, held: str, cached: bool
) -> None:
    caching = {} if cached else {"cache-control": "public, no-cache"}
    origins.http.on(path, always(200, {**CHUNK, **caching}, b"data"))
    await viewer.get(path)
    answer = await viewer.get(path, headers={"if-none-match": held})
    assert (answer.status_code, answer.content) == (304, b"")
    assert (await viewer.get(path, headers={"if-none-match": '"x"'})).content == b"data"


async def test_the_response_headers_policy_has_the_last_word(
    viewer: httpx.AsyncClient, origins: Origins, path: str
) -> None:
    origins.http.on(path, always(200, {**CHUNK, "access-control-allow-origin": "x"}, b"x"))
    plain = await viewer.get(path)
    crossing = await viewer.get(path, headers={"origin": "https://app.example.com"})
    assert plain.headers["access-control-allow-origin"] == "x"
    assert crossing.headers["access-control-allow-origin"] == "*"
    assert crossing.headers["access-control-expose-headers"] == "Stream-Next-Offset"
    preflight = {"origin": "https://app.example.com", "access-control-request-method": "PUT"}
    answer = await viewer.options(path, headers=preflight)
    assert "PUT" in answer.headers["access-control-allow-methods"]


# Refusals


async def test_cloudfront_refuses_malformed_requests(
    viewer: httpx.AsyncClient, origins: Origins, path: str
) -> None:
    assert (await viewer.request("TRACE", path)).status_code == 405
    assert (await viewer.request("GET", path, content=b"body")).status_code == 403
    assert (await viewer.get(path + "x" * 8_200)).status_code == 413
    assert (await viewer.get(path, headers={"a": "x" * 20_480})).status_code == 413
    assert origins.http.asked(path) == []


async def test_an_origin_that_says_nothing_ends_in_504(
    make_edge: MakeEdge, origins: Origins, path: str
) -> None:
    gate = threading.Event()

    def silent(_: Exchange) -> None:
        gate.wait(120)

    origins.http.on(path, silent)
    with make_edge(distribution(read_seconds=1)) as other:
        async with client(other) as viewer:
            assert (await viewer.get(path)).status_code == 504
            # It goes on with others; a busy machine may be too slow for them at first.
            another = path.replace("/v1/stream/", "/other/")
            while (answer := await viewer.get(another)).status_code == 504:
                pass
            assert answer.status_code == 404
    gate.set()


async def test_an_origin_that_is_not_there_ends_in_502(
    tmp_path_factory: pytest.TempPathFactory, path: str
) -> None:
    nowhere = Origin(free_port(), {"x-tailrace-origin": SECRET})
    places = dict.fromkeys(("http", "wait", "live"), nowhere)
    folder = tmp_path_factory.mktemp("edge")
    with Edge(folder, distribution(), places, caching=False) as other:
        async with client(other) as viewer:
            assert (await viewer.get(path)).status_code == 502
            assert (await viewer.post(path, content=b"x")).status_code == 502


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("throw new Error('no')", 503),
        ("return {}", 502),
        ("return { statusCode: 401, body: 'who are you?' }", 401),
    ],
)
async def test_a_function_that_fails_or_answers(
    tmp_path_factory: pytest.TempPathFactory, origins: Origins, path: str, body: str, status: int
) -> None:
    place = Origin(origins.http.port, {"x-tailrace-origin": SECRET})
    template = distribution(code=f"async function handler(event) {{ {body} }}")
    folder = tmp_path_factory.mktemp("edge")
    with Edge(
        folder, template, dict.fromkeys(("http", "wait", "live"), place), caching=False
    ) as other:
        async with client(other) as viewer:
            answer = await viewer.get(path)
    assert answer.status_code == status
    assert origins.http.asked(path) == []


def test_a_missing_secret_fails_at_startup(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    places = dict.fromkeys(("http", "wait", "live"), Origin(1))
    with pytest.raises(AssertionError, match="x-tailrace-origin"):
        Edge(tmp_path_factory.mktemp("edge"), distribution(), places, caching=False).start()
