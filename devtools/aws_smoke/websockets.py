"""The check of WebSockets: handshake, subscription and a broadcast, through CloudFront."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Final, Literal

import httpx
from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from devtools.aws_smoke.findings import Finding, judge
from devtools.aws_smoke.target import REQUEST_SECONDS, Target
from tailrace.auth.signed_names import sign

PROTOCOL: Final = Subprotocol("actioncable-v1-json")
MESSAGE_SECONDS: Final = 30.0


def measure_websocket(target: Target) -> Finding:
    stream = f"smoke/{target.run}/cable"
    name = {"channel": "$pubsub", "signed_stream_name": sign(stream, target.secret)}
    identifier = json.dumps(name)
    begun = time.monotonic()
    try:
        # A proxy of the environment leads to AWS, but not to this machine.
        proxy: Literal[True] | None = None if target.account is None else True
        with connect(
            target.cable_url, subprotocols=[PROTOCOL], proxy=proxy, open_timeout=MESSAGE_SECONDS
        ) as socket:
            welcomed = _next(socket, "welcome")
            welcome_seconds = time.monotonic() - begun
            socket.send(json.dumps({"command": "subscribe", "identifier": identifier}))
            confirmed = _next(socket, "confirm_subscription")
            begun = time.monotonic()
            _broadcast(target, stream)
            message = _next(socket, None)
            return judge_websocket(
                welcomed=welcomed is not None,
                confirmed=confirmed is not None,
                message=None if message is None else message.get("message"),
                welcome_seconds=welcome_seconds,
                broadcast_seconds=time.monotonic() - begun,
                protocol=socket.subprotocol,
            )
    except (OSError, WebSocketException) as error:
        return judge(False, f"the handshake through CloudFront failed: {error}")


def judge_websocket(
    *,
    welcomed: bool,
    confirmed: bool,
    message: Any,
    welcome_seconds: float,
    broadcast_seconds: float,
    protocol: str | None,
) -> Finding:
    missing = [
        text
        for text, there in (
            ("no subprotocol", protocol == PROTOCOL),
            ("no welcome", welcomed),
            ("no confirmed subscription", confirmed),
            ("no broadcast", message == {"n": 1}),
        )
        if not there
    ]
    return judge(
        not missing,
        ", ".join(missing) or "a client connects, subscribes and hears a broadcast",
        welcome_ms=welcome_seconds * 1_000,
        broadcast_ms=broadcast_seconds * 1_000,
    )


def _broadcast(target: Target, stream: str) -> None:
    answer = httpx.post(
        f"{target.url}/_broadcast",
        json={"stream": stream, "data": json.dumps({"n": 1})},
        headers={"authorization": f"Bearer {target.broadcast_key()}"},
        timeout=REQUEST_SECONDS,
        trust_env=target.account is not None,
    )
    assert answer.status_code == 201, f"POST /_broadcast: {answer.status_code} {answer.text[:300]}"


def _next(socket: ClientConnection, kind: str | None) -> Mapping[str, Any] | None:
    """The next frame of this type, or None if it does not come in time."""
    deadline = time.monotonic() + MESSAGE_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        try:
            frame: Mapping[str, Any] = json.loads(socket.recv(left))
        except TimeoutError:
            return None
        if frame.get("type") == kind:
            return frame
    return None
