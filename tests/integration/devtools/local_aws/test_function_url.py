"""A function URL's rules on the wire."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.devtools.local_aws.deploying import (
    SECONDS,
    deployed,
    deployed_streaming,
    exchange,
    get,
)

ECHO = """
    def handler(event, context):
        return event
"""

ANSWERING = """
    import json
    def handler(event, context):
        return json.loads(event["body"])
"""


def parts(answer: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    return int(first.split(" ")[1]), headers, body


def asking(result: dict[str, Any], method: str = "POST") -> bytes:
    return get(
        "/", "Content-Type: application/json", method=method, body=json.dumps(result).encode()
    )


async def test_a_request_arrives_as_an_event(tmp_path: Path) -> None:
    async with deployed(tmp_path, ECHO) as url:
        request = get("/a%20b?c=1", "X-Two: a", "X-Two: b", method="PUT", body=b"\0\1")
        status, _, body = parts(await exchange(url, request))
        event = json.loads(body)
        assert status == 200
        assert event["rawPath"] == "/a%20b"
        assert event["headers"]["x-two"] == "a,b"
        assert base64.b64decode(event["body"]) == b"\0\1"
        assert url.requests == {("PUT", "/a%20b?c=1"): 1}


async def test_a_chunked_request_has_its_whole_body(tmp_path: Path) -> None:
    async with deployed(tmp_path, ECHO) as url:
        head = get("/", "Content-Type: text/plain", "Transfer-Encoding: chunked", method="POST")
        answer = await exchange(url, head + b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n")
        assert json.loads(parts(answer)[2])["body"] == "abcde"


async def test_a_connection_takes_one_request_after_the_other(tmp_path: Path) -> None:
    async with deployed(tmp_path, ECHO) as url:
        kept = b"GET /one HTTP/1.1\r\nHost: x\r\n\r\n"
        answer = await exchange(url, kept + get("/two"))
        assert answer.count(b"HTTP/1.1 200 OK") == 2
        assert answer.index(b"/one") < answer.index(b"/two")


@pytest.mark.parametrize(("status", "method"), [(204, "POST"), (304, "POST"), (200, "HEAD")])
async def test_where_http_has_no_body_there_is_none(
    tmp_path: Path, status: int, method: str
) -> None:
    async with deployed(tmp_path, ANSWERING) as url:
        answer = await exchange(url, asking({"statusCode": status, "body": "unwanted"}, method))
        got, headers, body = parts(answer)
        assert (got, body) == (status, b"")
        assert headers.get("content-length") == ("8" if method == "HEAD" else None)
        assert headers["x-amzn-requestid"]


async def test_an_answer_has_its_length_and_the_requests_id(tmp_path: Path) -> None:
    result = {"statusCode": 200, "headers": {"X-A": "b"}, "body": "caf\u00e9"}
    async with deployed(tmp_path, ANSWERING) as url:
        _, headers, body = parts(await exchange(url, asking(result)))
        assert body == "caf\u00e9".encode()
        assert headers["content-length"] == "5"
        assert headers["X-A"] == "b"
        assert headers["x-amzn-trace-id"].startswith("Root=1-")


async def test_a_request_that_is_too_large_as_an_event_never_reaches_the_function(
    tmp_path: Path,
) -> None:
    async with deployed(tmp_path, "def handler(e, c): return len(e['body'])") as url:
        fits = await exchange(url, get(method="POST", body=bytes(4_700_000)))
        assert parts(fits)[0] == 200
        status, headers, _ = parts(await exchange(url, get(method="POST", body=bytes(4_800_000))))
        assert status == 413
        assert headers["x-amzn-errortype"] == "RequestTooLargeException"
        assert url.function.invocations == 1


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("def handler(e, c): return {'statusCode': 'x'}", "InternalServerError"),
        (
            "def handler(e, c): return {'statusCode': 200, 'body': 'x' * 6_300_000}",
            "ResponseSizeTooLarge",
        ),
        ("def handler(e, c): raise KeyError('k')", "KeyError"),
    ],
)
async def test_a_function_that_fails_is_a_bad_gateway(
    tmp_path: Path, source: str, kind: str
) -> None:
    async with deployed(tmp_path, source) as url:
        status, headers, body = parts(await exchange(url, get()))
        assert status == 502
        assert kind in headers["x-amzn-errortype"]
        assert json.loads(body) == {"Message": "Internal Server Error"}


STREAM = """
    import json, os, time
    def handler(event):
        head = {"statusCode": 201, "headers": {"x-a": "b", "content-length": "9"},
                "cookies": ["c=1", "d=2"]}
        yield json.dumps(head).encode()
        yield bytes(8) + b"one"
        while not os.path.exists(event["rawPath"]):
            time.sleep(0.01)
        yield b"two"
"""


async def test_responses_are_streamed(tmp_path: Path) -> None:
    async with deployed_streaming(tmp_path, STREAM) as url:
        go = tmp_path / "go"
        reader, writer = await asyncio.open_connection("127.0.0.1", url.port)
        writer.write(get(str(go)))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 201 Created\r\n")
        assert b"\r\nx-amzn-remapped-content-length: 9\r\n" in head
        assert b"\r\ncontent-length" not in head
        assert head.count(b"set-cookie: ") == 2
        assert await reader.readexactly(8) == b"3\r\none\r\n"
        go.touch()
        assert await reader.read() == b"3\r\ntwo\r\n0\r\n\r\n"
        writer.close()


@pytest.mark.parametrize(
    ("end", "seconds"),
    [("os._exit(1)", SECONDS), ("time.sleep(600)", 2), ("TRAILERS = FAILURE", SECONDS)],
)
async def test_a_stream_that_fails_is_cut_without_an_end(
    tmp_path: Path, end: str, seconds: float
) -> None:
    source = f"""
        import os, time
        FAILURE = (b"Lambda-Runtime-Function-Error-Type: Boom\\r\\n"
                   b"Lambda-Runtime-Function-Error-Body: e30=\\r\\n")
        TRAILERS = b""
        def handler(event):
            global TRAILERS
            yield b'{{"statusCode":200}}' + bytes(8) + b"part"
            time.sleep(0.1)
            {end}
    """
    async with deployed_streaming(tmp_path, source, seconds=seconds) as url:
        answer = await exchange(url, get())
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.endswith(b"4\r\npart\r\n")


async def test_an_empty_stream_has_no_end(tmp_path: Path) -> None:
    """On AWS its client waits for one."""
    source = """
        def handler(event):
            yield b'{"statusCode":204}' + bytes(8)
    """
    async with deployed_streaming(tmp_path, source) as url:
        answer = await exchange(url, get())
        assert answer.startswith(b"HTTP/1.1 204 No Content\r\n")
        assert not answer.endswith(b"0\r\n\r\n")


async def test_a_stream_without_a_prelude_is_a_bad_gateway(tmp_path: Path) -> None:
    source = """
        def handler(event):
            yield b'{"statusCode":200}'
    """
    async with deployed_streaming(tmp_path, source) as url:
        assert parts(await exchange(url, get()))[0] == 502
