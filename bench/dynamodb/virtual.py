"""Processes over one table in virtual time: no machine is too slow, and an hour takes seconds.

A call takes 5 ms, and the work of a process no time at all.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

from bench.dynamodb.lab import BINARY
from bench.dynamodb.ledger import Made, note
from bench.dynamodb.units import lost_units, read_units, written_units
from devtools.dynamodb_simulator.loop import run
from devtools.dynamodb_simulator.table import Handle, MemoryTable
from tailrace.app import Application
from tailrace.aws.client.failures import ConditionFailed, TransactionCanceled
from tailrace.aws.client.json_client import WRITES
from tailrace.settings import Settings
from tailrace.store.dynamodb.provision import Backend
from tailrace.store.dynamodb.store import DynamoStore
from tailrace.web.asgi import Message

T = TypeVar("T")

EACH_WAY: Final = (0.002, 0.003)
LAG: Final = 0.02
"""Seconds that an eventually consistent read may be behind."""
LONG_POLL_SECONDS: Final = 110
"""How long a long-poll waits on Lambda."""


def simulate(main: Callable[[], Awaitable[T]]) -> T:
    async def body() -> T:
        return await main()

    return run(21, body, stalls=0.0, seconds=1e9, steps=10**9)


def table() -> MemoryTable:
    return MemoryTable(random.Random(1), latency=EACH_WAY, lag=LAG)


async def process(shared: MemoryTable) -> Application:
    """A process, such as an environment of a function."""
    settings = Settings(long_poll_timeout=LONG_POLL_SECONDS)
    store = DynamoStore(settings, backend=Backend(Counted(shared.connect()), None))
    await store.open()
    return Application(settings, store)


class Counted:
    """Stands before a client of the simulator and notes what goes through."""

    def __init__(self, client: Handle) -> None:
        self._client = client

    async def call(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        now = asyncio.get_running_loop().time
        begin = now()
        try:
            answer = await self._client.call(operation, request)
        except (ConditionFailed, TransactionCanceled) as failure:
            note(Made(operation, begin, now(), write=lost_units(request, failure)))
            raise
        if operation in WRITES:
            note(Made(operation, begin, now(), write=written_units(request)))
        else:
            note(Made(operation, begin, now(), read=read_units(request, answer)))
        return answer

    async def close(self) -> None:
        await self._client.close()


class Exchange:
    """A request to a process, and when parts of the response were sent."""

    def __init__(self, app: Application, method: str, path: str, body: bytes = b"", **query: str):
        self._app = app
        self._scope = {
            "type": "http",
            "method": method,
            "path": f"/v1/stream/{path}",
            "query_string": urlencode(query).encode(),
            "headers": [(b"content-type", BINARY.encode())] if method != "GET" else [],
        }
        self._body = body
        self._received = False
        self.status = 0
        self.headers: dict[str, str] = {}
        self.parts: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        self.task = asyncio.ensure_future(app(self._scope, self._receive, self._send))

    async def _receive(self) -> Message:
        if not self._received:
            self._received = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await asyncio.get_running_loop().create_future()
        raise AssertionError("this client never leaves")

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {
                name.decode().lower(): value.decode() for name, value in message["headers"]
            }
        else:
            now = asyncio.get_running_loop().time()
            self.parts.put_nowait((now, bytes(message.get("body", b""))))

    async def done(self) -> float:
        """Wait for the response, and return when it was sent."""
        await self.task
        assert self.status < 300, self.status
        at, _ = await self.parts.get()
        return at

    async def event(self, kind: bytes) -> float:
        """Wait for an event of a kind, and return when it was sent."""
        while True:
            at, part = await self.parts.get()
            if b"event: " + kind in part:
                return at

    async def leave(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
