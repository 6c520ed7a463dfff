"""Requests that pass the guard of a function, as the application sees them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tailrace.aws.edge.origin_guard import OriginGuard, create_origin_secret
from tailrace.aws.edge.origin_secret import (
    ManagedOriginSecret,
    StaticOriginSecret,
    derive_key,
    sign_edge_token,
)
from tailrace.errors import BadSetting, StoreUnavailable
from tailrace.settings import Settings
from tailrace.web.asgi import Message, Receive, Scope, Send


class Inside:
    """An application that records the scopes of its requests."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []

    async def __call__(self, scope: Scope, _: Receive, send: Send) -> None:
        self.scopes.append(scope)
        await send({"type": "http.response.start", "status": 204, "headers": []})


class Unreadable:
    async def matches(self, value: str) -> bool:
        raise StoreUnavailable(f"the origin secret cannot be read, {len(value)} bytes")

    async def verify_edge_token(self, token: bytes, raw_path: bytes) -> bool:
        raise AssertionError((token, raw_path))


async def ask(
    guard: OriginGuard, *headers: tuple[bytes, bytes], kind: str = "http", **more: Any
) -> list[Message]:
    said: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        said.append(message)

    await guard({"type": kind, "method": "GET", "headers": list(headers), **more}, receive, send)
    return said


@pytest.mark.parametrize("secret", [b"", b"Secret", b"secret ", b"secre", b"secrets", b"\xff"])
async def test_a_wrong_secret_is_refused(secret: bytes) -> None:
    inside = Inside()
    start, body = await ask(
        OriginGuard(inside, StaticOriginSecret("secret")), (b"x-tailrace-origin", secret)
    )
    assert start["status"] == 403
    assert dict(start["headers"])[b"cache-control"] == b"no-store"
    assert orjson.loads(body["body"])["error"]["code"] == "NOT_THROUGH_THE_EDGE"
    assert inside.scopes == []


async def test_a_missing_secret_is_refused() -> None:
    start, _ = await ask(OriginGuard(Inside(), StaticOriginSecret("secret")))
    assert start["status"] == 403


async def test_the_application_sees_the_clients_host_and_not_the_secret() -> None:
    inside = Inside()
    await ask(
        OriginGuard(inside, StaticOriginSecret("secret")),
        (b"host", b"id.lambda-url.eu-west-1.on.aws"),
        (b"x-forwarded-host", b"streams.example.com"),
        (b"x-tailrace-origin", b"secret"),
        (b"accept", b"*/*"),
    )
    (scope,) = inside.scopes
    assert sorted(scope["headers"]) == [(b"accept", b"*/*"), (b"host", b"streams.example.com")]


async def test_the_application_sees_the_address_of_the_viewer_and_not_that_of_the_edge() -> None:
    inside = Inside()
    headers = (b"x-tailrace-origin", b"secret"), (b"x-tailrace-viewer", b"2001:db8::7")
    await ask(
        OriginGuard(inside, StaticOriginSecret("secret")), *headers, client=("192.0.2.1", 443)
    )
    assert inside.scopes[0]["client"] == ("2001:db8::7", 0)
    assert inside.scopes[0]["headers"] == []


async def test_credentials_go_back_to_where_the_viewer_had_them() -> None:
    inside = Inside()
    await ask(
        OriginGuard(inside, StaticOriginSecret("secret")),
        (b"x-tailrace-origin", b"secret"),
        (b"x-tailrace-authorization", b"Bearer token"),
        (b"x-tailrace-query", b"signed=a%2Fb&jid=c"),
        (b"authorization", b"Bearer of somebody else"),
        (b"x-signed", b"name"),
        query_string=b"offset=-1",
    )
    (scope,) = inside.scopes
    assert dict(scope["headers"]) == {b"authorization": b"Bearer token", b"x-signed": b"name"}
    assert scope["query_string"] == b"offset=-1&signed=a%2Fb&jid=c"
    assert scope["tailrace.edge_verified"] is False


async def test_a_direct_authorization_header_is_ignored() -> None:
    inside = Inside()
    headers = (b"x-tailrace-origin", b"secret"), (b"authorization", b"Bearer token")
    await ask(OriginGuard(inside, StaticOriginSecret("secret")), *headers)
    assert inside.scopes[0]["headers"] == []


EDGE_TOKEN = sign_edge_token(derive_key(b"secret"), b"/v1/stream/a")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_a_valid_edge_token_marks_the_request_as_verified(method: str) -> None:
    inside = Inside()
    headers = (b"x-tailrace-origin", b"secret"), (b"x-tailrace-edge-token", EDGE_TOKEN)
    await ask(
        OriginGuard(inside, StaticOriginSecret("secret")),
        *headers,
        method=method,
        raw_path=b"/v1/stream/a",
    )
    (scope,) = inside.scopes
    assert scope["tailrace.edge_verified"] is True
    assert scope["headers"] == []


@pytest.mark.parametrize(
    ("method", "path", "token"),
    [
        ("GET", b"/v1/stream/b", EDGE_TOKEN),
        ("GET", b"/v1/stream/a", b""),
        ("GET", b"/v1/stream/a", EDGE_TOKEN[:-1]),
        ("GET", b"/v1/stream/a", EDGE_TOKEN.upper()),
        ("GET", b"/v1/stream/a", sign_edge_token(derive_key(b"other"), b"/v1/stream/a")),
        ("POST", b"/v1/stream/a", EDGE_TOKEN),
        ("DELETE", b"/v1/stream/a", EDGE_TOKEN),
    ],
)
async def test_an_edge_token_for_another_request_is_refused(
    method: str, path: bytes, token: bytes
) -> None:
    inside = Inside()
    headers = (b"x-tailrace-origin", b"secret"), (b"x-tailrace-edge-token", token)
    guard = OriginGuard(inside, StaticOriginSecret("secret"))
    start, _ = await ask(guard, *headers, method=method, raw_path=path)
    assert start["status"] == 403
    assert dict(start["headers"])[b"cache-control"] == b"no-store"
    assert inside.scopes == []


async def test_an_edge_token_is_refused_without_the_secret() -> None:
    inside = Inside()
    guard = OriginGuard(inside, StaticOriginSecret("secret"))
    start, _ = await ask(
        guard, (b"x-tailrace-edge-token", EDGE_TOKEN), method="GET", raw_path=b"/v1/stream/a"
    )
    assert start["status"] == 403
    assert inside.scopes == []


async def test_requests_get_503_while_the_secret_cannot_be_read() -> None:
    inside = Inside()
    start, _ = await ask(OriginGuard(inside, Unreadable()), (b"x-tailrace-origin", b"secret"))
    assert start["status"] == 503
    assert dict(start["headers"])[b"retry-after"] == b"1"
    assert inside.scopes == []


async def test_the_guard_forwards_lifespan_events() -> None:
    inside = Inside()
    await ask(OriginGuard(inside, StaticOriginSecret("secret")), kind="lifespan")
    assert len(inside.scopes) == 1


def test_a_function_without_a_secret_does_not_start() -> None:
    with pytest.raises(BadSetting, match="TAILRACE_ORIGIN_SECRET"):
        create_origin_secret(Settings())


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("arn:aws:secretsmanager:eu-west-1:1:secret:x", ManagedOriginSecret),
        ("value", StaticOriginSecret),
    ],
)
def test_an_arn_is_resolved_and_other_values_are_the_secret_itself(
    value: str, kind: type[Any]
) -> None:
    assert isinstance(create_origin_secret(Settings(origin_secret=value)), kind)


async def test_a_path_may_be_unguarded_but_not_with_a_query() -> None:
    inside = Inside()
    guard = OriginGuard(inside, StaticOriginSecret("secret"), unguarded=["/health"])
    await ask(guard, path="/health")
    assert len(inside.scopes) == 1
    for other in ({"path": "/health", "query_string": b"verbose"}, {"path": "/v1/stream/health"}):
        start, _ = await ask(guard, **other)
        assert start["status"] == 403
    start, _ = await ask(guard, method="POST", path="/health")
    assert start["status"] == 403
    assert len(inside.scopes) == 1


async def test_a_handshake_that_did_not_come_through_the_edge_is_rejected() -> None:
    inside = Inside()
    guard = OriginGuard(inside, StaticOriginSecret("secret"))
    extensions: dict[str, Any] = {"websocket.http.response": {}}
    start, _ = await ask(guard, kind="websocket", extensions=extensions)
    assert start["status"] == 403
    assert inside.scopes == []


async def test_a_handshake_has_no_edge_token() -> None:
    inside = Inside()
    guard = OriginGuard(inside, StaticOriginSecret("secret"))
    headers = (b"x-tailrace-origin", b"secret"), (b"x-tailrace-edge-token", EDGE_TOKEN)
    extensions: dict[str, Any] = {"websocket.http.response": {}}
    start, _ = await ask(
        guard, *headers, kind="websocket", raw_path=b"/v1/stream/a", extensions=extensions
    )
    assert start["status"] == 403
