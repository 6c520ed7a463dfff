"""Failures are reported to the platform and to the log, and the next invocation is served."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from devtools.local_aws.runtime_api import Failed, RuntimeApi
from tests.integration.runtime.conftest import (
    SECONDS,
    Runtime,
    due,
    event,
    parsed,
    streamed,
    until,
)


async def seen(api: RuntimeApi) -> list[str]:
    """Return what the app's earlier requests left behind; the runtime goes on, or this fails."""
    response = await streamed(api.invoke(event("/recall"), seconds=SECONDS))
    left: list[str] = json.loads(response.body)["seen"]
    return left


async def test_an_error_before_the_response_is_reported_with_its_trace(
    plain: RuntimeApi, runtime: Runtime
) -> None:
    invocation = plain.invoke(event("/early"), seconds=SECONDS)
    assert await invocation.whole() == b""
    assert invocation.failure is not None
    kind, body = invocation.failure
    assert kind == "Function.LookupError"
    assert body["errorType"] == "LookupError"
    assert body["errorMessage"] == "nothing was sent"
    assert "in early" in body["stackTrace"][-1]
    assert await seen(plain) == []
    assert "LookupError: nothing was sent" in runtime.output()


async def test_an_error_in_the_middle_ends_the_stream_cleanly_with_trailers(
    plain: RuntimeApi, runtime: Runtime
) -> None:
    invocation = plain.invoke(event("/midway"), seconds=SECONDS)
    response = parsed(await invocation.whole())
    assert b"data: first\n\n" in response.body
    assert invocation.failure is not None
    assert invocation.failure.kind == "Function.LookupError"
    assert invocation.failure.body["errorMessage"] == "in the middle: ü"
    assert "in midway" in invocation.failure.body["stackTrace"][-1]
    assert await seen(plain) == []
    assert plain.connections == 1
    assert "LookupError: in the middle" in runtime.output()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/silent", "Runtime.NoResponse"),
        ("/bodiless", "Function.RuntimeError"),
        ("/unencoded", "Function.AttributeError"),
        ("/cancelled", "Function.CancelledError"),
        ("/half", "Runtime.IncompleteResponse"),
        ("/none/such", "Function.KeyError"),
    ],
)
async def test_an_app_that_does_not_keep_to_asgi_is_reported(
    plain: RuntimeApi, path: str, kind: str
) -> None:
    invocation = plain.invoke(event(path), seconds=SECONDS)
    await invocation.whole()
    assert invocation.failure is not None
    assert invocation.failure.kind == kind
    assert await seen(plain) == []


async def test_an_app_goes_on_after_its_response(plain: RuntimeApi, runtime: Runtime) -> None:
    response = await streamed(plain.invoke(event("/after"), seconds=SECONDS))
    assert response.body == b"done"
    assert plain.waiting is False, "the response is complete before the app is"
    assert await seen(plain) == ["http.disconnect", "after"]
    assert "LookupError: after the response" in runtime.output()
    assert "printed after the response" in runtime.output()


async def test_a_client_that_leaves_ends_at_the_deadline(plain: RuntimeApi) -> None:
    """Nothing tells a function that its client has left; its deadline comes all the same."""
    await streamed(plain.invoke(event("/quiet"), seconds=SECONDS, headers=due(3)))
    assert await seen(plain) == ["http.disconnect"]


async def test_a_stream_that_its_deadline_ends_has_not_failed(
    plain: RuntimeApi, runtime: Runtime
) -> None:
    await streamed(plain.invoke(event("/sulky"), seconds=SECONDS, headers=due(3)))
    assert await seen(plain) == []
    assert "LookupError: http.disconnect" in runtime.output()


async def test_a_stream_that_does_not_listen_is_ended_before_its_deadline(
    plain: RuntimeApi,
) -> None:
    invocation = plain.invoke(event("/stubborn"), seconds=SECONDS, headers=due(3))
    assert b"data: more\n\n" in (await streamed(invocation)).body
    assert await seen(plain) == []


async def test_an_app_without_a_response_fails_before_its_deadline(plain: RuntimeApi) -> None:
    invocation = plain.invoke(event("/slow"), seconds=SECONDS, headers=due(1))
    await invocation.whole()
    assert invocation.failure is not None
    assert invocation.failure.kind == "Runtime.DeadlineExceeded"
    assert await seen(plain) == []


async def test_an_app_that_ignores_cancellation_does_not_affect_others(
    plain: RuntimeApi, tmp_path: Path
) -> None:
    invocation = plain.invoke(event("/deaf", str(tmp_path)), seconds=SECONDS, headers=due(1))
    await invocation.whole()
    assert invocation.failure is not None
    assert invocation.failure.kind == "Runtime.DeadlineExceeded"
    assert await seen(plain) == ["cancelled"]
    (tmp_path / "0").touch()
    async with asyncio.timeout(SECONDS):
        while (left := await seen(plain)) == ["cancelled"]:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
    assert left == ["cancelled", "the invocation is over"]


async def test_a_platform_that_gives_up_ends_the_app(plain: RuntimeApi, runtime: Runtime) -> None:
    """The deadline that the runtime knows of is far away; the platform's own comes first."""
    invocation = plain.invoke(event("/flood"), seconds=2, headers=due(1000))
    with pytest.raises(Failed):
        await invocation.whole()
    assert await seen(plain) == ["http.disconnect"]
    assert plain.connections == 2
    assert "aborted the response" in runtime.output()
    assert "Traceback" not in runtime.output()


async def test_a_response_that_is_refused_is_logged(
    plain: RuntimeApi, runtime: Runtime, tmp_path: Path
) -> None:
    sent = event("/pause", str(tmp_path))
    invocation = plain.invoke(sent, seconds=0.1, headers=due(1000))
    with pytest.raises(Failed):
        await invocation.begun()
    (tmp_path / "0").touch()
    assert await seen(plain) == []
    # Its answer, or the connection that ended with it, whichever is seen first.
    told = ('410 {"errorMessage": "Invoke timeout"', "BrokenPipeError", "ConnectionResetError")
    assert any(each in runtime.output() for each in told)


async def test_an_error_that_is_refused_is_logged(
    plain: RuntimeApi, runtime: Runtime, tmp_path: Path
) -> None:
    sent = event("/early", str(tmp_path))
    invocation = plain.invoke(sent, seconds=0.1, headers=due(1000))
    with pytest.raises(Failed):
        await invocation.begun()
    (tmp_path / "0").touch()
    assert await seen(plain) == []
    assert "refused the error: 410" in runtime.output()


async def test_a_connection_that_broke_is_opened_again(plain: RuntimeApi) -> None:
    assert await seen(plain) == []
    await until(lambda: plain.waiting)
    for task in plain._tasks:
        task.cancel()
    await until(lambda: plain.connections == 2 and plain.waiting)
    assert await seen(plain) == []


async def test_the_loop_ends_when_there_is_no_next_invocation(runtime: Runtime) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 500 No\r\nContent-Length: 8\r\n\r\nbad luck")
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        runtime.start(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
        assert await runtime.exit_code() == 1
    assert "returned no invocation: 500 bad luck" in runtime.output()


async def test_the_loop_ends_when_the_runtime_api_is_gone(
    api: RuntimeApi, runtime: Runtime
) -> None:
    runtime.start(api.address)
    await until(lambda: api.waiting)
    await api.close()
    assert await runtime.exit_code() == 1
    assert f"no invocation from {api.address}" in runtime.output()
