"""The stand-in for a WebSocket API does what API Gateway does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import boto3
import httpx
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from botocore.exceptions import ClientError
from websockets import ConnectionClosed, InvalidStatus, Subprotocol
from websockets.asyncio.client import connect

from devtools.local_aws.environments import Configuration
from devtools.local_aws.events import Request
from devtools.local_aws.functions import Function
from devtools.local_aws.sigv4 import check_signature
from devtools.local_aws.websocket_api import WebSocketApi
from devtools.local_aws.websocket_events import new_id
from tests.integration.devtools.local_aws.deploying import SECONDS, deployed

HANDLER = """
    import json, os, time
    def handler(event, context):
        with open(os.environ["EVENTS"], "a") as events:
            events.write(json.dumps(event) + "\\n")
        query = event.get("queryStringParameters", {})
        asked = json.loads(event.get("body") or query.get("ask", "{}"))
        while not os.path.exists(asked.get("until", "/")):
            time.sleep(0.01)
        if "raise" in asked:
            raise KeyError(asked["raise"])
        return asked.get("answer", {"statusCode": 200, "body": "not for the client"})
"""
"""Answers as it is asked to, in a message or in the query of the handshake."""


class Running:
    """An API, its function, and what the function has seen."""

    def __init__(self, api: WebSocketApi, events: Path) -> None:
        self.api = api
        self._events = events
        self._client: Any = None

    def asking(self, **asked: object) -> str:
        return f"{self.api.url}?{httpx.QueryParams(ask=json.dumps(asked))}"

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        lines = self._events.read_text().splitlines() if self._events.exists() else []
        found = [json.loads(line) for line in lines]
        return [each for each in found if kind in ("", each["requestContext"]["eventType"])]

    async def event(self, kind: str) -> dict[str, Any]:
        await until(lambda: bool(self.events(kind)))
        return self.events(kind)[-1]

    async def call(self, operation: str, connection_id: str, **more: Any) -> Any:
        """The answer of the management API, or its error's status and name."""
        if self._client is None:
            self._client = await asyncio.to_thread(manager, self.api)
        try:
            return await asyncio.to_thread(
                getattr(self._client, operation), ConnectionId=connection_id, **more
            )
        except ClientError as error:
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            return status, error.response["Error"]["Code"]

    async def post(self, connection_id: str, data: bytes) -> Any:
        answer = await self.call("post_to_connection", connection_id, Data=data)
        return answer if isinstance(answer, tuple) else answer["ResponseMetadata"]["HTTPStatusCode"]


def manager(api: WebSocketApi, **changes: str) -> Any:
    settings = {
        "endpoint_url": f"{api.endpoint}/{api.stage}",
        "region_name": "us-east-1",
        "aws_access_key_id": "test",
        "aws_secret_access_key": "test",
    }
    return boto3.client(
        "apigatewaymanagementapi",
        **{**settings, **changes},
        config=Config(retries={"total_max_attempts": 1}),
    )


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running(folder: Path, **settings: Any) -> AsyncIterator[Running]:
    events = folder / "events"
    async with deployed(folder, HANDLER, environment={"EVENTS": str(events)}) as url:
        api = await WebSocketApi(url.function, **settings).start()
        try:
            yield Running(api, events)
        finally:
            await api.close()


async def test_a_handshake_arrives_as_an_event(tmp_path: Path) -> None:
    added = {"x-tailrace-origin": "secret"}
    async with running(tmp_path, headers=added) as here:
        given = [("X-Two", "a"), ("X-Two", "b"), ("X-Tailrace-Origin", "forged")]
        target = f"{here.api.url}?jid=a%2Fb%20c&jid=d&empty="
        async with connect(target, additional_headers=given, user_agent_header="me/1"):
            (event,) = here.events()
            (connection_id,) = here.api.connections
        context, headers = event["requestContext"], event["headers"]
        assert (context["routeKey"], context["eventType"]) == ("$connect", "CONNECT")
        assert context["connectionId"] == connection_id
        assert len(connection_id) == 16
        assert connection_id.endswith("=")
        assert context["stage"] == "cable"
        assert context["identity"] == {"sourceIp": "127.0.0.1", "userAgent": "me/1"}
        assert 0 <= context["requestTimeEpoch"] - context["connectedAt"] < 600_000
        assert context["requestId"] == context["extendedRequestId"]
        assert "messageId" not in context
        assert headers["Host"] == context["domainName"] == here.api.domain
        assert headers["Sec-WebSocket-Version"] == "13"
        assert headers["X-Two"] == "b"
        assert event["multiValueHeaders"]["X-Two"] == ["a", "b"]
        assert headers["x-tailrace-origin"] == "secret"
        assert not {"X-Tailrace-Origin", "Upgrade", "Connection"} & headers.keys()
        assert event["queryStringParameters"] == {"jid": "d", "empty": ""}
        assert event["multiValueQueryStringParameters"] == {"jid": ["a/b c", "d"], "empty": [""]}
        assert event["isBase64Encoded"] is False


async def test_a_handshake_without_a_query_has_no_parameters(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        async with connect(here.api.url):
            (event,) = here.events()
        assert not {"queryStringParameters", "multiValueQueryStringParameters"} & event.keys()


@pytest.mark.parametrize(
    ("more", "chosen"),
    [
        ({"headers": {"sec-websocket-protocol": "two"}}, "two"),
        ({"multiValueHeaders": {"Sec-WebSocket-Protocol": ["one"]}}, "one"),
        ({}, None),
    ],
)
async def test_the_function_chooses_the_subprotocol(
    tmp_path: Path, more: dict[str, Any], chosen: str | None
) -> None:
    offered = [Subprotocol("one"), Subprotocol("two")]
    async with running(tmp_path) as here:
        target = here.asking(answer={"statusCode": 200, **more})
        async with connect(target, subprotocols=offered) as client:
            assert client.subprotocol == chosen
            assert here.events()[0]["headers"]["Sec-WebSocket-Protocol"] == "one, two"


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"answer": {"statusCode": 401}}, 401),
        ({"raise": "k"}, 502),
        ({"answer": None}, 502),
        ({"answer": {"body": "no status"}}, 502),
    ],
)
async def test_the_function_refuses_a_handshake(
    tmp_path: Path, asked: dict[str, Any], status: int
) -> None:
    async with running(tmp_path) as here:
        with pytest.raises(InvalidStatus) as refusal:
            await connect(here.asking(**asked))
        assert refusal.value.response.status_code == status
        assert here.api.connections == []
        # Nobody hears of its end: the first end that is heard of is another one's.
        async with connect(here.api.url):
            (accepted,) = here.api.connections
        context = (await here.event("DISCONNECT"))["requestContext"]
        assert context["connectionId"] == accepted
        assert len(here.events("DISCONNECT")) == 1


async def test_another_path_never_reaches_the_function(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        with pytest.raises(InvalidStatus) as refusal:
            await connect(here.api.url + "/more")
        assert refusal.value.response.status_code == 403
        assert here.api.function is not None
        assert here.api.function.invocations == 0


async def test_a_connection_is_there_only_after_the_function_has_answered(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        await here.call("get_connection", "unknown")
        go = tmp_path / "go"
        connecting = asyncio.ensure_future(_opened(here.asking(until=str(go))))
        connection_id = (await here.event("CONNECT"))["requestContext"]["connectionId"]
        assert await here.post(connection_id, b"early") == (410, "GoneException")
        assert not connecting.done()
        go.touch()
        client = await connecting
        assert await here.post(connection_id, b"late") == 200
        assert await client.recv() == "late"
        await client.close()


async def _opened(target: str) -> Any:
    return await connect(target)


async def test_a_client_that_disconnects_during_the_handshake_is_removed(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        go = tmp_path / "go"
        connecting = asyncio.create_task(_opened(here.asking(until=str(go))))
        await here.event("CONNECT")
        connecting.cancel()
        await asyncio.wait((connecting,))
        go.touch()
        left = (await here.event("DISCONNECT"))["requestContext"]
        assert left["disconnectStatusCode"] == 1006
        assert left["connectionId"] == here.events()[0]["requestContext"]["connectionId"]


async def test_messages_do_not_wait_for_each_other(tmp_path: Path) -> None:
    async with running(tmp_path) as here, connect(here.api.url) as client:
        (connection_id,) = here.api.connections
        await client.send('{"until": "/never"}')
        await client.send('{"raise": "k"}')
        told = json.loads(await client.recv())
        await until(lambda: len(here.events("MESSAGE")) == 2)
        said, failed = here.events("MESSAGE")
        if "raise" in said["body"]:
            said, failed = failed, said
        context = failed["requestContext"]
        assert told == {
            "message": "Internal server error",
            "connectionId": connection_id,
            "requestId": context["requestId"],
        }
        assert context["routeKey"] == "$default"
        assert context["messageId"] != said["requestContext"]["messageId"]
        assert context["connectionId"] == connection_id
        assert said.keys() == {"requestContext", "body", "isBase64Encoded"}
        assert said["body"] == '{"until": "/never"}'


async def test_an_answer_is_for_the_api_alone(tmp_path: Path) -> None:
    async with running(tmp_path) as here, connect(here.api.url) as client:
        await client.send("{}")
        await client.send('{"answer": {"statusCode": 500}}')
        assert json.loads(await client.recv())["message"] == "Internal server error"
        await until(lambda: len(here.events("MESSAGE")) == 2)
        assert await here.post(here.api.connections[0], b"later") == 200
        assert await client.recv() == "later"


async def test_a_message_has_limits(tmp_path: Path) -> None:
    frame = f'{{"": "{"x" * ((32 << 10) - 8)}"}}'
    assert len(frame) == 32 << 10
    async with running(tmp_path) as here:
        async with connect(here.api.url) as client:
            await client.send([frame, *[" " * (32 << 10)] * 3])
            assert len((await here.event("MESSAGE"))["body"]) == 128 << 10
            await client.send([*[" " * (32 << 10)] * 4, " "])
            assert await _closed(client) == 1009
        async with connect(here.api.url) as client:
            await client.send(frame + " ")
            assert await _closed(client) == 1009
        async with connect(here.api.url) as client:
            await client.send(b"{}")
            assert await _closed(client) == 1003
        assert len(here.events("MESSAGE")) == 1


async def _closed(client: Any) -> int | None:
    with pytest.raises(ConnectionClosed) as closed:
        await asyncio.wait_for(client.recv(), SECONDS)
    assert isinstance(closed.value, ConnectionClosed)
    return closed.value.rcvd.code if closed.value.rcvd else None


async def test_the_function_hears_of_the_end(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        client = await connect(here.api.url)
        (connection_id,) = here.api.connections
        await client.close(4001, "enough")
        context = (await here.event("DISCONNECT"))["requestContext"]
        assert context["routeKey"] == "$disconnect"
        assert context["connectionId"] == connection_id
        assert context["disconnectStatusCode"] == 4001
        assert context["disconnectReason"] == "enough"
        assert here.api.connections == []
        assert await here.post(connection_id, b"x") == (410, "GoneException")


async def test_the_function_may_never_hear_of_the_end(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        here.api.lose_disconnects = True
        async with connect(here.api.url):
            pass
        await until(lambda: here.api.connections == [])
        async with connect(here.api.url):
            kinds = [each["requestContext"]["eventType"] for each in here.events()]
            assert kinds == ["CONNECT", "CONNECT"]


async def test_a_connection_can_be_cut(tmp_path: Path) -> None:
    async with running(tmp_path) as here, connect(here.api.url) as client:
        here.api.drop(here.api.connections[0])
        assert await _closed(client) is None
        context = (await here.event("DISCONNECT"))["requestContext"]
        assert context["disconnectStatusCode"] == 1006


async def test_a_connection_has_its_time(tmp_path: Path) -> None:
    async with running(tmp_path, lifetime=0.3) as here, connect(here.api.url) as client:
        assert await _closed(client) == 1001
        context = (await here.event("DISCONNECT"))["requestContext"]
        assert context["disconnectStatusCode"] == 1001


async def test_closing_the_api_ends_all_waiting_calls(tmp_path: Path) -> None:
    async with running(tmp_path) as here:
        client = await connect(here.api.url)
        connecting = asyncio.ensure_future(_opened(here.asking(until="/never")))
        await until(lambda: len(here.events("CONNECT")) == 2)
        async with asyncio.timeout(SECONDS / 2):
            await here.api.close()
        assert await _closed(client) == 1001
        with pytest.raises(InvalidStatus, match="503"):
            await connecting
        assert here.events("DISCONNECT") == []


async def test_posts_arrive_in_the_order_of_their_answers(tmp_path: Path) -> None:
    async with running(tmp_path) as here, connect(here.api.url) as client:
        (connection_id,) = here.api.connections
        for number in range(30):
            assert await here.post(connection_id, f"é {number}".encode()) == 200
        assert [await client.recv() for _ in range(30)] == [f"é {each}" for each in range(30)]
        several = [here.post(connection_id, b"%d" % number) for number in range(30)]
        assert await asyncio.gather(*several) == [200] * 30
        assert {await client.recv() for _ in range(30)} == {str(each) for each in range(30)}
        assert here.api.posts == 60


async def test_a_connection_is_described_and_ended(tmp_path: Path) -> None:
    async with running(tmp_path) as here, connect(here.api.url) as client:
        (connection_id,) = here.api.connections
        told = await here.call("get_connection", connection_id)
        assert told["Identity"]["SourceIp"] == "127.0.0.1"
        assert told["ConnectedAt"] <= told["LastActiveAt"]
        ended = await here.call("delete_connection", connection_id)
        assert ended["ResponseMetadata"]["HTTPStatusCode"] == 204
        assert await _closed(client) == 1000
        assert await here.call("delete_connection", connection_id) == (410, "GoneException")
        assert (await here.event("DISCONNECT"))["requestContext"]["disconnectStatusCode"] == 1000


async def test_a_post_has_a_limit(tmp_path: Path) -> None:
    async with running(tmp_path) as here, connect(here.api.url) as client:
        (connection_id,) = here.api.connections
        assert await here.post(connection_id, b"x" * (128 << 10)) == 200
        assert await client.recv() == "x" * (128 << 10)
        too_large = await here.post(connection_id, b"x" * ((128 << 10) + 1))
        assert too_large == (413, "PayloadTooLargeException")


async def test_calls_can_be_made_to_fail(tmp_path: Path) -> None:
    async with running(tmp_path) as here, connect(here.api.url) as client:
        (connection_id,) = here.api.connections
        seen: list[tuple[str, str]] = []
        statuses: list[int | None] = [429, 500, 410, None]

        def fault(method: str, to: str) -> int | None:
            seen.append((method, to))
            return statuses.pop(0)

        here.api.faults = fault
        assert await here.post(connection_id, b"x") == (429, "LimitExceededException")
        assert (await here.post(connection_id, b"x"))[0] == 500
        assert await here.post(connection_id, b"x") == (410, "GoneException")
        assert await here.post(connection_id, b"at last") == 200
        assert await client.recv() == "at last"
        assert seen == [("POST", connection_id)] * 4


async def test_calls_have_to_be_signed(tmp_path: Path) -> None:
    function = Function(Configuration(name="unused", code=tmp_path), tmp_path)
    api = await WebSocketApi(function).start()
    here = Running(api, tmp_path / "events")
    try:
        for changes, code in [
            ({"aws_secret_access_key": "wrong"}, "InvalidSignatureException"),
            ({"aws_access_key_id": "wrong"}, "UnrecognizedClientException"),
            ({"region_name": "eu-west-1"}, "InvalidSignatureException"),
            ({"aws_session_token": "temporary"}, "GoneException"),
        ]:
            here._client = manager(api, **changes)
            assert (await here.post(new_id(), b"x"))[1] == code
        async with httpx.AsyncClient(trust_env=False) as client:
            answer = await client.post(f"{api.endpoint}/cable/@connections/x", content=b"x")
        assert answer.status_code == 403
        assert answer.headers["x-amzn-errortype"] == "MissingAuthenticationTokenException"
        assert api.posts == 1
    finally:
        await api.close()


def test_a_signature_is_for_one_request_and_a_short_time(monkeypatch: pytest.MonkeyPatch) -> None:
    target = f"/cable/@connections/{quote(new_id())}"
    made = AWSRequest("POST", f"http://127.0.0.1:1{target}", {"Host": "127.0.0.1:1"}, b"x")
    SigV4Auth(Credentials("test", "test"), "execute-api", "us-east-1").add_auth(made)
    request = Request("POST", target, "HTTP/1.1", list(made.headers.items()), b"x", "")
    assert check_signature(request, "execute-api") is None
    for other in (
        replace(request, method="DELETE"),
        replace(request, target=target + "%3D"),
        replace(request, body=b"y"),
        replace(request, headers=[*request.headers, ("Host", "127.0.0.1:2")]),
    ):
        assert check_signature(other, "execute-api") is not None
    assert check_signature(request, "lambda") is not None
    monkeypatch.setattr("devtools.local_aws.sigv4.SKEW_SECONDS", -1)
    assert check_signature(request, "execute-api") is not None
