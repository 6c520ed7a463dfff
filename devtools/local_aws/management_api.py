"""The management API of a WebSocket API, through which functions send to clients."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from websockets import ConnectionClosed, State
from websockets.asyncio.server import ServerConnection

from devtools.local_aws.events import Request
from devtools.local_aws.http_server import Api, phrase, refusal
from devtools.local_aws.replies import Reply
from devtools.local_aws.sigv4 import check_signature
from devtools.local_aws.websocket_events import Client

MESSAGE_BYTES: Final = 128 << 10
ERRORS: Final = {
    403: "ForbiddenException",
    410: "GoneException",
    413: "PayloadTooLargeException",
    429: "LimitExceededException",
}

T = TypeVar("T")


@dataclass(slots=True)
class Connection:
    """A client whose connection the function has accepted."""

    client: Client
    socket: ServerConnection
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while sending, so that frames are sent in the order of the responses."""

    @property
    def open(self) -> bool:
        return self.socket.state is State.OPEN

    async def send(self, text: bytes) -> None:
        async with self.turn:
            await self.socket.send(text, text=True)
        self.client.last_active_at = time.time()

    def described(self) -> Reply:
        body = {
            "connectedAt": _iso(self.client.connected_at),
            "identity": self.client.identity,
            "lastActiveAt": _iso(self.client.last_active_at),
        }
        return Reply(200, [("content-type", "application/json")], json.dumps(body).encode())


class ManagementApi:
    """Sends to the connections of one stage, describes them and closes them."""

    def __init__(self, stage: str) -> None:
        self.stage = stage
        self.posts = 0
        """The number of attempts to send to a client."""
        self.faults: Callable[[str, str], int | None] = lambda _method, _connection_id: None
        """Returns the status with which to refuse a call; None serves it."""
        self._management = Api(self._handle)
        self._connections: dict[str, Connection] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def management_port(self) -> int:
        return self._management.port

    @property
    def endpoint(self) -> str:
        """The URL of the management API, without the stage."""
        return self._management.url

    @property
    def connections(self) -> list[str]:
        """The ids of the open connections, the oldest first. Thread-safe."""
        return [name for name, each in list(self._connections.items()) if each.open]

    async def _handle(self, request: Request) -> Reply:
        """Serve one call of the management API."""
        if error := check_signature(request, "execute-api"):
            return error
        _, stage, kind, connection_id, *more = [*unquote(request.target).split("/"), "", "", ""]
        if (stage, kind) != (self.stage, "@connections") or not connection_id or any(more):
            return _error(403)
        self.posts += request.method == "POST"
        if (fault := self.faults(request.method, connection_id)) is not None:
            return _error(fault)
        connection = self._connections.get(connection_id)
        if connection is None or not connection.open:
            return _error(410)
        match request.method:
            case "GET":
                return connection.described()
            case "DELETE":
                self._spawn(connection.socket.close())
                return Reply(204)
            case "POST" if len(request.body) > MESSAGE_BYTES:
                return _error(413)
            case "POST":
                try:
                    await connection.send(request.body)
                except ConnectionClosed:
                    return _error(410)
                return Reply(200)
            case _:
                return _error(403)

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _error(status: int) -> Reply:
    return refusal(status, ERRORS.get(status, "InternalServerError"), phrase(status))


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
