"""Helpers for tests of cables: secret, tokens, broadcasts, and a WebSocket client."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

import httpx
import jwt
from websockets.asyncio.client import ClientConnection, connect

from devtools.server import Server
from tailrace.auth.signed_names import sign

SECRET = "a-secret-of-more-than-32-bytes-as-it-should-be"
SETTINGS = {
    "TAILRACE_SECRET": SECRET,
    "TAILRACE_PUBLIC_STREAMS": "open/**",
    "TAILRACE_TURBO_STREAMS": "true",
    "TAILRACE_CABLE_READY": "true",
    "TAILRACE_STREAMS_WHISPER": "true",
    "TAILRACE_EVENTS_PATH": "/events",
    "TAILRACE_LONG_POLL_TIMEOUT": "1",
    "TAILRACE_PING_INTERVAL": "0.5",
    "TAILRACE_PRESENCE_TTL": "1",
}
KEY = hmac.digest(SECRET.encode(), b"broadcast-cable", "sha256").hex()
API_KEY = hmac.digest(SECRET.encode(), b"api-cable", "sha256").hex()
EXTENDED = "actioncable-v1-ext-json"
SECONDS = 120.0


def pubsub(stream: str) -> str:
    """The identifier of a public stream."""
    return json.dumps({"channel": "$pubsub", "stream_name": stream})


def signed(stream: str) -> str:
    return json.dumps({"channel": "$pubsub", "signed_stream_name": sign(stream, SECRET)})


def token(who: str = '{"user":1}', lasting: float = 3600, **claims: Any) -> str:
    return jwt.encode({"ext": who, "exp": time.time() + lasting, **claims}, SECRET)


class HasPort(Protocol):
    """A server that listens on a port of this machine."""

    @property
    def port(self) -> int: ...


class BroadcastClient:
    """Posts broadcasts, as an application does."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def __call__(self, stream: str, data: str, **meta: Any) -> None:
        asked: dict[str, Any] = {"stream": stream, "data": data}
        if meta:
            asked["meta"] = meta
        assert self.post(asked).status_code == 201

    def post(self, asked: Any, key: str = KEY) -> httpx.Response:
        headers = {"authorization": f"Bearer {key}"}
        content = asked if isinstance(asked, bytes) else json.dumps(asked).encode()
        return self._client.post("/_broadcast", content=content, headers=headers)


class Log:
    """Reads and writes streams over HTTP."""

    def __init__(self, server: Server) -> None:
        self._url = f"{server.url}/v1/stream/"

    def ask(self, method: str, path: str, content: bytes = b"", **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx.request(
            method,
            f"{self._url}{path}",
            content=content,
            headers={"content-type": "application/json", **named},
            trust_env=False,
        )

    def read(self, path: str) -> Any:
        return self.ask("GET", path).raise_for_status().json()

    def change(self, method: str, path: str, content: bytes = b"", **headers: str) -> None:
        self.ask(method, path, content, **headers).raise_for_status()


class CableClient:
    """A client that sends any command, and skips pings."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.welcome: dict[str, Any] = {}

    @property
    def sid(self) -> str:
        sid: str = self.welcome["sid"]
        return sid

    async def say(self, command: str, identifier: str = "", **more: Any) -> None:
        fields = {"command": command, "identifier": identifier, **more}
        await self.socket.send(json.dumps(fields))

    async def hear(self) -> dict[str, Any]:
        """The next frame other than a ping."""
        return json.loads(await self.hear_text())  # type: ignore[no-any-return]

    async def hear_text(self) -> str:
        while True:
            # `wait_for` may miss a cancellation when a ping arrives at the same moment.
            async with asyncio.timeout(SECONDS):
                text = await self.socket.recv()
            assert isinstance(text, str)
            if not text.startswith('{"type":"ping"'):
                return text

    async def subscribe(self, identifier: str, **more: Any) -> None:
        await self.say("subscribe", identifier, **more)
        assert await self.hear() == {"type": "confirm_subscription", "identifier": identifier}

    async def messages(self, number: int) -> list[Any]:
        return [(await self.hear())["message"] for _ in range(number)]

    async def is_silent(self, seconds: float = 0.3) -> bool:
        """Whether no frame but pings arrives."""
        try:
            async with asyncio.timeout(seconds):
                await self.hear_text()
        except TimeoutError:
            return True
        return False


@asynccontextmanager
async def on_cable(
    server: HasPort,
    query: str = "",
    protocols: tuple[str, ...] = (EXTENDED,),
    headers: dict[str, str] | None = None,
) -> AsyncIterator[CableClient]:
    """Connect a client, and receive its first frame: a welcome or a disconnect."""
    url = f"ws://127.0.0.1:{server.port}/cable?{query}"
    async with connect(
        url,
        subprotocols=list(protocols) or None,  # type: ignore[arg-type]
        additional_headers=headers,
        proxy=None,
        max_size=None,
    ) as socket:
        cable = CableClient(socket)
        cable.welcome = await cable.hear()
        yield cable
