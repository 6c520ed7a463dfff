"""Action Cable on the AWS path, by stock clients and by one that inspects frames."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from devtools.local_aws.stack import AwsLocal
from devtools.node import run_vitest
from devtools.processes import ROOT
from tests.conftest import fail_with
from tests.e2e.private import bearer
from tests.support.cable import (
    API_KEY,
    KEY,
    SECONDS,
    SECRET,
    CableClient,
    on_cable,
    pubsub,
    signed,
    token,
)
from tests.support.cable_load import hear_all

CLIENTS = ROOT / "tests/integration/action_cable/clients"
PLAIN: dict[str, Any] = {"timeout": SECONDS, "trust_env": False}


@pytest.fixture
def aws(closed_local: AwsLocal) -> AwsLocal:
    return closed_local


@pytest.fixture
def stream() -> str:
    return f"open/{time.time_ns()}"


def broadcast(aws: AwsLocal, stream: str, data: str, **meta: Any) -> None:
    asked = {"stream": stream, "data": data, "meta": meta}
    headers = {"authorization": f"Bearer {KEY}"}
    answer = httpx.post(f"{aws.url}/_broadcast", json=asked, headers=headers, **PLAIN)
    assert answer.status_code == 201, answer.text


def delete(aws: AwsLocal, stream: str) -> None:
    url = f"{aws.url}/v1/stream/{stream}"
    assert httpx.delete(url, headers=bearer("admin"), **PLAIN).status_code == 204


def members(aws: AwsLocal, stream: str) -> list[str]:
    headers = {"authorization": f"Bearer {API_KEY}"}
    answer = httpx.get(f"{aws.url}/api/presence/{stream}/users", headers=headers, **PLAIN)
    return [each["id"] for each in answer.json()["records"]]


def read(aws: AwsLocal, stream: str) -> str:
    return httpx.get(f"{aws.url}/v1/stream/{stream}?offset=-1", **PLAIN).text


async def resumed(aws: AwsLocal, stream: str, place: dict[str, Any]) -> list[Any]:
    """The frames for a client that reconnects with its position, up to the end of history."""
    async with on_cable(aws) as cable:
        await cable.subscribe(pubsub(stream), history={"streams": {stream: place}})
        heard = []
        while (frame := await cable.hear()).get("type") != "confirm_history":
            heard.append(frame["message"])
        return heard


def test_stock_clients(aws: AwsLocal, tmp_path: Path) -> None:
    env = {"SERVER_URL": aws.url, "SECRET": SECRET, "RESTORES": "false"}
    tests = run_vitest(CLIENTS, tmp_path / "report.json", env)
    fail_with(test for test in tests if test.status != "passed")
    assert len(tests) > 30


async def test_the_bytes_that_were_appended_are_delivered(aws: AwsLocal, stream: str) -> None:
    given = ['{"b" : 1.0, "a":"<é>"}', "12345678901234567890", '"\\u00e9"', "[1, 2]", "plain"]
    kept = [*given[:-1], '"plain"']
    async with on_cable(aws) as cable:
        await cable.subscribe(pubsub(stream))
        for message in given:
            broadcast(aws, stream, message)
        frames = [await cable.hear_text() for _ in given]
    for message, frame in zip(kept, frames, strict=True):
        assert f'"message":{message},"stream_id"' in frame
    assert read(aws, stream) == f"[{','.join(kept)}]"


async def test_excluded_client_gets_nothing_and_others_get_the_type(
    aws: AwsLocal, stream: str
) -> None:
    async with on_cable(aws) as one, on_cable(aws) as two:
        for each in (one, two):
            await each.subscribe(pubsub(stream))
        broadcast(aws, stream, "1", exclude_socket=one.sid, broadcast_type="custom")
        broadcast(aws, stream, "2")
        assert (await one.hear())["message"] == 2
        heard = [await two.hear() for _ in range(2)]
        assert [(each["message"], each.get("type")) for each in heard] == [(1, "custom"), (2, None)]
        broadcast(aws, stream, "3", transient=True)
        assert await one.hear() == {"identifier": pubsub(stream), "message": 3}


async def test_subscribers_are_told_of_a_deletion(aws: AwsLocal, stream: str) -> None:
    identifier = pubsub(stream)
    async with on_cable(aws) as cable, on_cable(aws, protocols=("actioncable-v1-json",)) as plain:
        for each in (cable, plain):
            await each.subscribe(identifier)
        for message in (1, 2):
            broadcast(aws, stream, str(message))
            for each in (cable, plain):
                assert await each.messages(1) == [message]
            delete(aws, stream)
            assert await cable.hear() == {"type": "deleted", "identifier": identifier}


async def test_connections_must_come_through_cloudfront(aws: AwsLocal) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with connect(aws.cable.url, proxy=None):
            pass
    assert refused.value.response.status_code == 403


async def test_rejected_client_gets_the_reason(aws: AwsLocal) -> None:
    for shown, reason in ((token(lasting=-9), "token_expired"), ("x.y.z", "unauthorized")):
        async with on_cable(aws, f"jid={shown}") as cable:
            assert cable.welcome == {"type": "disconnect", "reason": reason, "reconnect": False}
            await asyncio.wait_for(cable.socket.wait_closed(), SECONDS)


async def test_a_session_is_resumed_only_by_the_identity_of_its_token(
    aws: AwsLocal,
) -> None:
    identifier = signed(f"private/{time.time_ns()}")
    jid = f"jid={token('ada')}"
    async with on_cable(aws, jid) as cable:
        await cable.subscribe(identifier)
        sid = cable.sid
    for stranger in ("", f"jid={token('eve')}"):
        async with on_cable(aws, f"{stranger}&sid={sid}") as cable:
            assert "restored" not in cable.welcome
    async with on_cable(aws, f"{jid}&sid={sid}") as cable:
        assert cable.welcome["restored_ids"] == [identifier]
        assert cable.sid != sid


async def test_pings_come_by_themselves(aws: AwsLocal) -> None:
    begun = int(time.time())
    async with on_cable(aws) as cable:
        for _ in range(2):
            ping = json.loads(await asyncio.wait_for(cable.socket.recv(), SECONDS))
            assert ping["type"] == "ping"
            assert begun <= ping["message"] <= time.time() + 1


async def test_unnoticed_drop_is_detected(aws: AwsLocal, stream: str) -> None:
    """API Gateway may never say that a connection is gone."""
    aws.cable.lose_disconnects = True
    try:
        async with on_cable(aws) as one, on_cable(aws) as two:
            for each in (one, two):
                await each.subscribe(pubsub(stream))
            await two.say("join", pubsub(stream), presence={"id": "bob", "info": {}})
            assert (await one.hear())["message"]["type"] == "join"
            assert members(aws, stream) == ["bob"]
            aws.cable.drop(two.sid)
            assert (await one.hear())["message"] == {"id": "bob", "type": "leave"}
    finally:
        aws.cable.lose_disconnects = False


@pytest.mark.parametrize("status", [429, 500])
async def test_a_frame_that_api_gateway_fails_with_is_not_lost(
    aws: AwsLocal, stream: str, status: int
) -> None:
    """The frame is sent again, or the client is disconnected and reconnects to get it."""
    # Without pings: one of them must not be the frame that fails.
    async with on_cable(aws, "pi=0") as cable:
        await cable.subscribe(pubsub(stream))
        broadcast(aws, stream, "1")
        frame = await cable.hear()
        place = {"epoch": frame["epoch"], "offset": frame["offset"]}
        failing, failed = [status], asyncio.Event()
        loop = asyncio.get_running_loop()

        def fail(method: str, connection: str) -> int | None:
            if method != "POST" or connection != cable.sid or not failing:
                return None
            loop.call_soon_threadsafe(failed.set)
            return failing.pop()

        aws.cable.faults = fail
        try:
            broadcast(aws, stream, "2")
            await asyncio.wait_for(failed.wait(), SECONDS)
        finally:
            aws.cable.faults = lambda _, __: None
        broadcast(aws, stream, "3")
        if status == 429:
            heard = await cable.messages(2)
        else:
            heard = await messages_until_closed(cable)
    place = {**place, "offset": place["offset"] + len(heard)}
    assert heard + await resumed(aws, stream, place) == [2, 3]


async def messages_until_closed(cable: CableClient) -> list[Any]:
    heard: list[Any] = []
    with contextlib.suppress(ConnectionClosed):
        while True:
            frame = await cable.hear()
            if "stream_id" in frame:
                heard.append(frame["message"])
    return heard


def test_events_end_and_go_on(aws: AwsLocal, stream: str) -> None:
    broadcast(aws, stream, "1")
    url = f"{aws.url}/events?stream={stream}"
    first = httpx.get(f"{url}&history_since=1", **PLAIN)
    assert first.headers["content-type"].startswith("text/event-stream")
    (id_,) = [line[4:] for line in first.text.splitlines() if line.startswith("id: ")]
    broadcast(aws, stream, "2")
    again = httpx.get(url, headers={"last-event-id": id_}, **PLAIN)
    assert "data: 2\n" in again.text
    assert "data: 1\n" not in again.text


async def test_clients_that_drop_and_come_back_miss_nothing(aws: AwsLocal, stream: str) -> None:
    batches = [[stream] * random.choice((1, 1, 4)) for _ in range(8)]
    listeners = await hear_all(aws, [stream], 6, batches, 2)
    assert {one.offset for one in listeners} == {sum(map(len, batches))}
    assert [fault for one in listeners for fault in one.faults] == []
