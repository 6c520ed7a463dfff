"""A WebSocket API of API Gateway on loopback, in front of a function."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Mapping
from typing import Any, Final, Self

from websockets import CloseCode, ConnectionClosed, Headers, State
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.http11 import Request as Handshake
from websockets.http11 import Response

from devtools.local_aws.environments import REGION
from devtools.local_aws.functions import Function, Throttled
from devtools.local_aws.http_server import phrase
from devtools.local_aws.lambda_api import outcome
from devtools.local_aws.management_api import MESSAGE_BYTES, Connection, ManagementApi
from devtools.local_aws.websocket_events import Client

FRAME_BYTES: Final = 32 << 10
"""The maximum size of a frame; longer messages need several frames, which browsers do not send."""
CLOSE_SECONDS: Final = 10.0
"""How long a client may take to confirm a close."""


class WebSocketApi(ManagementApi):
    """One stage of an API, with a single function for all routes.

    `headers` are added to handshakes, as by CloudFront. `lifetime` is the maximum duration of a
    connection in seconds, which is two hours on AWS. The function may be set later, before the
    first handshake, because its settings may contain the address of this API."""

    def __init__(
        self,
        function: Function | None = None,
        *,
        stage: str = "cable",
        headers: Mapping[str, str] | None = None,
        lifetime: float | None = None,
    ) -> None:
        super().__init__(stage)
        self.function = function
        self.api_id = "local"
        self.domain = f"{self.api_id}.execute-api.{REGION}.amazonaws.com"
        self.port = 0
        self.lose_disconnects = False
        """Whether $disconnect is not sent, which may happen on AWS: it is best effort."""
        self._headers = dict(headers or {})
        self._lifetime = lifetime
        self._server: Server | None = None
        self._let_in: dict[ServerConnection, Client] = {}

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/{self.stage}"

    async def start(self) -> Self:
        self._loop = asyncio.get_running_loop()
        await self._management.start()
        self._server = await serve(
            self._converse,
            "127.0.0.1",
            0,
            process_response=self._connect,
            compression=None,
            open_timeout=None,
            ping_interval=None,
            close_timeout=CLOSE_SECONDS,
            max_size=(MESSAGE_BYTES, FRAME_BYTES),
            backlog=2048,
        )
        self.port = next(iter(self._server.sockets)).getsockname()[1]
        return self

    async def close(self) -> None:
        """Close the API, without any further events."""
        self.lose_disconnects = True
        await self._management.close()
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    def drop(self, connection_id: str) -> None:
        """Abort a client's connection, like a network failure. Thread-safe."""
        self._loop.call_soon_threadsafe(self._connections[connection_id].socket.transport.abort)

    async def _connect(
        self, socket: ServerConnection, request: Handshake, response: Response
    ) -> Response | None:
        """Send $connect for a valid handshake, and accept or refuse the connection."""
        if response.status_code != 101:
            return None
        path, _, query = request.path.partition("?")
        if path != f"/{self.stage}":
            return _refusal(403, {"message": "Forbidden"})
        agent, peer = request.headers.get("User-Agent", ""), socket.remote_address[0]
        client = Client(self.api_id, self.domain, self.stage, peer, agent)
        event = client.connects(query, request.headers.raw_items(), self._headers)
        asked = self._spawn(self._ask(event))
        await asyncio.wait([asked])
        status, result = (503, {}) if asked.cancelled() else asked.result()
        if not 200 <= status < 300:
            return _refusal(status, _error_message(event, phrase(status)))
        if socket.state is not State.CONNECTING:
            self._leave(client, CloseCode.ABNORMAL_CLOSURE, "")
            return None
        if (protocol := _subprotocol(result)) is not None:
            response.headers["Sec-WebSocket-Protocol"] = protocol
        self._let_in[socket] = client
        return None

    async def _converse(self, socket: ServerConnection) -> None:
        """Receive the client's messages until the connection ends."""
        client = self._let_in.pop(socket)
        connection = self._connections[client.connection_id] = Connection(client, socket)
        try:
            async with asyncio.timeout(self._lifetime):
                with contextlib.suppress(ConnectionClosed):
                    await self._listen(connection)
        except TimeoutError:
            await socket.close(CloseCode.GOING_AWAY, "Going away")
        finally:
            await socket.wait_closed()
            del self._connections[client.connection_id]
            self._leave(client, socket.close_code, socket.close_reason)

    async def _listen(self, connection: Connection) -> None:
        async for message in connection.socket:
            connection.client.last_active_at = time.time()
            if isinstance(message, bytes):
                await connection.socket.close(CloseCode.UNSUPPORTED_DATA)
                return
            # Messages are handled concurrently: one does not wait for the result of another.
            self._spawn(self._say(connection, message))

    async def _say(self, connection: Connection, message: str) -> None:
        event = connection.client.says(message)
        status, _ = await self._ask(event)
        if not 200 <= status < 300:
            with contextlib.suppress(ConnectionClosed):
                error = _error_message(event, "Internal server error")
                await connection.send(json.dumps(error).encode())

    def _leave(self, client: Client, code: int | None, reason: str | None) -> None:
        if code == CloseCode.NO_STATUS_RCVD:
            reason = "Client-side close frame status not set"
        if not self.lose_disconnects:
            self._spawn(self._ask(client.leaves(code or CloseCode.ABNORMAL_CLOSURE, reason or "")))

    async def _ask(self, event: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
        """The status and the complete result of the function; 502 if it failed."""
        assert self.function is not None
        try:
            payload, failure = await outcome(self.function, event)
        except Throttled:
            return 502, {}
        result = json.loads(payload) if failure is None else None
        if not isinstance(result, dict) or not isinstance(result.get("statusCode"), int):
            return 502, {}
        return result["statusCode"], result


def _refusal(status: int, body: Mapping[str, str]) -> Response:
    content = json.dumps(body).encode()
    headers = Headers(
        {
            "Connection": "close",
            "Content-Length": str(len(content)),
            "Content-Type": "application/json",
        }
    )
    return Response(status, phrase(status), headers, content)


def _error_message(event: Mapping[str, Any], message: str) -> dict[str, str]:
    """The message to a client whose function failed."""
    context = event["requestContext"]
    return {
        "message": message,
        "connectionId": context["connectionId"],
        "requestId": context["requestId"],
    }


def _subprotocol(result: Mapping[str, Any]) -> str | None:
    several = result.get("multiValueHeaders") or {}
    given = {
        **{name: values[-1] for name, values in several.items()},
        **(result.get("headers") or {}),
    }
    for name, value in given.items():
        if name.lower() == "sec-websocket-protocol":
            return str(value)
    return None
