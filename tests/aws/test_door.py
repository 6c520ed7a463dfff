"""Who gets past the door of a function, and what the application sees of them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tailrace.aws.door import Door, origin_secret
from tailrace.aws.secret import FixedSecret, StoredSecret
from tailrace.errors import BadSetting, StoreUnavailable
from tailrace.http.asgi import Message, Receive, Scope, Send
from tailrace.settings import Settings


class Inside:
    """An application that remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Scope] = []

    async def __call__(self, scope: Scope, _: Receive, send: Send) -> None:
        self.asked.append(scope)
        await send({"type": "http.response.start", "status": 204, "headers": []})


class Unreadable:
    async def admits(self, shown: str) -> bool:
        raise StoreUnavailable(f"the origin secret cannot be read, {len(shown)} bytes shown")


async def ask(door: Door, *headers: tuple[bytes, bytes], kind: str = "http") -> list[Message]:
    said: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        said.append(message)

    await door({"type": kind, "headers": list(headers)}, receive, send)
    return said


@pytest.mark.parametrize("shown", [b"", b"Secret", b"secret ", b"secre", b"secrets", b"\xff"])
async def test_whoever_shows_another_secret_is_refused(shown: bytes) -> None:
    inside = Inside()
    start, body = await ask(Door(inside, FixedSecret("secret")), (b"x-tailrace-origin", shown))
    assert start["status"] == 403
    assert dict(start["headers"])[b"cache-control"] == b"no-store"
    assert orjson.loads(body["body"])["error"]["code"] == "NOT_THROUGH_THE_EDGE"
    assert inside.asked == []


async def test_whoever_shows_none_is_refused() -> None:
    start, _ = await ask(Door(Inside(), FixedSecret("secret")))
    assert start["status"] == 403


async def test_the_application_sees_the_clients_host_and_not_the_secret() -> None:
    inside = Inside()
    await ask(
        Door(inside, FixedSecret("secret")),
        (b"host", b"id.lambda-url.eu-west-1.on.aws"),
        (b"x-forwarded-host", b"streams.example.com"),
        (b"x-tailrace-origin", b"secret"),
        (b"accept", b"*/*"),
    )
    (scope,) = inside.asked
    assert sorted(scope["headers"]) == [(b"accept", b"*/*"), (b"host", b"streams.example.com")]


async def test_a_secret_that_cannot_be_read_lets_nobody_in_and_asks_for_a_retry() -> None:
    inside = Inside()
    start, _ = await ask(Door(inside, Unreadable()), (b"x-tailrace-origin", b"secret"))
    assert start["status"] == 503
    assert dict(start["headers"])[b"retry-after"] == b"1"
    assert inside.asked == []


async def test_the_lifespan_passes() -> None:
    inside = Inside()
    await ask(Door(inside, FixedSecret("secret")), kind="lifespan")
    assert len(inside.asked) == 1


def test_a_function_without_a_secret_does_not_start() -> None:
    with pytest.raises(BadSetting, match="TAILRACE_ORIGIN_SECRET"):
        origin_secret(Settings())


@pytest.mark.parametrize(
    ("value", "kind"),
    [("arn:aws:secretsmanager:eu-west-1:1:secret:x", StoredSecret), ("value", FixedSecret)],
)
def test_an_arn_names_a_secret_and_anything_else_is_one(value: str, kind: type[Any]) -> None:
    assert isinstance(origin_secret(Settings(origin_secret=value)), kind)
