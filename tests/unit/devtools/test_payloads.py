"""Payload format 2.0, as a function URL reads and writes it."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from devtools.local_aws.events import Request, to_call
from devtools.local_aws.replies import Malformed, from_prelude, from_result

DOMAIN = "abc.lambda-url.us-east-1.on.aws"


def event_of(
    target: str = "/", *headers: tuple[str, str], body: bytes = b"", method: str = "GET"
) -> dict[str, Any]:
    request = Request(method, target, "HTTP/1.1", list(headers), body, "10.0.0.9")
    return to_call(request, DOMAIN).event


def test_path_and_query_are_not_changed() -> None:
    event = event_of("/v1/stream/a%2Fb%20c?offset=1&x=%20&offset=2")
    assert event["rawPath"] == "/v1/stream/a%2Fb%20c"
    assert event["requestContext"]["http"]["path"] == "/v1/stream/a%2Fb%20c"
    assert event["rawQueryString"] == "offset=1&x=%20&offset=2"
    assert event["queryStringParameters"] == {"offset": "1,2", "x": " "}


def test_headers_are_lower_case_and_joined_and_cookies_are_apart() -> None:
    event = event_of(
        "/", ("X-One", "a"), ("x-one", "b"), ("Cookie", "k=v; l=w"), ("TE", "trailers")
    )
    assert event["headers"]["x-one"] == "a,b"
    assert event["cookies"] == ["k=v", "l=w"]
    assert "cookie" not in event["headers"]
    assert "te" not in event["headers"]


def test_the_event_has_the_client_address_and_the_host() -> None:
    event = event_of("/", ("Host", "edge:1"), ("X-Forwarded-For", "1.2.3.4"), ("User-Agent", "me"))
    assert event["headers"]["host"] == DOMAIN
    assert event["headers"]["x-forwarded-for"] == "1.2.3.4, 10.0.0.9"
    assert event["headers"]["x-forwarded-proto"] == "https"
    assert event["headers"]["x-forwarded-port"] == "443"
    assert event["headers"]["x-amzn-trace-id"].startswith("Root=1-")
    context = event["requestContext"]
    assert context["http"] == {
        "method": "GET",
        "path": "/",
        "protocol": "HTTP/1.1",
        "sourceIp": "10.0.0.9",
        "userAgent": "me",
    }
    assert (context["accountId"], context["apiId"], context["domainPrefix"]) == (
        "anonymous",
        "abc",
        "abc",
    )
    assert (context["routeKey"], context["stage"]) == ("$default", "$default")


def test_an_event_without_a_body() -> None:
    event = event_of(method="POST")
    assert "body" not in event
    assert event["isBase64Encoded"] is False


@pytest.mark.parametrize(
    ("content_type", "body", "is_text"),
    [
        ("text/plain", b"caf\xc3\xa9", True),
        ("application/json; charset=utf-8", b"[1]", True),
        ("application/xml", b"<a/>", True),
        ("application/octet-stream", b"[1]", False),
        ("application/x-www-form-urlencoded", b"a=b", False),
        ("application/vnd.api+json", b"{}", False),
        ("", b"plain", False),
        ("text/plain", b"\xff", False),
    ],
)
def test_a_body_is_text_only_for_text_types(content_type: str, body: bytes, is_text: bool) -> None:
    event = event_of("/", ("Content-Type", content_type), body=body, method="POST")
    assert event["isBase64Encoded"] is not is_text
    given = event["body"].encode() if is_text else base64.b64decode(event["body"])
    assert given == body


def test_a_result_with_a_status_is_the_response() -> None:
    result = {
        "statusCode": 201,
        "headers": {"X-A": "b", "X-N": 7, "Content-Type": "text/plain", "Connection": "close"},
        "cookies": ["a=1", "b=2"],
        "body": base64.b64encode(b"\0\xff").decode(),
        "isBase64Encoded": True,
    }
    reply = from_result(json.dumps(result).encode())
    assert reply.status == 201
    assert reply.body == b"\0\xff"
    assert reply.headers == [
        ("X-A", "b"),
        ("X-N", "7"),
        ("Content-Type", "text/plain"),
        ("set-cookie", "a=1"),
        ("set-cookie", "b=2"),
    ]


@pytest.mark.parametrize(
    ("payload", "body"), [(b'{"a": 1}', b'{"a": 1}'), (b'"hello"', b"hello"), (b"null", b"null")]
)
def test_a_bare_value_becomes_a_json_response(payload: bytes, body: bytes) -> None:
    reply = from_result(payload)
    assert (reply.status, reply.body) == (200, body)
    assert reply.headers == [("content-type", "application/json")]


def test_headers_of_the_function_url_are_remapped() -> None:
    reply = from_prelude(b'{"statusCode":200,"headers":{"Content-Length":"3","Date":"now"}}')
    assert ("x-amzn-remapped-content-length", "3") in reply.headers
    assert ("x-amzn-remapped-date", "now") in reply.headers


@pytest.mark.parametrize(
    "result",
    [
        {"statusCode": "many"},
        {"statusCode": 99},
        {"statusCode": 200, "body": {"not": "text"}},
        {"statusCode": 200, "headers": {"x": ["a", "b"]}},
        {"statusCode": 200, "body": "*", "isBase64Encoded": True},
    ],
)
def test_malformed_results_are_refused(result: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        from_result(json.dumps(result).encode())


@pytest.mark.parametrize("prelude", [b"", b"[]", b"{", b'{"statusCode":"x"}'])
def test_malformed_preludes_are_refused(prelude: bytes) -> None:
    with pytest.raises(Malformed):
        from_prelude(prelude)
