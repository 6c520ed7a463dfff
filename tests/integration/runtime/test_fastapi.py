"""An app of FastAPI, which knows nothing of Lambda."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from devtools.local_aws.runtime_api import RuntimeApi
from tests.integration.runtime.conftest import (
    SECONDS,
    Runtime,
    due,
    event,
    parsed,
    see_events,
    streamed,
    until,
)


@pytest.fixture(name="fast")
async def fast_fixture(api: RuntimeApi, runtime: Runtime) -> RuntimeApi:
    runtime.start(api.address, "fast.app")
    await until(lambda: api.waiting)
    return api


async def test_routes_cookies_and_state_work(fast: RuntimeApi) -> None:
    response = await streamed(fast.invoke(event("/items/a%20b/%C3%BC", "q=1%2B1"), seconds=SECONDS))
    assert response.status == 200
    assert json.loads(response.body) == {
        "name": "a b/ü",
        "q": "1+1",
        "greeting": "hello",
        "base_url": "https://abc.lambda-url.eu-west-1.on.aws/",
    }
    assert [cookie.split(";")[0] for cookie in response.cookies] == ["first=1", "second=2"]


async def test_a_body_is_received(fast: RuntimeApi) -> None:
    sent = event("/upload", body="x" * 100_000)
    sent["requestContext"]["http"]["method"] = "POST"
    response = await streamed(fast.invoke(sent, seconds=SECONDS))
    assert json.loads(response.body) == {"bytes": 100_000}


async def test_events_leave_at_once(fast: RuntimeApi, tmp_path: Path) -> None:
    await see_events(fast.invoke(event("/events", f"seen={tmp_path}"), seconds=SECONDS), tmp_path)


async def test_a_stream_is_cleaned_up_at_its_deadline(fast: RuntimeApi) -> None:
    response = await streamed(fast.invoke(event("/forever"), seconds=SECONDS, headers=due(3)))
    assert b"data: begin\n\n" in response.body
    assert json.loads((await streamed(fast.invoke(event("/log"), seconds=SECONDS))).body) == [
        "cleaned up"
    ]


async def test_background_tasks_run_before_the_next_request(fast: RuntimeApi) -> None:
    await streamed(fast.invoke(event("/background"), seconds=SECONDS))
    assert json.loads((await streamed(fast.invoke(event("/log"), seconds=SECONDS))).body) == [
        "worked"
    ]


async def test_an_error_in_a_generator_is_in_the_trailers(fast: RuntimeApi) -> None:
    invocation = fast.invoke(event("/breaks"), seconds=SECONDS)
    response = parsed(await invocation.whole())
    assert b"data: begin\n\n" in response.body
    assert invocation.failure is not None
    assert invocation.failure.kind == "Function.LookupError"


async def test_the_lifespan_ends_with_the_process(fast: RuntimeApi, runtime: Runtime) -> None:
    assert fast.waiting
    runtime.process.send_signal(signal.SIGTERM)
    assert await runtime.exit_code() == 0
    assert "FastAPI shut down" in runtime.output()
