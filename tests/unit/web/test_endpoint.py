"""The shell around a protocol's handler: request ids, errors as answers, CORS and host checks."""

from __future__ import annotations

import logging

import orjson
import pytest

from tailrace.auth.origins import LocalHosts, Origins
from tailrace.errors import StreamNotFound
from tailrace.web.endpoint import Endpoint
from tailrace.web.messages import Answer, RawHeaders, Request, Response

ANY = Origins("")


def get(*headers: tuple[bytes, bytes], method: str = "GET") -> Request:
    return Request(method, "/v1/stream/a", "", list(headers), b"")


async def succeed(_: Request) -> Answer:
    return Response(204, [])


async def fail(_: Request) -> Answer:
    raise StreamNotFound("there is no stream at 'a'")


async def crash(_: Request) -> Answer:
    raise ZeroDivisionError("secret")


async def respond(endpoint: Endpoint, request: Request) -> tuple[int, dict[bytes, bytes], bytes]:
    answer = await endpoint.respond(request)
    assert isinstance(answer, Response)
    names = [name for name, _ in answer.headers]
    assert names.count(b"x-request-id") == 1
    return answer.status, dict(answer.headers), answer.body


async def test_an_answer_gets_the_clients_request_id_and_cors() -> None:
    status, headers, _ = await respond(Endpoint(succeed, ANY), get((b"x-request-id", b"r-1")))
    assert status == 204
    assert headers[b"x-request-id"] == b"r-1"
    assert headers[b"access-control-allow-origin"] == b"*"


async def test_an_expected_error_is_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    status, headers, body = await respond(Endpoint(fail, ANY), get((b"x-request-id", b"r-1")))
    assert (status, headers[b"x-request-id"]) == (404, b"r-1")
    assert orjson.loads(body)["error"]["request_id"] == "r-1"
    assert headers[b"access-control-allow-origin"] == b"*"
    assert not caplog.records


async def test_an_unexpected_error_is_logged_and_hidden(caplog: pytest.LogCaptureFixture) -> None:
    status, headers, body = await respond(Endpoint(crash, ANY), get((b"x-request-id", b"r-1")))
    assert (status, headers[b"x-request-id"]) == (500, b"r-1")
    assert b"secret" not in body
    (record,) = caplog.records
    assert record.getMessage() == "GET /v1/stream/a failed (r-1)"
    assert record.levelno == logging.ERROR
    assert record.exc_info


async def test_a_protocol_renders_its_own_errors(caplog: pytest.LogCaptureFixture) -> None:
    def render(error: Exception, request_id: str) -> Response:
        headers: RawHeaders = [(b"x-request-id", request_id.encode())]
        return Response(418, headers, type(error).__name__.encode())

    expected = Endpoint(crash, ANY, expected=(ZeroDivisionError,), render=render)
    assert (await respond(expected, get()))[::2] == (418, b"ZeroDivisionError")
    assert not caplog.records
    unexpected = Endpoint(fail, ANY, expected=(ZeroDivisionError,), render=render)
    assert (await respond(unexpected, get()))[::2] == (418, b"StreamNotFound")
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    "header", [(b"host", b"evil.example"), (b"origin", b"https://evil.example")]
)
async def test_another_host_or_page_is_refused_without_cors(header: tuple[bytes, bytes]) -> None:
    endpoint = Endpoint(crash, ANY, LocalHosts("", ""))
    status, headers, _ = await respond(endpoint, get(header))
    assert status == 403
    assert b"access-control-allow-origin" not in headers


async def test_a_preflight_of_another_page_is_answered_without_cors() -> None:
    endpoint = Endpoint(succeed, ANY, LocalHosts("", ""))
    preflight = get((b"origin", b"https://evil.example"), method="OPTIONS")
    status, headers, _ = await respond(endpoint, preflight)
    assert status == 204
    assert b"access-control-allow-origin" not in headers
