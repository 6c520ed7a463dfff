"""Stores on a real engine, and what each of their calls costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from devtools.engines.ministack import Engine
from devtools.processes import fresh_name
from tailrace.aws.client.json_client import Call
from tailrace.clock import Clock, system_clock
from tailrace.settings import Settings
from tailrace.store.dynamodb.provision import connect
from tailrace.store.dynamodb.store import DynamoStore
from tailrace.streams import Streams
from tests.support.dynamo import patience, shared_loader

__all__ = ["patience", "shared_loader"]


class Process:
    """The parts of one process: a store with its own memory, and a meter on its calls."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.settings = settings
        self.clock = clock
        self.calls: list[Call] = []

    async def open(self) -> None:
        self.backend = await connect(self.settings, self.calls.append)
        self.store = DynamoStore(self.settings, self.clock, self.backend)
        await self.store.open()
        self.streams = Streams(self.store, self.settings, self.clock)
        self.calls.clear()

    async def items(self, kind: str = "") -> list[dict[str, Any]]:
        """Everything in the table whose partition begins like that."""
        answer = await self.backend.client.call("Scan", {"TableName": self.settings.table})
        assert "LastEvaluatedKey" not in answer
        return [item for item in answer["Items"] if item["p"]["S"].startswith(kind)]

    def spent(self) -> tuple[Counter[str], float, float]:
        """Calls, write units and read units since this was last asked."""
        calls = Counter(call.operation for call in self.calls)
        written = sum(call.write_units for call in self.calls)
        read = sum(call.read_units for call in self.calls)
        self.calls.clear()
        return calls, written, read


Start = Callable[..., Awaitable[Process]]


@pytest.fixture
def dynamodb(aws: Engine, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings for a table of the test's own."""
    for name, value in aws.env.items():
        monkeypatch.setenv(name, value)
    return Settings(store="dynamodb", table=fresh_name("test"), bucket=fresh_name("test"))


@pytest.fixture
async def start(dynamodb: Settings) -> AsyncIterator[Start]:
    """Starts processes over the same table; they end with the test."""
    async with AsyncExitStack() as stack:

        async def start(clock: Clock = system_clock, **settings: Any) -> Process:
            values = {name: getattr(dynamodb, name) for name in ("store", "table", "bucket")}
            process = Process(Settings(**{**values, **settings}), clock)
            await process.open()
            stack.push_async_callback(process.store.close)
            return process

        yield start


@pytest.fixture
async def process(start: Start) -> Process:
    return await start()
