"""Calls of an application: bounds, repetitions and failures."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tailrace.protocols.action_cable.core.application import FAILED, Answer, Status
from tailrace.protocols.action_cable.core.effects import ApplicationCall
from tailrace.protocols.action_cable.in_process import application_client
from tailrace.protocols.action_cable.in_process.application_client import ApplicationClient
from tailrace.settings import Settings
from tests.support.application import SUCCESS, Application, Raw, Received

CALL = ApplicationCall("disconnect", b"{}", lambda _: ())
DONE = Answer(Status.SUCCESS)


@pytest.fixture
def application() -> Iterator[Application]:
    with Application() as application:
        yield application


@pytest.fixture
async def client(application: Application) -> AsyncIterator[ApplicationClient]:
    client = client_of(application.url)
    yield client
    await client.close()


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application_client, "PAUSE", 0.001)


def client_of(url: str, key: bytes | None = b"key", **more: Any) -> ApplicationClient:
    settings = Settings(rpc_url=url, **{"rpc_request_timeout": 60, **more})
    return ApplicationClient(settings, key)


async def received(application: Application, number: int) -> None:
    """Wait until the application has got so many calls."""
    async with asyncio.timeout(120):
        while len(application.received) < number:  # noqa: ASYNC110 - of another thread
            await asyncio.sleep(0.01)


async def test_a_call_names_its_session_and_proves_where_it_comes_from(
    application: Application, client: ApplicationClient
) -> None:
    assert await client.call("sid-1", CALL) == DONE
    (received,) = application.received
    assert received.headers["x-anycable-meta-sid"] == "sid-1"
    assert received.headers["x-anycable-meta-protov"] == "v1"
    assert received.headers["authorization"] == "Bearer key"


async def test_without_a_secret_a_call_has_no_key(application: Application) -> None:
    client = client_of(application.url, None)
    assert await client.call("s", CALL) == DONE
    assert "authorization" not in application.received[0].headers
    await client.close()


async def test_cookies_of_the_application_are_not_kept(
    application: Application, client: ApplicationClient
) -> None:
    cookie = Raw(200, b'{"status":1}', {"set-cookie": "user=ada"})
    application.script.append(lambda _: cookie)
    for _ in range(2):
        assert await client.call("s", CALL) == DONE
    assert "cookie" not in application.received[1].headers


@pytest.mark.parametrize(
    "answer",
    [
        Raw(500),
        Raw(401),
        Raw(302, headers={"location": "/_anycable/connect"}),
        Raw(200, b"no JSON"),
        {"status": 7},
        [],
        {"status": 1, "streams": [1]},
        {"status": 1, "transmissions": ["no JSON"]},
        {"status": 1, "transmissions": 7},
        {"status": 1, "env": {"cstate": {"a": 1}}},
        {"status": 1, "env": [1]},
        {"status": 1, "identifiers": "x" * 5000},
    ],
    ids=str,
)
async def test_a_bad_answer_is_a_failure_and_is_not_asked_for_again(
    application: Application,
    client: ApplicationClient,
    answer: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(application_client, "CABLE_CALL_ANSWER_BYTES", 4000)
    application.script.append(lambda _: answer)
    assert await client.call("s", CALL) == FAILED
    assert len(application.received) == 1
    assert "calling the application failed" in caplog.text
    assert await client.call("s", CALL) == DONE


async def test_an_error_of_the_application_is_logged(
    application: Application, client: ApplicationClient, caplog: pytest.LogCaptureFixture
) -> None:
    application.script.append(lambda _: {"error_msg": "no such room"})
    assert (await client.call("s", CALL)).status is Status.ERROR
    assert "no such room" in caplog.text


async def test_a_call_whose_connection_fails_is_repeated(
    application: Application, client: ApplicationClient
) -> None:
    application.script += [lambda _: None] * 3
    assert await client.call("s", CALL) == DONE
    assert len(application.received) == 4


async def test_an_application_that_is_not_there_is_called_only_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(application_client, "CABLE_CALL_RETRY_SECONDS", 0.01)
    with Application() as application:
        url = application.url
    client = client_of(url)
    assert await client.call("s", CALL) == FAILED
    await client.close()


async def test_an_application_that_is_late_has_failed(application: Application) -> None:
    answers = threading.Event()

    def late(_: Received) -> dict[str, Any]:
        answers.wait(120)
        return {"status": SUCCESS}

    application.script.append(late)
    client = client_of(application.url, rpc_request_timeout=0.05)
    assert await client.call("s", CALL) == FAILED
    assert len(application.received) <= 1, "it is not called again"
    answers.set()
    await client.close()


async def test_so_many_calls_are_under_way_at_once(application: Application) -> None:
    both = threading.Barrier(2)

    def together(_: Received) -> dict[str, Any]:
        both.wait(120)
        return {"status": SUCCESS}

    application.script += [together] * 8
    client = client_of(application.url, rpc_concurrency=2)
    answers = await asyncio.gather(*(client.call(str(i), CALL) for i in range(8)))
    assert answers == [DONE] * 8
    assert application.most_busy == 2
    await client.close()


async def test_a_call_waits_for_others_only_for_a_while(
    application: Application, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(application_client, "CABLE_CALL_WAIT_SECONDS", 0.01)
    answers = threading.Event()

    def late(_: Received) -> dict[str, Any]:
        answers.wait(120)
        return {"status": SUCCESS}

    application.script.append(late)
    client = client_of(application.url, rpc_concurrency=1)
    first = asyncio.create_task(client.call("1", CALL))
    await asyncio.sleep(0)
    assert await client.call("2", CALL) == FAILED
    assert "too many calls wait" in caplog.text
    answers.set()
    assert await first == DONE
    await client.close()


async def test_clients_that_have_gone_are_told_of_one_after_the_other(
    application: Application, client: ApplicationClient
) -> None:
    for number in range(5):
        client.call_later(str(number), CALL)
    await received(application, 5)
    sids = [each.headers["x-anycable-meta-sid"] for each in application.received]
    assert sids == ["0", "1", "2", "3", "4"]
    assert application.most_busy == 1


async def test_too_many_clients_that_have_gone_are_forgotten(
    application: Application, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(application_client, "CABLE_DISCONNECT_CALLS", 3)
    client = client_of(application.url)
    with caplog.at_level(logging.WARNING):
        for number in range(5):
            client.call_later(str(number), CALL)
    assert "is not told of a client" in caplog.text
    await received(application, 3)
    await client.close()
    sids = [each.headers["x-anycable-meta-sid"] for each in application.received]
    assert sids == ["2", "3", "4"]
