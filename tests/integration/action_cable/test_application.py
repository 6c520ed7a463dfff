"""Channels of an application: its answers on the wire, and what is called when."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from devtools.node import run_vitest
from devtools.server import Server
from tests.conftest import fail_with
from tests.support.application import FAILURE, Application, Raw
from tests.support.cable import (
    SECONDS,
    SECRET,
    SETTINGS,
    BroadcastClient,
    CableClient,
    on_cable,
    pubsub,
    signed,
    token,
)

CLIENTS = Path(__file__).parent / "application_clients"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Application, Server]]:
    with Application() as application:
        settings = {
            **SETTINGS,
            "TAILRACE_RPC_URL": application.url,
            "TAILRACE_RPC_REQUEST_TIMEOUT": "60",
            "TAILRACE_RPC_HEADERS": "cookie, x-user",
        }
        with Server(tmp_path_factory.mktemp("application") / "data", settings) as server:
            yield application, server


@pytest.fixture
def application(running: tuple[Application, Server]) -> Application:
    running[0].received.clear()
    return running[0]


@pytest.fixture
def server(running: tuple[Application, Server]) -> Server:
    return running[1]


@pytest.fixture
def broadcast(server: Server) -> Iterator[BroadcastClient]:
    with httpx.Client(base_url=server.url, trust_env=False, timeout=20) as client:
        yield BroadcastClient(client)


@pytest.fixture
async def cable(server: Server, application: Application) -> AsyncIterator[CableClient]:
    """A client that the application has accepted."""
    async with connected(server) as cable:
        yield cable
    await told(application, "disconnect")


def connected(server: Server, **more: Any) -> contextlib.AbstractAsyncContextManager[CableClient]:
    return on_cable(server, headers={"cookie": "user=ada"}, **more)


def room(name: str) -> str:
    return json.dumps({"channel": "ChatChannel", "room": name})


async def perform(cable: CableClient, identifier: str, action: str, **more: Any) -> None:
    await cable.say("message", identifier, data=json.dumps({"action": action, **more}))


async def told(application: Application, method: str, number: int = 1) -> list[dict[str, Any]]:
    """The bodies of the calls of a method, as soon as there are so many."""
    async with asyncio.timeout(SECONDS):
        while len(application.calls(method)) < number:  # noqa: ASYNC110 - of another thread
            await asyncio.sleep(0.01)
    return application.calls(method)


async def left(application: Application, identifiers: str) -> dict[str, Any]:
    """The body of the call for a client that has gone. Those of earlier tests may come late."""
    async with asyncio.timeout(SECONDS):
        while True:
            for each in application.calls("disconnect"):
                if each["identifiers"] == identifiers:
                    return each
            await asyncio.sleep(0.01)


async def closed(cable: CableClient) -> int | None:
    await asyncio.wait_for(cable.socket.wait_closed(), SECONDS)
    return cable.socket.close_code


# Connecting


async def test_the_application_decides_who_may_connect(
    server: Server, application: Application
) -> None:
    async with on_cable(
        server, "a=1", headers={"cookie": "user=ada", "x-user": "7", "x-other": "8"}
    ) as cable:
        assert cable.welcome == {"type": "welcome", "sid": cable.sid}
        (received,) = application.received
    env = received.body["env"]
    assert env["url"] == f"http://127.0.0.1:{server.port}/cable?a=1"
    headers = {"cookie": "user=ada", "x-user": "7", "REMOTE_ADDR": "127.0.0.1"}
    assert env["headers"] == headers
    assert received.headers["x-anycable-meta-sid"] == cable.sid
    await told(application, "disconnect")


async def test_a_client_that_the_application_refuses_gets_the_reason(
    server: Server, application: Application
) -> None:
    async with on_cable(server, headers={"cookie": "user=eve"}) as cable:
        told_why = {"type": "disconnect", "reason": "unauthorized", "reconnect": False}
        assert cable.welcome == told_why
        assert await closed(cable) == 1000
    assert application.calls("disconnect") == []


async def test_a_client_reconnects_if_the_application_fails(
    server: Server, application: Application
) -> None:
    application.script.append(lambda _: Raw(500))
    async with connected(server) as cable:
        told_why = {"type": "disconnect", "reason": "server_restart", "reconnect": True}
        assert cable.welcome == told_why
        assert await closed(cable) == 1001


async def test_pages_of_other_hosts_cannot_use_cookies(
    server: Server, application: Application
) -> None:
    async with on_cable(server, headers={"origin": server.url}) as cable:
        assert cable.welcome["type"] == "welcome"
    with pytest.raises(InvalidStatus) as refused:
        async with on_cable(server, headers={"origin": "https://elsewhere.example"}):
            pass
    assert refused.value.response.status_code == 403
    await told(application, "disconnect")


async def test_a_client_with_a_token_is_known_without_a_call(
    server: Server, application: Application
) -> None:
    async with on_cable(server, f"jid={token('ada')}") as cable:
        assert cable.welcome["type"] == "welcome"
        await cable.subscribe(room("a"))
        (called,) = application.calls("command")
        assert called["connection_identifiers"] == "ada"
    assert application.calls("connect") == []
    assert (await left(application, "ada"))["subscriptions"] == [room("a")]


async def test_the_application_is_told_of_a_client_that_has_gone(
    server: Server, application: Application
) -> None:
    async with on_cable(server, headers={"cookie": "user=grace"}) as cable:
        await cable.subscribe(room("a"))
    gone = await left(application, '{"user": "grace"}')
    assert gone["env"]["cstate"] == {"user": "grace"}
    state = {"count": "0", "$w": "rooms/a", "$p": "rooms/a"}
    assert json.loads(gone["env"]["istate"][room("a")]) == state


async def test_sessions_of_an_identity_are_disconnected(
    cable: CableClient, broadcast: BroadcastClient
) -> None:
    payload = {"identifier": '{"user": "ada"}', "reconnect": False}
    assert broadcast.post({"command": "disconnect", "payload": payload}).status_code == 201
    assert (await cable.hear())["reason"] == "remote"


# Commands


async def test_a_channel_gets_what_is_broadcast_to_its_streams(
    cable: CableClient, broadcast: BroadcastClient
) -> None:
    await cable.subscribe(room("general"))
    broadcast("rooms/general", '"hello"')
    frame = await cable.hear()
    assert (frame["identifier"], frame["message"]) == (room("general"), "hello")
    assert (frame["stream_id"], frame["offset"]) == ("rooms/general", 1)


async def test_channels_that_are_served_here_need_no_call(
    cable: CableClient, application: Application
) -> None:
    await cable.subscribe(signed("chat/1"))
    await cable.subscribe(pubsub("open/1"))
    for refused in (pubsub("private"), "no JSON", "[]"):
        await cable.say("subscribe", refused)
        assert (await cable.hear())["type"] == "reject_subscription"
    assert application.calls("command") == []


async def test_the_application_rejects_subscriptions(cable: CableClient) -> None:
    await cable.say("subscribe", room("secret"))
    assert await cable.hear() == {"type": "reject_subscription", "identifier": room("secret")}


@pytest.mark.parametrize(
    "answer",
    [
        Raw(500),
        Raw(302, headers={"location": "/elsewhere"}),
        Raw(200, b"no JSON"),
        {"status": 0, "error_msg": "no such room"},
        {"status": FAILURE},
    ],
    ids=["status 500", "a redirect", "no JSON", "an error", "a refusal without a frame"],
)
async def test_a_subscription_is_rejected_if_the_application_fails(
    cable: CableClient, application: Application, answer: Any
) -> None:
    application.script.append(lambda _: answer)
    await cable.say("subscribe", room("a"))
    assert await cable.hear() == {"type": "reject_subscription", "identifier": room("a")}
    await cable.subscribe(room("a"))
    assert len(application.calls("command")) == 2


async def test_state_goes_to_the_application_with_the_next_call(cable: CableClient) -> None:
    await cable.subscribe(room("state"))
    for count in (1, 2):
        await perform(cable, room("state"), "echo", text="x")
        message = {"echo": "x", "user": "ada", "count": count}
        assert await cable.hear() == {"identifier": room("state"), "message": message}


async def test_an_action_without_a_subscription_is_ignored(
    cable: CableClient, application: Application
) -> None:
    await perform(cable, room("never"), "echo", text="x")
    await cable.subscribe(room("ever"))
    await cable.say("message", room("ever"), data={"action": "echo"})
    await cable.say("ping")
    assert (await cable.hear())["type"] == "pong"
    assert [each["command"] for each in application.calls("command")] == ["subscribe"]


async def test_actions_change_the_streams_of_a_channel(
    cable: CableClient, broadcast: BroadcastClient
) -> None:
    channel = room("changing")
    await cable.subscribe(channel)
    for action, stream, followed in (
        ("follow", "b", ["rooms/changing", "b"]),
        ("unfollow", "rooms/changing", ["b"]),
        ("only", "c", ["c"]),
    ):
        await perform(cable, channel, action, stream=stream)
        await cable.say("ping")
        assert (await cable.hear())["type"] == "pong"
        for each in ("c", "b", "rooms/changing"):
            broadcast(each, json.dumps(f"{action}: {each}"))
        heard = await cable.messages(len(followed))
        assert sorted(heard) == sorted(f"{action}: {each}" for each in followed)


async def test_unsubscribing_ends_the_streams_whatever_the_application_says(
    cable: CableClient, application: Application, broadcast: BroadcastClient
) -> None:
    await cable.subscribe(room("left"))
    await perform(cable, room("left"), "follow", stream="other")
    application.script.append(lambda _: Raw(500))
    await cable.say("unsubscribe", room("left"))
    await cable.say("ping")
    assert (await cable.hear())["type"] == "pong"
    broadcast("rooms/left", "1")
    broadcast("other", "1")
    await cable.subscribe(room("left"))
    broadcast("rooms/left", "2")
    assert (await cable.hear())["message"] == 2


async def test_the_application_disconnects_a_client(cable: CableClient) -> None:
    await cable.subscribe(room("a"))
    await perform(cable, room("a"), "close")
    assert await cable.hear() == {"type": "disconnect", "reason": "remote", "reconnect": True}
    assert await closed(cable) == 1000


async def test_the_history_of_all_streams_is_confirmed_once(
    cable: CableClient, broadcast: BroadcastClient
) -> None:
    for stream in ("rooms/past", "past"):
        broadcast(stream, json.dumps(stream))
    await cable.subscribe(room("past"))
    await perform(cable, room("past"), "follow", stream="past")
    await cable.say("history", room("past"), history={"since": 1})
    assert await cable.messages(2) == ["rooms/past", "past"]
    assert await cable.hear() == {"type": "confirm_history", "identifier": room("past")}
    for number in (1, 2):
        broadcast("past", str(number))
        assert (await cable.hear())["message"] == number
    await perform(cable, room("past"), "only", stream="__ds/none")
    await cable.say("history", room("past"), history={"since": 1})
    assert (await cable.hear())["type"] == "confirm_history"


async def test_clients_of_a_channel_whisper_and_are_present(
    server: Server, cable: CableClient
) -> None:
    channel = room("present")
    async with connected(server) as other:
        for each in (cable, other):
            await each.subscribe(channel)
        await other.say("whisper", channel, data="psst")
        assert await cable.hear() == {"identifier": channel, "message": "psst"}
        await perform(other, channel, "join")
        for each in (cable, other):
            joined = {"id": "ada", "info": {"name": "ada"}, "type": "join"}
            assert (await each.hear())["message"] == joined
        await cable.say("presence", channel)
        assert (await cable.hear())["message"]["total"] == 1
        await perform(other, channel, "leave")
        assert (await cable.hear())["message"] == {"id": "ada", "type": "leave"}


async def test_a_session_is_resumed_without_subscribing_again(
    server: Server, application: Application, broadcast: BroadcastClient
) -> None:
    async with connected(server) as cable:
        await cable.subscribe(room("kept"))
        await perform(cable, room("kept"), "echo", text="x")
        await cable.hear()
        sid = cable.sid
    await told(application, "disconnect")
    async with connected(server, query=f"sid={sid}") as cable:
        assert cable.welcome["restored_ids"] == [room("kept")]
        broadcast("rooms/kept", "1")
        assert (await cable.hear())["message"] == 1
        await perform(cable, room("kept"), "echo", text="x")
        assert (await cable.hear())["message"]["count"] == 2
    async with on_cable(server, f"sid={sid}", headers={"cookie": "user=bob"}) as stranger:
        assert "restored" not in stranger.welcome
    subscribed = [each for each in application.calls("command") if each["command"] == "subscribe"]
    assert len(subscribed) == 1


def test_stock_clients(server: Server, tmp_path: Path) -> None:
    env = {"SERVER_URL": server.url, "SECRET": SECRET}
    tests = run_vitest(CLIENTS, tmp_path / "report.json", env)
    fail_with(test for test in tests if test.status != "passed")
    assert len(tests) == 6
