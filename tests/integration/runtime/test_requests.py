"""Requests as the app receives them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from devtools.local_aws.runtime_api import RuntimeApi
from tests.integration.runtime.conftest import (
    SECONDS,
    Runtime,
    event,
    streamed,
    until,
)


async def echoed(api: RuntimeApi, sent: dict[str, Any], **more: Any) -> dict[str, Any]:
    response = await streamed(api.invoke(sent, seconds=SECONDS, **more))
    shown: dict[str, Any] = json.loads(response.body)
    return shown


async def test_an_event_becomes_a_request(plain: RuntimeApi) -> None:
    sent = event("/echo/x", "a=1&a=2&b=%20")
    shown = await echoed(plain, sent)
    assert shown["method"] == "GET"
    assert shown["scheme"] == "https"
    assert shown["http_version"] == "1.1"
    assert shown["path"] == shown["raw_path"] == "/echo/x"
    assert shown["query_string"] == "a=1&a=2&b=%20"
    assert shown["client"] == ["192.0.2.7", 0]
    assert shown["server"] == ["abc.lambda-url.eu-west-1.on.aws", 443]
    assert shown["root_path"] == ""
    assert shown["body"] == ""
    assert shown["more_body"] is False
    assert shown["event"] == sent


async def test_a_path_is_decoded_once_and_the_raw_path_is_kept(plain: RuntimeApi) -> None:
    shown = await echoed(plain, event("/echo/a%2Fb%20%C3%BC%2525%zz"))
    assert shown["path"] == "/echo/a/b ü%25%zz"
    assert shown["raw_path"] == "/echo/a%2Fb%20%C3%BC%2525%zz"


async def test_header_names_are_lower_case_and_cookies_are_one_header(plain: RuntimeApi) -> None:
    headers = {"Host": "here", "X-Some": "a,b", "cookie": "not this one"}
    shown = await echoed(plain, event("/echo", headers=headers, cookies=["a=1", "b=2"]))
    assert shown["headers"] == [["host", "here"], ["x-some", "a,b"], ["cookie", "a=1; b=2"]]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_a_text_body_arrives_in_utf8(plain: RuntimeApi, method: str) -> None:
    sent = event("/echo", body="grün")
    sent["requestContext"]["http"]["method"] = method
    shown = await echoed(plain, sent)
    assert shown["method"] == method
    assert shown["body"].encode("latin-1").decode() == "grün"


async def test_a_base64_body_arrives_as_bytes(plain: RuntimeApi) -> None:
    body = bytes(range(256)) * 1000
    sent = event("/echo", body=base64.b64encode(body).decode(), isBase64Encoded=True)
    shown = await echoed(plain, sent)
    assert shown["body"].encode("latin-1") == body


async def test_the_context_has_the_invocations_headers(plain: RuntimeApi) -> None:
    arn = "arn:aws:lambda:eu-west-1:000000000000:function:live:prod"
    headers = {
        "Lambda-Runtime-Client-Context": '{"custom": {"a": "b"}}',
        "Lambda-Runtime-Cognito-Identity": '{"cognitoIdentityId": "me"}',
    }
    invocation = plain.invoke(event("/echo"), seconds=SECONDS, arn=arn, headers=headers)
    shown = json.loads((await streamed(invocation)).body)
    assert shown["request_id"] == invocation.request_id
    assert shown["arn"] == arn
    assert shown["function"] == ["live", "512"]
    assert shown["client_context"] == {"custom": {"a": "b"}}
    assert shown["cognito"] == {"cognitoIdentityId": "me"}
    assert 0 < shown["left"] <= SECONDS * 1000


async def test_an_invocation_id_is_sent_back(plain: RuntimeApi) -> None:
    headers = {"Lambda-Runtime-Invocation-Id": "abc"}
    await echoed(plain, event("/echo"), headers=headers)
    failed = plain.invoke(event("/early"), seconds=SECONDS, headers=headers)
    await failed.whole()
    assert failed.failure is not None
    assert failed.failure.kind == "Function.LookupError"


async def test_a_trace_is_in_the_environment_while_its_invocation_runs(plain: RuntimeApi) -> None:
    trace = "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1"
    shown = await echoed(plain, event("/echo"), trace=trace)
    assert shown["trace"] == shown["environment_trace"] == trace
    shown = await echoed(plain, event("/echo"))
    assert shown["trace"] is shown["environment_trace"] is None


@pytest.mark.parametrize(
    ("sent", "missing"),
    [
        ({}, "requestContext"),
        ({"Records": []}, "requestContext"),
        ({"requestContext": {"elb": {}}}, "requestContext.http"),
        ({"requestContext": {"http": {"method": "GET"}}}, "rawPath"),
        ({"requestContext": {"http": {}}, "rawPath": "/"}, "requestContext.http.method"),
        ({**event("/echo"), "body": "%", "isBase64Encoded": True}, "base64"),
        ({**event("/echo"), "headers": ["a"]}, "list"),
        ({**event("/echo"), "cookies": [1]}, "int"),
        ({**event("/echo\ud800")}, "surrogates"),
        ([], "requestContext"),
    ],
)
async def test_an_event_that_is_not_http_is_an_error_that_says_so(
    plain: RuntimeApi, sent: Any, missing: str
) -> None:
    invocation = plain.invoke(sent, seconds=SECONDS)
    await invocation.whole()
    assert invocation.failure is not None
    assert invocation.failure.kind == "Runtime.MalformedEvent"
    assert missing in invocation.failure.body["errorMessage"]
    await echoed(plain, event("/echo"))


async def test_modules_are_found_where_the_managed_runtime_finds_them(
    api: RuntimeApi, runtime: Runtime
) -> None:
    runtime.start(api.address, env={"PYTHONPATH": "/of/the/user"}, options=("-X", "utf8"))
    await until(lambda: api.waiting)
    shown = json.loads((await streamed(api.invoke(event("/recall"), seconds=SECONDS))).body)
    layer = shown["path"][2].removesuffix("/python")
    version = ".".join(shown["path"][1].split("python")[-1].split("/")[0].split(".")[:2])
    assert shown["path"][:4] == [
        str(runtime.task_root),
        f"{layer}/python/lib/python{version}/site-packages",
        f"{layer}/python",
        "/of/the/user",
    ]
    assert layer.endswith("layers/streaming")
    assert shown["argv"][1:] == ["-X", "utf8", "-P", "-m", "asgi_stream"]
