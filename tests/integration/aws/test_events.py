"""The sample events, sent to the packaged functions as Lambda would send them."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import boto3
import pytest

from devtools.engines.ministack import Engine, Ministack
from devtools.local_aws.environments import Answer, Configuration
from devtools.local_aws.events import Request
from devtools.local_aws.functions import Function
from devtools.local_aws.http_server import Api
from devtools.local_aws.replies import Reply
from devtools.processes import ROOT, fresh_name
from scripts.package import LAYERS, build
from tailrace.store.dynamodb.provision import table_definition

EVENTS = ROOT / "events"
CASES = sorted(path.relative_to(EVENTS).with_suffix("") for path in EVENTS.glob("*/*.json"))

HTTP = [
    ("create", 201),
    ("create", 200),
    ("append", 200),
    ("append", 204),
    ("append_conflict", 412),
    ("read", 200),
    ("read_from", 200),
    ("read_many", 200),
    ("read_missing", 200),
    ("head", 200),
    ("list", 200),
    ("close", 204),
    ("delete", 204),
    ("read", 404),
    ("create_binary", 201),
    ("append_binary", 204),
    ("encoded_name", 201),
    ("health", 200),
    ("preflight", 204),
    ("no_secret", 403),
]
"""In this order, each with the status that it is answered with."""

CONNECTION = "TkZ2sdAVDoECEpg="
"""The connection that all events of cables are about."""

SECONDS = 60
"""How long a function may take: a safety net, not a measure."""

PING = '{"type":"ping"'

Start = Callable[..., Awaitable[Function]]


class Others:
    """Lambda's API and that of API Gateway, which both only take note."""

    def __init__(self) -> None:
        self.woken: list[tuple[str, Any]] = []
        """Functions, each with its event."""
        self.posted: list[tuple[str, str]] = []
        """Connections, each with a frame."""
        self._server = Api(self._handle)

    async def start(self) -> dict[str, str]:
        """The environment in which functions call them."""
        await self._server.start()
        return {
            "AWS_ENDPOINT_URL_LAMBDA": self._server.url,
            "AWS_ENDPOINT_URL_APIGATEWAYMANAGEMENTAPI": self._server.url,
            "TAILRACE_CABLE_ENDPOINT": (
                "https://cable1abcde.execute-api.eu-central-1.amazonaws.com/cable"
            ),
            "TAILRACE_HEARTBEAT": "heartbeat",
            "TAILRACE_WEBHOOKS": "webhooks",
        }

    async def close(self) -> None:
        await self._server.close()

    async def _handle(self, request: Request) -> Reply:
        if request.target.startswith("/cable/@connections/"):
            self.posted.append((unquote(request.target.split("/")[3]), request.body.decode()))
            return Reply(200)
        name = unquote(request.target.split("/")[3]).rpartition(":")[2]
        self.woken.append((name, json.loads(request.body)))
        return Reply(202)


def event(function: str, case: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((EVENTS / function / f"{case}.json").read_text())
    return loaded


async def whole(answer: Answer) -> bytes:
    body = b"".join([piece async for piece in answer.body()])
    assert answer.failure is None, answer.failure
    return body


@pytest.fixture
async def start(aws: Engine, ministack: Ministack, tmp_path: Path) -> AsyncIterator[Start]:
    """Starts packaged functions over one table."""
    table = fresh_name("events")
    boto3.client(
        "dynamodb",
        endpoint_url=aws.url,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    ).create_table(**table_definition(table))
    assets = build("host")
    async with AsyncExitStack() as stack:

        async def start(name: str, handler: str = "handler.handler", **env: str) -> Function:
            function = Function(
                Configuration(
                    name=name,
                    code=assets / "functions" / name,
                    handler=handler,
                    layers=tuple(assets / "layers" / layer for layer in LAYERS[name]),
                    seconds=SECONDS,
                    environment={
                        "AWS_ENDPOINT_URL": ministack.url,
                        "AWS_ENDPOINT_URL_DYNAMODB": aws.url,
                        "TAILRACE_TABLE": table,
                        "TAILRACE_ORIGIN_SECRET": "sample-origin-secret",
                        "TAILRACE_ACCESS": "open",
                        **env,
                    },
                ),
                tmp_path,
            )
            await function.start()
            stack.push_async_callback(function.close)
            return function

        yield start


async def test_the_http_wait_and_live_functions_answer_each_of_their_events(start: Start) -> None:
    function = await start("http")
    bodies = {}
    for case, status in HTTP:
        result = json.loads(await whole(await function.invoke(event("http", case))))
        assert (case, result["statusCode"]) == (case, status), result
        bodies[case, status] = base64.b64decode(result["body"])
        if case == "create" and status == 201:
            location = result["headers"]["location"]
    assert location == "https://streams.example.com/v1/stream/chat/room-1"
    assert bodies["read", 200] == b'[{"from":"ada","text":"hello"}]'
    assert bodies["read_from", 200] == bodies["read_missing", 200] == b"[]"
    streams = json.loads(bodies["read_many", 200])["streams"]
    assert [(each["stream"], "data" in each) for each in streams] == [
        ("chat/room-1", True),
        ("chat/room-2", False),
    ]
    listed = json.loads(bodies["list", 200])["streams"]
    assert [each["path"] for each in listed] == ["chat/room-1"]
    assert {case for case, _ in HTTP} == {path.name for path in CASES if path.parts[0] == "http"}
    assert function.cold_starts == 1

    for case in ("create", "append", "close"):
        await whole(await function.invoke(event("http", case)))
    wait = await start("wait", TAILRACE_CURSOR_INTERVAL="20")
    for case, status in (("long_poll", 200), ("read_many", 200), ("no_secret", 403)):
        result = json.loads(await whole(await wait.invoke(event("wait", case))))
        assert (case, result["statusCode"]) == (case, status), result
        bodies[f"wait/{case}", status] = base64.b64decode(result["body"])
    assert bodies["wait/long_poll", 200] == b'[{"from":"ada","text":"hello"}]'
    refused = await wait.invoke(event("http", "append"))
    assert json.loads(await whole(refused))["statusCode"] == 405
    live = await start("live", "handler.app", AWS_LAMBDA_EXEC_WRAPPER="/opt/asgi-stream")
    responses = {}
    for case in ("sse", "sse_missing", "read_many", "no_secret"):
        prelude, _, body = (await whole(await live.invoke(event("live", case)))).partition(bytes(8))
        responses[case] = json.loads(prelude), body
    assert {case: head["statusCode"] for case, (head, _) in responses.items()} == {
        "sse": 200,
        "sse_missing": 404,
        "read_many": 200,
        "no_secret": 403,
    }
    head, body = responses["sse"]
    assert head["headers"]["content-type"] == "text/event-stream"
    assert b'data:[{"from":"ada","text":"hello"}]' in body
    assert b'"streamClosed":true' in body
    assert b'event: closed\ndata:{"stream":"chat/room-1"}' in responses["read_many"][1]


@pytest.fixture
async def others() -> AsyncIterator[Others]:
    others = Others()
    yield others
    await others.close()


async def answered(function: Function, sent: dict[str, Any]) -> Any:
    return json.loads(await whole(await function.invoke(sent)))


async def test_the_cable_and_heartbeat_functions_answer_each_of_their_events(
    start: Start, others: Others
) -> None:
    env = await others.start()
    cable = await start("cable", **env, TAILRACE_PING_INTERVAL="0.1")
    # With pauses this long it has too little time for a second round, whatever the machine does.
    heartbeat = await start("heartbeat", **env, TAILRACE_PING_INTERVAL=str(SECONDS - 1))
    assert await answered(cable, event("cable", "no_secret")) == {"statusCode": 403}
    assert others.woken == []

    accepted = await answered(cable, event("cable", "connect"))
    headers = {"Sec-WebSocket-Protocol": "actioncable-v1-json"}
    assert accepted == {"statusCode": 200, "headers": headers}
    ((name, task),) = others.woken
    assert (name, others.posted) == ("cable", [])
    await answered(cable, task)
    assert others.posted == [(CONNECTION, f'{{"type":"welcome","sid":"{CONNECTION}"}}')]
    assert [each for each, _ in others.woken] == ["cable", "heartbeat"]

    said = event("cable", "subscribe")
    assert await answered(cable, said) == {"statusCode": 200}
    connection, frame = others.posted[-1]
    assert connection == CONNECTION
    assert json.loads(frame) == {
        "type": "confirm_subscription",
        "identifier": json.loads(said["body"])["identifier"],
    }

    # It leaves the next round to the next one.
    assert await answered(heartbeat, event("heartbeat", "scheduled")) is None
    connection, frame = others.posted[-1]
    assert (connection, frame[: len(PING)]) == (CONNECTION, PING)
    assert [each for each, _ in others.woken] == ["cable", "heartbeat", "heartbeat"]

    assert await answered(cable, event("cable", "disconnect")) == {"statusCode": 200}
    posted = len(others.posted)
    _, taken_over = others.woken[-1]
    assert await answered(heartbeat, taken_over) is None
    assert await answered(heartbeat, event("heartbeat", "scheduled")) is None
    assert (len(others.posted), len(others.woken)) == (posted, 3)


async def test_the_dispatch_function_answers_each_of_its_events(
    start: Start, others: Others
) -> None:
    function = await start("dispatch", **await others.start())
    for case in ("append", "delete", "subscription"):
        assert await answered(function, event("dispatch", case)) == {"batchItemFailures": []}
    assert others.posted == others.woken == [], "there is nobody to tell"


async def test_the_webhooks_function_answers_each_of_its_events(
    start: Start, others: Others
) -> None:
    keys = "sample-keys-of-subscriptions-0123456789"
    function = await start("webhooks", **await others.start(), TAILRACE_SUBSCRIPTION_KEYS=keys)
    for case in ("scheduled", "send"):
        assert await answered(function, event("webhooks", case)) is None
    assert others.woken == [], "there is no such subscription, and nothing is due"


async def test_the_purge_function_answers_its_event(
    start: Start, distribution: str, cloudfront: Any
) -> None:
    function = await start("purge", TAILRACE_DISTRIBUTION=distribution)
    assert await answered(function, event("purge", "delete")) is None
    listed = cloudfront.list_invalidations(DistributionId=distribution)["InvalidationList"]
    assert listed["Quantity"] == 1


async def test_the_rotate_function_answers_its_first_event(
    start: Start, secret: str, distribution: str, secrets_manager: Any
) -> None:
    """The next one takes as long as functions keep a secret: tests/slow/aws sends them all."""
    function = await start(
        "rotate_secret", TAILRACE_ORIGIN_SECRET=secret, TAILRACE_DISTRIBUTION=distribution
    )
    result = await whole(
        await function.invoke({**event("rotate_secret", "create"), "SecretId": secret})
    )
    assert json.loads(result) is None
    pending = secrets_manager.get_secret_value(SecretId=secret, VersionStage="AWSPENDING")
    assert pending["SecretString"] != "first"


async def test_the_edge_keys_function_reads_both_secrets_and_the_store(
    start: Start, secret: str, secrets_manager: Any
) -> None:
    access = secrets_manager.create_secret(Name=fresh_name("access"), SecretString="{}")["ARN"]
    function = await start(
        "edge_keys",
        TAILRACE_ORIGIN_SECRET=secret,
        TAILRACE_ACCESS_SECRET=access,
        TAILRACE_EDGE_KEYS="arn:aws:cloudfront::123456789012:key-value-store/sample",
    )
    answer = await function.invoke(event("edge_keys", "scheduled"))
    async for _ in answer.body():
        pass
    # The store has the account in the name of its host, and nobody answers to such a one here.
    assert answer.failure is not None
    assert "123456789012.127.0.0.1" in repr(answer.failure)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_event_is_written_as_json_and_named_after_its_function(case: Path) -> None:
    assert case.parts[0] in LAYERS
    assert isinstance(event(*case.parts), dict)
