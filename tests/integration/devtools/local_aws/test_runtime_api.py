"""The Runtime API of the tests takes what AWS takes, and refuses what AWS refuses."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import pytest

from devtools.local_aws.runtime_api import (
    HTTP_RESPONSE,
    MAX_BUFFERED_BYTES,
    WAITING_PIECES,
    Failed,
    Failure,
    Invocation,
    RuntimeApi,
)
from devtools.processes import ROOT
from tests.integration.devtools.local_aws.deploying import SECONDS

LAMBDA_PYTHON = ROOT / ".engines" / "lambda" / "bin" / "python"
NEXT = "/invocation/next"
STREAMING = {"Lambda-Runtime-Function-Response-Mode": "streaming"}
TRAILERS = "Lambda-Runtime-Function-Error-Type, Lambda-Runtime-Function-Error-Body"
CHUNKED = {"Transfer-Encoding": "chunked", "Trailer": TRAILERS}
ERROR_TYPE = b"Lambda-Runtime-Function-Error-Type: Function.Late\r\n"
PRELUDE = b'{"statusCode":200,"headers":{"a":"b"},"cookies":["c=d"]}'


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: dict[str, Any]


class Client:
    """A runtime, as far as the wire goes."""

    def __init__(self, api: RuntimeApi) -> None:
        self._api = api

    async def __aenter__(self) -> Self:
        host, port = self._api.address.split(":")
        self.reader, self.writer = await asyncio.open_connection(host, int(port))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.transport.abort()
        await asyncio.sleep(0)

    def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> None:
        lines = [f"{method} /2018-06-01/runtime{path} HTTP/1.1", "Host: api"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)

    async def answer(self) -> Answer:
        async with asyncio.timeout(SECONDS):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines)
            body = await self.reader.readexactly(int(headers["Content-Length"]))
            return Answer(int(first.split(" ")[1]), headers, json.loads(body))

    async def next(self) -> Answer:
        self.send("GET", NEXT, {})
        return await self.answer()

    async def post(
        self, path: str, body: bytes = b"{}", headers: Mapping[str, str] | None = None
    ) -> Answer:
        framing = {} if headers and headers.keys() & CHUNKED else {"Content-Length": len(body)}
        fields = {**(headers or {}), **{name: str(value) for name, value in framing.items()}}
        self.send("POST", path, fields, body)
        return await self.answer()


@pytest.fixture(name="api")
async def api_fixture() -> AsyncIterator[RuntimeApi]:
    async with RuntimeApi() as api:
        yield api


@pytest.fixture(name="client")
async def client_fixture(api: RuntimeApi) -> AsyncIterator[Client]:
    async with Client(api) as client:
        yield client


async def handed_out(api: RuntimeApi, client: Client, **more: Any) -> Invocation:
    invocation = api.invoke({"a": 1}, seconds=more.pop("seconds", SECONDS), **more)
    assert (await client.next()).status == 200
    return invocation


async def waits(api: RuntimeApi, wanted: bool = True) -> None:
    """Returns when a runtime waits for an invocation, or when none does."""
    async with asyncio.timeout(SECONDS):
        while True:
            if api.waiting is wanted:
                return
            await asyncio.sleep(0.01)


def chunks(*pieces: bytes, trailers: bytes = b"") -> bytes:
    framed = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return framed + b"0\r\n" + trailers + b"\r\n"


def path_of(invocation: Invocation, verb: str = "response") -> str:
    return f"/invocation/{invocation.request_id}/{verb}"


async def test_next_blocks_until_there_is_an_invocation(api: RuntimeApi, client: Client) -> None:
    asking = asyncio.ensure_future(client.next())
    await waits(api)
    invocation = api.invoke({"a": 1}, seconds=SECONDS, trace="Root=1", arn="arn:x")
    status, headers, body = await asking
    assert (status, body) == (200, {"a": 1})
    assert headers["Lambda-Runtime-Aws-Request-Id"] == invocation.request_id
    assert headers["Lambda-Runtime-Trace-Id"] == "Root=1"
    assert headers["Lambda-Runtime-Invoked-Function-Arn"] == "arn:x"
    left = int(headers["Lambda-Runtime-Deadline-Ms"]) / 1000 - time.time()
    assert 0 < left <= SECONDS
    assert api.waiting is False


async def test_a_buffered_response_is_taken_whole(api: RuntimeApi, client: Client) -> None:
    invocation = await handed_out(api, client)
    headers = {"Content-Type": "application/json"}
    answer = await client.post(path_of(invocation), b'{"ok":true}', headers)
    assert (answer.status, answer.body) == (202, {"status": "OK"})
    await invocation.begun()
    assert invocation.mode == "buffered"
    assert invocation.content_type == "application/json"
    assert await invocation.whole() == b'{"ok":true}'
    assert invocation.failure is None
    await handed_out(api, client)
    assert api.connections == 1


async def test_a_streamed_response_is_read_while_it_is_written(
    api: RuntimeApi, client: Client
) -> None:
    invocation = await handed_out(api, client)
    client.send(
        "POST", path_of(invocation), {**STREAMING, **CHUNKED, "Content-Type": HTTP_RESPONSE}
    )
    await invocation.begun()
    pieces = invocation.body()
    for piece in (PRELUDE + bytes(8), b"one", b"two"):
        client.writer.write(b"%X\r\n%b\r\n" % (len(piece), piece))
        assert await anext(pieces) == piece
    client.writer.write(b"0\r\n\r\n")
    assert (await client.answer()).status == 202
    assert [piece async for piece in pieces] == []
    assert invocation.mode == "streaming"
    assert invocation.failure is None
    assert [size for _, size in invocation.arrivals] == [len(PRELUDE) + 8, 3, 3]


async def test_a_runtime_has_to_wait_while_its_response_is_not_read(
    api: RuntimeApi, client: Client
) -> None:
    invocation = await handed_out(api, client)
    body = chunks(*[b"x"] * 100)
    client.send("POST", path_of(invocation), {**STREAMING, **CHUNKED}, body)
    await invocation.begun()
    async with asyncio.timeout(SECONDS):
        while len(invocation.arrivals) <= WAITING_PIECES:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    assert len(invocation.arrivals) == WAITING_PIECES + 1
    assert await invocation.whole() == b"x" * 100


async def test_trailers_are_the_failure_of_a_streamed_response(
    api: RuntimeApi, client: Client
) -> None:
    invocation = await handed_out(api, client)
    error = base64.b64encode(b'{"errorMessage":"late"}')
    trailers = ERROR_TYPE + b"Lambda-Runtime-Function-Error-Body: %b\r\n" % error
    body = chunks(b"some", trailers=trailers)
    assert (await client.post(path_of(invocation), body, {**STREAMING, **CHUNKED})).status == 202
    assert await invocation.whole() == b"some"
    assert invocation.failure == Failure("Function.Late", {"errorMessage": "late"})


async def test_an_error_is_the_failure_of_its_invocation(api: RuntimeApi, client: Client) -> None:
    invocation = await handed_out(api, client)
    headers = {"Lambda-Runtime-Function-Error-Type": "Function.Bad"}
    answer = await client.post(path_of(invocation, "error"), b'{"errorMessage":"bad"}', headers)
    assert answer.status == 202
    assert await invocation.whole() == b""
    assert invocation.failure == Failure("Function.Bad", {"errorMessage": "bad"})


async def test_an_init_error_fails_current_and_later_invocations(
    api: RuntimeApi, client: Client
) -> None:
    waiting = api.invoke({}, seconds=SECONDS)
    headers = {"Lambda-Runtime-Function-Error-Type": "Runtime.NoApp"}
    assert (await client.post("/init/error", b'{"errorMessage":"no"}', headers)).status == 202
    assert api.init_error == Failure("Runtime.NoApp", {"errorMessage": "no"})
    for invocation in (waiting, api.invoke({}, seconds=SECONDS)):
        with pytest.raises(Failed, match=r"Runtime\.NoApp"):
            await invocation.begun()


@pytest.mark.parametrize(
    ("steps", "status", "kind"),
    [
        (["next", "post other/response"], 400, "InvalidRequestID"),
        (["post other/error"], 400, "InvalidRequestID"),
        (["next", "response", "response"], 403, "InvalidStateTransition"),
        (["next", "response", "error"], 403, "InvalidStateTransition"),
        (["next", "error", "response"], 403, "InvalidStateTransition"),
        (["next", "next"], 403, "InvalidStateTransition"),
        (["next", "post /init/error"], 403, "InvalidStateTransition"),
        (["post /restore/error"], 404, "NotFound"),
        (["get /init/error"], 405, "MethodNotAllowed"),
    ],
)
async def test_requests_in_the_wrong_order_are_refused(
    api: RuntimeApi, client: Client, steps: list[str], status: int, kind: str
) -> None:
    invocation = api.invoke({}, seconds=SECONDS)
    for step in steps:
        match step.split(" "):
            case ["next"]:
                answer = await client.next()
            case ["get", path]:
                client.send("GET", path, {})
                answer = await client.answer()
            case ["post", path]:
                answer = await client.post(path if path[0] == "/" else f"/invocation/{path}")
            case [verb]:
                answer = await client.post(path_of(invocation, verb))
            case _:
                raise AssertionError(step)
    assert answer.status == status
    assert answer.body["errorType"] == kind
    assert answer.body["errorMessage"]


async def test_a_runtime_may_have_as_many_invocations_as_its_concurrency() -> None:
    async with RuntimeApi(concurrency=2) as api, Client(api) as one, Client(api) as two:
        first, second = await handed_out(api, one), await handed_out(api, two)
        assert (await one.post(path_of(second))).status == 202
        assert (await two.post(path_of(first))).status == 202


async def test_the_largest_buffered_response_is_six_mebibytes_and_a_little(
    api: RuntimeApi, client: Client
) -> None:
    invocation = await handed_out(api, client)
    assert (await client.post(path_of(invocation), bytes(MAX_BUFFERED_BYTES))).status == 202
    invocation = await handed_out(api, client)
    answer = await client.post(path_of(invocation), bytes(MAX_BUFFERED_BYTES + 1))
    assert (answer.status, answer.body["errorType"]) == (413, "RequestEntityTooLarge")
    assert await invocation.whole() == b""
    assert invocation.failure is not None
    assert invocation.failure.kind == "Function.ResponseSizeTooLarge"
    await handed_out(api, client)


async def test_a_streamed_response_may_be_larger(api: RuntimeApi, client: Client) -> None:
    invocation = await handed_out(api, client)
    posting = asyncio.ensure_future(
        client.post(
            path_of(invocation),
            chunks(*[bytes(1 << 20)] * 7),
            {**STREAMING, **CHUNKED},
        )
    )
    assert len(await invocation.whole()) == 7 << 20
    assert (await posting).status == 202


@pytest.mark.parametrize("mode", ["buffered", "Streaming", ""])
async def test_there_is_one_response_mode_to_name(
    api: RuntimeApi, client: Client, mode: str
) -> None:
    invocation = await handed_out(api, client)
    headers = {"Lambda-Runtime-Function-Response-Mode": mode}
    answer = await client.post(path_of(invocation), headers=headers)
    assert (answer.status, answer.body["errorType"]) == (400, "InvalidFunctionResponseMode")
    await invocation.whole()
    assert invocation.failure is not None
    assert invocation.failure.kind == "Runtime.InvalidResponseModeHeader"


@pytest.mark.parametrize(
    "body",
    [
        b"4;x=y\r\nsome\r\n0\r\n\r\n",
        b"4\nsome\r\n0\r\n\r\n",
        b"0x4\r\nsome\r\n0\r\n\r\n",
        b"\r\n",
        b"3\r\nsome\r\n0\r\n\r\n",
        b"0\r\nundeclared: 1\r\n\r\n",
        b"0\r\nno colon\r\n\r\n",
        b"0\r\n" + ERROR_TYPE + b"Lambda-Runtime-Function-Error-Body: %\r\n\r\n",
        b"0\r\n" + ERROR_TYPE + b"\r\n",
    ],
)
async def test_chunks_and_trailers_are_read_exactly(
    api: RuntimeApi, client: Client, body: bytes
) -> None:
    invocation = await handed_out(api, client)
    answer = await client.post(path_of(invocation), body, {**STREAMING, **CHUNKED})
    assert answer.status == 400
    assert answer.headers["Connection"] == "close"
    await invocation.whole()
    assert invocation.failure is not None


async def test_a_request_has_one_length(api: RuntimeApi, client: Client) -> None:
    invocation = await handed_out(api, client)
    headers = {"Content-Length": "2", "Transfer-Encoding": "chunked"}
    client.send("POST", path_of(invocation), headers, b"{}")
    assert (await client.answer()).status == 400


@pytest.mark.parametrize(
    "raw",
    [
        PRELUDE,
        PRELUDE + bytes(7),
        bytes(8) + b"body",
        b"no JSON" + bytes(8) + b"body",
        b'{"headers":{}}' + bytes(8) + b"body",
        b'{"statusCode":"200"}' + bytes(8) + b"body",
        b'{"statusCode":200,"headers":{"a":["b"]}}' + bytes(8) + b"body",
        b'{"statusCode":200,"headers":{"Set-Cookie":"a=b"}}' + bytes(8) + b"body",
        b'{"statusCode":200,"body":""}' + bytes(8) + b"body",
        b'{"statusCode":200,"headers":{"a":"%b"}}' % (b"x" * 20_000) + bytes(8),
    ],
)
async def test_a_streamed_http_response_needs_a_prelude(
    api: RuntimeApi, client: Client, raw: bytes
) -> None:
    invocation = await handed_out(api, client)
    headers = {**STREAMING, **CHUNKED, "Content-Type": HTTP_RESPONSE}
    pieces = [raw[at : at + 5_000] for at in range(0, len(raw), 5_000)]
    answer = await client.post(path_of(invocation), chunks(*pieces), headers)
    assert (answer.status, answer.body["errorType"]) == (400, "InvalidPrelude")
    assert raw.startswith(await invocation.whole())
    assert invocation.failure is not None
    assert invocation.failure.kind == "Runtime.InvalidPrelude"


async def test_a_runtime_that_breaks_off_fails_its_invocation(
    api: RuntimeApi, client: Client
) -> None:
    invocation = await handed_out(api, client)
    client.send("POST", path_of(invocation), {**STREAMING, **CHUNKED}, b"4\r\nsome\r\n4\r\nmo")
    await invocation.begun()
    await client.writer.drain()
    client.writer.close()
    assert await invocation.whole() == b"some"
    assert invocation.failure is not None
    assert invocation.failure.kind == "Runtime.TruncatedResponse"


async def test_time_runs_out_for_an_answer(api: RuntimeApi, client: Client) -> None:
    invocation = await handed_out(api, client, seconds=1)
    with pytest.raises(Failed, match="timed out"):
        await invocation.begun()
    answer = await client.post(path_of(invocation))
    assert (answer.status, answer.body["errorType"]) == (410, "InvokeTimeout")


async def test_time_runs_out_in_the_middle_of_a_response(api: RuntimeApi, client: Client) -> None:
    invocation = await handed_out(api, client, seconds=2)
    client.send("POST", path_of(invocation), {**STREAMING, **CHUNKED}, b"4\r\nsome\r\n")
    await invocation.begun()
    pieces = invocation.body()
    assert await anext(pieces) == b"some"
    with pytest.raises(Failed, match="timed out"):
        await anext(pieces)
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await client.answer()


async def test_a_disconnected_runtime_gets_no_invocation(api: RuntimeApi, client: Client) -> None:
    async with Client(api) as leaving:
        leaving.send("GET", NEXT, {})
        await waits(api)
    await waits(api, False)
    await handed_out(api, client)


async def test_an_invocation_id_has_to_be_sent_back(api: RuntimeApi, client: Client) -> None:
    headers = {"Lambda-Runtime-Invocation-Id": "abc"}
    invocation = await handed_out(api, client, headers=headers)
    assert (await client.post(path_of(invocation))).status == 400
    async with Client(api) as again:
        assert (await again.post(path_of(invocation), headers=headers)).status == 202


async def test_closing_fails_unanswered_invocations(client: Client, api: RuntimeApi) -> None:
    running, queued = await handed_out(api, client), api.invoke({}, seconds=SECONDS)
    await api.close()
    for invocation in (running, queued):
        with pytest.raises(Failed, match="closed"):
            await invocation.begun()


HANDLER = """
def handler(event, context):
    if event.get("fail"):
        raise LookupError(context.aws_request_id)
    return {"size": "x" * event["size"], "left": context.get_remaining_time_in_millis()}
"""


@pytest.fixture(name="managed")
def managed_fixture(api: RuntimeApi, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """AWS's own runtime, with the handler above."""
    if not LAMBDA_PYTHON.exists():
        pytest.skip("Lambda's Python is missing; `make setup` brings it")
    (tmp_path / "app.py").write_text(HANDLER)
    env = {"AWS_LAMBDA_RUNTIME_API": api.address, "PATH": os.environ["PATH"]}
    command = [str(LAMBDA_PYTHON), "-m", "awslambdaric", "app.handler"]
    process = subprocess.Popen(command, cwd=tmp_path, env=env)
    yield process
    process.kill()
    process.wait()


@pytest.mark.usefixtures("managed")
async def test_the_managed_runtime_is_served(api: RuntimeApi) -> None:
    for size in (1, 5_000_000):
        invocation = api.invoke({"size": size}, seconds=SECONDS)
        result = json.loads(await invocation.whole())
        assert invocation.mode == "buffered"
        assert len(result["size"]) == size
        assert 0 < result["left"] <= SECONDS * 1000
    failed = api.invoke({"fail": True}, seconds=SECONDS)
    assert await failed.whole() == b""
    assert failed.failure is not None
    assert failed.failure.body["errorType"] == "LookupError"
    assert failed.failure.body["errorMessage"] == failed.request_id


@pytest.mark.usefixtures("managed")
async def test_too_large_responses_of_the_managed_runtime_are_refused(api: RuntimeApi) -> None:
    invocation = api.invoke({"size": MAX_BUFFERED_BYTES}, seconds=SECONDS)
    await invocation.whole()
    assert invocation.failure is not None
    assert invocation.failure.kind == "Function.ResponseSizeTooLarge"
