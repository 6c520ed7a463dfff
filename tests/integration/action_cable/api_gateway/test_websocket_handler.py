"""The events of API Gateway, handled by the function `cable`."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import jwt
import pytest

from tailrace.aws.handlers import websocket as module
from tailrace.aws.handlers.websocket import WebSocketHandler
from tailrace.aws.runtime import event_context
from tailrace.aws.runtime.event_context import LambdaInvoker
from tailrace.errors import BadSetting, StoreUnavailable
from tailrace.limits import CABLE_FRAME_BYTES, GATEWAY_PING_SECONDS
from tailrace.protocols.action_cable.api_gateway.command_handler import CommandHandler
from tailrace.protocols.action_cable.api_gateway.heartbeat_lease import HeartbeatLease
from tailrace.protocols.action_cable.core.frames import EXTENDED
from tests.integration.action_cable.api_gateway.hooks import once
from tests.integration.action_cable.api_gateway.world import World
from tests.support.cable import SECRET, pubsub, token

ADA = '{"user":"ada"}'
A = pubsub("a")
RESTART = '{"type":"disconnect","reason":"server_restart","reconnect":true}'
CONTEXT = SimpleNamespace(invoked_function_arn="arn:cable")


class Gateway:
    """API Gateway, and Lambda for the functions that are invoked."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.woken: list[tuple[str, Mapping[str, Any]]] = []
        self.frames: dict[str, list[str]] = {}
        """The frames sent to each client, closed ones included."""
        self._thread = ThreadPoolExecutor(1)

    async def start(self) -> None:
        self._cable = await self._inside(WebSocketHandler)

    async def close(self) -> None:
        await self._inside(self._cable.close)
        self._thread.shutdown()

    async def connect(self, name: str, query: str = "", protocol: str = EXTENDED) -> dict[str, Any]:
        """The response; the functions invoked by then run after it."""
        fields = {"Sec-WebSocket-Protocol": [protocol], "x-tailrace-origin": ["first"]}
        parameters = {name: [value] for name, _, value in (p.partition("=") for p in query.split())}
        answer = await self.tell(
            "CONNECT",
            name,
            multiValueHeaders=fields,
            multiValueQueryStringParameters=parameters or None,
        )
        self.world.gateway_api.sent[name] = self.frames[name] = []
        for function, task in self.woken:
            if function == CONTEXT.invoked_function_arn:
                await self._inside(self._cable, task, CONTEXT)
        return answer

    async def say(self, name: str, text: str, **more: Any) -> None:
        assert await self.tell("MESSAGE", name, body=text, **more) == {"statusCode": 200}

    async def tell(self, kind: str, name: str, **more: Any) -> dict[str, Any]:
        about = {"eventType": kind, "connectionId": name, "requestTimeEpoch": self.world.clock()}
        answer: dict[str, Any] = await self._inside(
            self._cable, {"requestContext": about, **more}, CONTEXT
        )
        return answer

    async def _inside(self, work: Any, *args: Any) -> Any:
        """Run in a thread, as a function has its own event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *args)


@pytest.fixture
async def gateway(world: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Gateway]:
    for name, value in {
        "TAILRACE_TABLE": world.settings.table,
        "TAILRACE_BUCKET": world.settings.bucket,
        "TAILRACE_SECRET": SECRET,
        "TAILRACE_PUBLIC_STREAMS": "**",
        "TAILRACE_ORIGIN_SECRET": "first",
        "TAILRACE_HEARTBEAT": "heartbeat",
    }.items():
        monkeypatch.setenv(name, value)
    gateway = Gateway(world)

    async def wake(_: LambdaInvoker, function: str, event: Mapping[str, Any]) -> None:
        gateway.woken.append((function, event))

    monkeypatch.setattr(LambdaInvoker, "invoke", wake)
    monkeypatch.setattr(event_context, "GatewayApi", lambda _: world.gateway_api)
    monkeypatch.setattr(module, "create_policy_provider", lambda _: None)
    monkeypatch.setattr(module, "GATEWAY_ACCEPT_SECONDS", 0.1)
    await gateway.start()
    yield gateway
    await gateway.close()


def subscribe(stream: str = "a", **more: Any) -> str:
    return json.dumps({"command": "subscribe", "identifier": pubsub(stream), **more})


async def test_connecting_sends_a_welcome_and_starts_the_heartbeat(gateway: Gateway) -> None:
    answer = await gateway.connect("one")
    assert answer == {"statusCode": 200, "headers": {"Sec-WebSocket-Protocol": EXTENDED}}
    assert gateway.world.heard("one") == [{"type": "welcome", "sid": "one"}]
    assert [function for function, _ in gateway.woken] == ["arn:cable", "heartbeat"]


async def test_a_running_heartbeat_is_not_started_again(gateway: Gateway) -> None:
    async with gateway.world.function() as function:
        await HeartbeatLease(function.table, gateway.world.clock).acquire()
    await gateway.connect("one")
    assert [function for function, _ in gateway.woken] == ["arn:cable"]


async def test_requests_must_come_through_cloudfront(gateway: Gateway) -> None:
    assert (await gateway.tell("CONNECT", "one", multiValueHeaders={}))["statusCode"] == 403
    assert gateway.woken == []
    assert await gateway.world.items("KI") == []


async def test_a_rejected_client_gets_the_reason(gateway: Gateway) -> None:
    await gateway.connect("one", f"jid={token(lasting=-1)}")
    assert gateway.world.gateway_api.ended == ["one"]
    assert gateway.frames["one"] == [
        '{"type":"disconnect","reason":"token_expired","reconnect":false}'
    ]
    assert await gateway.world.items("KI") == []


async def test_the_expiry_of_a_token_is_stored(gateway: Gateway) -> None:
    shown = token(ADA)
    ends = jwt.decode(shown, options={"verify_signature": False})["exp"]
    await gateway.connect("one", f"jid={shown}")
    await gateway.connect("two")
    async with gateway.world.function() as function:
        one, two = [await function.broadcaster.connections.get(each) for each in ("one", "two")]
    assert one is not None
    assert one.expires_at == int(ends * 1000)
    assert two is not None
    assert two.expires_at is None


@pytest.mark.parametrize(
    ("query", "interval"), [("", 3), ("pi=30", 30), ("pi=1", 3), ("pi=0", GATEWAY_PING_SECONDS)]
)
async def test_a_client_chooses_its_ping_interval(
    gateway: Gateway, query: str, interval: float
) -> None:
    await gateway.connect("one", query)
    async with gateway.world.function() as function:
        found = await function.broadcaster.connections.get("one")
    assert found is not None
    assert found.ping_interval == interval


async def test_a_subscriber_gets_messages_until_it_disconnects(gateway: Gateway) -> None:
    world = gateway.world
    await world.create("a")
    await gateway.connect("one")
    await gateway.say("one", subscribe())
    await world.append("a", b"1")
    await world.dispatch()
    assert world.types("one") == ["welcome", "confirm_subscription", "message"]
    await gateway.tell("DISCONNECT", "one")
    assert await world.items("L") == []


@pytest.mark.parametrize("protocol", [EXTENDED, "actioncable-v1-json", ""])
async def test_only_clients_of_the_extended_protocol_are_told_of_a_deletion(
    gateway: Gateway, protocol: str
) -> None:
    world = gateway.world
    await world.create("a")
    await gateway.connect("one", protocol=protocol)
    await gateway.say("one", subscribe())
    await world.delete("a")
    await world.dispatch()
    told = ["deleted"] if protocol == EXTENDED else []
    assert world.types("one") == ["welcome", "confirm_subscription", *told]


async def test_a_session_is_restored_for_the_same_identity_only(gateway: Gateway) -> None:
    world = gateway.world
    await gateway.connect("one", f"jid={token(ADA)}")
    await gateway.say("one", subscribe())
    await gateway.tell("DISCONNECT", "one")
    gateway.woken.clear()
    await gateway.connect("two", f"sid=one jid={token(ADA)}")
    assert world.heard("two") == [
        {"type": "welcome", "sid": "two", "restored": True, "restored_ids": [A]}
    ]
    gateway.woken.clear()
    await gateway.connect("three", f"sid=two jid={token('eve')}")
    assert world.heard("three") == [{"type": "welcome", "sid": "three"}]


@pytest.mark.parametrize("text", ["", "no JSON", "[]", '{"command":1}'])
async def test_invalid_commands_are_ignored(gateway: Gateway, text: str) -> None:
    await gateway.connect("one")
    await gateway.say("one", text)
    assert gateway.world.types("one") == ["welcome"]


async def test_binary_frames_are_accepted_and_oversized_ones_end_the_connection(
    gateway: Gateway,
) -> None:
    await gateway.connect("one")
    coded = base64.b64encode(subscribe().encode()).decode()
    await gateway.say("one", coded, isBase64Encoded=True)
    assert gateway.world.types("one") == ["welcome", "confirm_subscription"]
    await gateway.say("one", "x" * (CABLE_FRAME_BYTES + 1))
    assert gateway.world.gateway_api.ended == ["one"]


async def test_a_client_that_leaves_before_the_welcome_is_marked_as_ended(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway.world.gateway_api, "sent", _Gone())
    await gateway.connect("one")
    async with gateway.world.function() as function:
        found = await function.broadcaster.connections.get("one")
    assert found is not None
    assert found.disconnected_at is not None


class _Gone(dict[str, list[str]]):
    def __setitem__(self, name: str, frames: list[str]) -> None:
        pass


async def test_an_uncertain_welcome_ends_the_connection(
    gateway: Gateway,
) -> None:
    """Otherwise a client that got it would have all its subscriptions rejected."""
    gateway.world.gateway_api.doubt = lambda _: True
    await gateway.connect("one")
    assert gateway.world.gateway_api.ended == ["one"]


@pytest.mark.parametrize(
    "failure",
    [
        StoreUnavailable("no answer"),
        RuntimeError("a fault"),
    ],
    ids=["expected", "unexpected"],
)
async def test_a_failed_command_makes_the_client_reconnect(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    async def fail() -> None:
        raise failure

    await gateway.connect("one")
    once(monkeypatch, CommandHandler, "_release", before=fail)
    await gateway.say("one", subscribe())
    assert gateway.frames["one"][-1] == RESTART
    assert gateway.world.gateway_api.ended == ["one"]


async def test_a_failed_resumption_makes_the_client_reconnect(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> None:
        raise StoreUnavailable("no answer")

    await gateway.connect("one", f"jid={token(ADA)}")
    await gateway.say("one", subscribe())
    gateway.woken.clear()
    once(monkeypatch, CommandHandler, "_release", before=fail)
    await gateway.connect("two", f"sid=one jid={token(ADA)}")
    assert gateway.frames["two"][-1] == RESTART
    assert gateway.world.gateway_api.ended == ["two"]


def test_channels_of_an_application_are_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TAILRACE_RPC_URL", "https://app.example/_anycable")
    with pytest.raises(BadSetting, match="not served on AWS"):
        WebSocketHandler()
