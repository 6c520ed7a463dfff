"""What API Gateway tells, as the function `cable` takes it."""

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
from tailrace.aws.handlers.websocket import Cable
from tailrace.aws.runtime import event_context
from tailrace.aws.runtime.invoke import Functions
from tailrace.errors import StoreUnavailable
from tailrace.limits import CABLE_FRAME_BYTES, CABLE_QUIET_SECONDS
from tailrace.protocols.action_cable.api_gateway.conversation import Conversation
from tailrace.protocols.action_cable.api_gateway.heartbeat import Lease
from tailrace.protocols.action_cable.core.frames import EXTENDED
from tests.integration.action_cable.api_gateway.hooks import once
from tests.integration.action_cable.api_gateway.world import World
from tests.support.cable import SECRET, pubsub, token

ADA = '{"user":"ada"}'
A = pubsub("a")
RESTART = '{"type":"disconnect","reason":"server_restart","reconnect":true}'
CONTEXT = SimpleNamespace(invoked_function_arn="arn:cable")


class Gateway:
    """API Gateway, and Lambda for what the function wakes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.woken: list[tuple[str, Mapping[str, Any]]] = []
        self.frames: dict[str, list[str]] = {}
        """What each client was sent, those who were closed included."""
        self._thread = ThreadPoolExecutor(1)

    async def start(self) -> None:
        self._cable = await self._inside(Cable)

    async def close(self) -> None:
        await self._inside(self._cable.close)
        self._thread.shutdown()

    async def connect(self, name: str, query: str = "", protocol: str = EXTENDED) -> dict[str, Any]:
        """The answer; what the function has woken by then is done after it."""
        fields = {"Sec-WebSocket-Protocol": [protocol], "x-tailrace-origin": ["first"]}
        parameters = {name: [value] for name, _, value in (p.partition("=") for p in query.split())}
        answer = await self.tell(
            "CONNECT",
            name,
            multiValueHeaders=fields,
            multiValueQueryStringParameters=parameters or None,
        )
        self.world.wires.sent[name] = self.frames[name] = []
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
        """A function has its own loop."""
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

    async def wake(_: Functions, function: str, event: Mapping[str, Any]) -> None:
        gateway.woken.append((function, event))

    monkeypatch.setattr(Functions, "wake", wake)
    monkeypatch.setattr(event_context, "GatewayApi", lambda _: world.wires)
    monkeypatch.setattr(module, "provider", lambda _: None)
    monkeypatch.setattr(module, "CABLE_ACCEPT_SECONDS", 0.1)
    await gateway.start()
    yield gateway
    await gateway.close()


def subscribe(stream: str = "a", **more: Any) -> str:
    return json.dumps({"command": "subscribe", "identifier": pubsub(stream), **more})


async def test_a_client_is_let_in_welcomed_and_pinged(gateway: Gateway) -> None:
    answer = await gateway.connect("one")
    assert answer == {"statusCode": 200, "headers": {"Sec-WebSocket-Protocol": EXTENDED}}
    assert gateway.world.heard("one") == [{"type": "welcome", "sid": "one"}]
    assert [function for function, _ in gateway.woken] == ["arn:cable", "heartbeat"]


async def test_a_pulse_that_runs_is_not_woken(gateway: Gateway) -> None:
    async with gateway.world.function() as function:
        await Lease(function.table, gateway.world.clock).take()
    await gateway.connect("one")
    assert [function for function, _ in gateway.woken] == ["arn:cable"]


async def test_who_comes_past_the_edge_is_not_let_in(gateway: Gateway) -> None:
    assert (await gateway.tell("CONNECT", "one", multiValueHeaders={}))["statusCode"] == 403
    assert gateway.woken == []
    assert await gateway.world.items("KI") == []


async def test_who_is_refused_is_told_why(gateway: Gateway) -> None:
    await gateway.connect("one", f"jid={token(lasting=-1)}")
    assert gateway.world.wires.ended == ["one"]
    assert gateway.frames["one"] == [
        '{"type":"disconnect","reason":"token_expired","reconnect":false}'
    ]
    assert await gateway.world.items("KI") == []


async def test_it_is_kept_when_the_token_of_a_client_ends(gateway: Gateway) -> None:
    shown = token(ADA)
    ends = jwt.decode(shown, options={"verify_signature": False})["exp"]
    await gateway.connect("one", f"jid={shown}")
    await gateway.connect("two")
    async with gateway.world.function() as function:
        one, two = [await function.broadcaster.connections.get(each) for each in ("one", "two")]
    assert one is not None
    assert one.expires == int(ends * 1000)
    assert two is not None
    assert two.expires is None


@pytest.mark.parametrize(
    ("query", "interval"), [("", 3), ("pi=30", 30), ("pi=1", 3), ("pi=0", CABLE_QUIET_SECONDS)]
)
async def test_a_client_chooses_how_often_it_is_pinged(
    gateway: Gateway, query: str, interval: float
) -> None:
    await gateway.connect("one", query)
    async with gateway.world.function() as function:
        found = await function.broadcaster.connections.get("one")
    assert found is not None
    assert found.interval == interval


async def test_messages_come_to_who_subscribes_until_it_leaves(gateway: Gateway) -> None:
    world = gateway.world
    await world.create("a")
    await gateway.connect("one")
    await gateway.say("one", subscribe())
    await world.append("a", b"1")
    await world.dispatch()
    assert world.types("one") == ["welcome", "confirm_subscription", "message"]
    await gateway.tell("DISCONNECT", "one")
    assert await world.items("L") == []


async def test_who_comes_back_is_who_it_was(gateway: Gateway) -> None:
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
async def test_what_makes_no_sense_is_not_answered(gateway: Gateway, text: str) -> None:
    await gateway.connect("one")
    await gateway.say("one", text)
    assert gateway.world.types("one") == ["welcome"]


async def test_frames_of_bytes_are_taken_and_too_large_ones_are_not(gateway: Gateway) -> None:
    await gateway.connect("one")
    coded = base64.b64encode(subscribe().encode()).decode()
    await gateway.say("one", coded, isBase64Encoded=True)
    assert gateway.world.types("one") == ["welcome", "confirm_subscription"]
    await gateway.say("one", "x" * (CABLE_FRAME_BYTES + 1))
    assert gateway.world.wires.ended == ["one"]


async def test_who_leaves_before_it_is_welcomed_is_dropped(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway.world.wires, "sent", _Gone())
    await gateway.connect("one")
    async with gateway.world.function() as function:
        found = await function.broadcaster.connections.get("one")
    assert found is not None
    assert found.left is not None


class _Gone(dict[str, list[str]]):
    def __setitem__(self, name: str, frames: list[str]) -> None:
        pass


async def test_a_welcome_of_which_nobody_knows_whether_it_arrived_ends_the_connection(
    gateway: Gateway,
) -> None:
    """Else a client that got it would have all its subscriptions rejected."""
    gateway.world.wires.doubt = lambda _: True
    await gateway.connect("one")
    assert gateway.world.wires.ended == ["one"]


@pytest.mark.parametrize(
    "failure",
    [
        StoreUnavailable("no answer"),
        RuntimeError("a fault"),
    ],
    ids=["expected", "unexpected"],
)
async def test_a_command_that_fails_has_the_client_come_back(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    async def fail() -> None:
        raise failure

    await gateway.connect("one")
    once(monkeypatch, Conversation, "_release", before=fail)
    await gateway.say("one", subscribe())
    assert gateway.frames["one"][-1] == RESTART
    assert gateway.world.wires.ended == ["one"]
