"""The application as a function runs it."""

from __future__ import annotations

import random

import pytest

from tailrace.aws.handlers.application import FunctionApplication
from tailrace.errors import BadSetting
from tailrace.web.asgi import Message

REQUEST = {"type": "http", "method": "GET", "path": "/health", "query_string": b"", "headers": []}


async def ask(function: FunctionApplication) -> int:
    said: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        said.append(message)

    await function(REQUEST, receive, send)
    return int(said[0]["status"])


@pytest.fixture
def function(monkeypatch: pytest.MonkeyPatch) -> FunctionApplication:
    monkeypatch.setenv("TAILRACE_ORIGIN_SECRET", "secret")
    monkeypatch.setenv("TAILRACE_ACCESS", "open")
    return FunctionApplication("http")


async def test_environments_restored_from_one_snapshot_have_different_random_seeds(
    function: FunctionApplication,
) -> None:
    random.seed(7)
    drawn_by_all = random.Random(7).random()
    assert await ask(function) == 403
    assert random.random() != drawn_by_all
    random.seed(7)
    assert await ask(function) == 403
    assert random.random() == drawn_by_all, "once is enough"


def test_a_function_that_would_be_open_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAILRACE_ORIGIN_SECRET", raising=False)
    monkeypatch.setenv("TAILRACE_ACCESS", "open")
    with pytest.raises(BadSetting, match="TAILRACE_ORIGIN_SECRET"):
        FunctionApplication("http")


def test_a_closed_function_requires_an_access_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TAILRACE_ORIGIN_SECRET", "secret")
    with pytest.raises(BadSetting, match="TAILRACE_ACCESS_SECRET"):
        FunctionApplication("http")
