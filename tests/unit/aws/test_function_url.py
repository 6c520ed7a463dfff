"""Events in, answers out, byte for byte: what Mangum alone would change."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from mangum import Mangum

from devtools.processes import ROOT
from tailrace.aws.handlers.function_url import FunctionUrl
from tailrace.web.asgi import Receive, Scope, Send

EVENTS = ROOT / "events" / "http"


class Echo:
    """An application that answers with what it was told to, and remembers what it was asked."""

    def __init__(self, body: bytes = b"", headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        self.body = body
        self.headers = headers
        self.scope: Scope = {}
        self.received = b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.received = (await receive())["body"]
        headers = list(self.headers)
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


@pytest.fixture(autouse=True)
def loop() -> Iterator[None]:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    loop.close()
    asyncio.set_event_loop(None)


def invoke(app: Echo, name: str) -> dict[str, Any]:
    event = json.loads((EVENTS / f"{name}.json").read_text())
    adapter = Mangum(app, lifespan="off", custom_handlers=[FunctionUrl])
    return adapter(event, None)  # type: ignore[arg-type]


def test_the_path_arrives_as_it_was_sent() -> None:
    app = Echo()
    invoke(app, "encoded_name")
    assert app.scope["raw_path"] == b"/v1/stream/caf%C3%A9/a%2Fb%20c"
    assert app.scope["scheme"] == "https"


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("append", b'[{"from":"ada","text":"hello"}]'),
        ("append_binary", b"\x00\xff\x80\n"),
        ("create", b""),
    ],
)
def test_the_body_arrives_as_it_was_sent(name: str, body: bytes) -> None:
    app = Echo()
    invoke(app, name)
    assert app.received == body


@pytest.mark.parametrize("body", [b"", b'{"text": "\xc3\xa9"}', b"\x00\xff", b'"' * 4_000_000])
def test_every_response_body_is_base64(body: bytes) -> None:
    answer = invoke(Echo(body, ((b"content-type", b"application/json"),)), "read")
    assert answer["isBase64Encoded"] is True
    assert base64.b64decode(answer["body"]) == body
    assert len(json.dumps(answer)) < 6_000_000


def test_no_content_type_is_added_to_a_response_without_one() -> None:
    assert "content-type" not in invoke(Echo(), "delete")["headers"]


def test_the_length_is_left_to_lambda() -> None:
    answer = invoke(Echo(b"1234", ((b"content-length", b"4"), (b"etag", b"x"))), "read")
    assert answer["headers"] == {"etag": "x"}


def test_repeated_headers_are_joined_except_cookies() -> None:
    headers = ((b"Vary", b"a"), (b"vary", b"b"), (b"Set-Cookie", b"x=1"), (b"set-cookie", b"y=2"))
    answer = invoke(Echo(headers=headers), "read")
    assert answer["headers"] == {"vary": "a, b"}
    assert answer["cookies"] == ["x=1", "y=2"]
