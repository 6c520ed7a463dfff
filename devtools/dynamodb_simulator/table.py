"""DynamoDB in memory, with all the faults that a store must tolerate.

Stale reads, lost, late and duplicated requests, lost responses, processes that crash during a call:
all are drawn from one `random.Random`, so that a seed reproduces a run.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping
from typing import Any

from devtools.dynamodb_simulator.engine import PAGE_BYTES, Change, Engine
from devtools.dynamodb_simulator.network import CALM, Event, Faults, Flight, Line, Network
from devtools.dynamodb_simulator.values import Item

LATENCY = (0.0005, 0.02)
LAG = 0.5


class MemoryTable:
    """A table, which is also its own first client.

    `latency`: the minimum and maximum delay in each direction, in seconds.
    `lag`: the maximum age of the data in an eventually consistent read, in seconds.
    `page_bytes`: the maximum number of bytes that a query reads for a page.
    `name`: requests for any other table are refused; by default the name is not checked.
    """

    def __init__(
        self,
        chance: random.Random,
        *,
        latency: tuple[float, float] = LATENCY,
        lag: float = LAG,
        page_bytes: int = PAGE_BYTES,
        faults: Faults = CALM,
        name: str | None = None,
    ) -> None:
        self.network = Network(chance, latency, faults)
        self._engine = Engine(chance, lag, page_bytes, name)
        self._first = self.connect()

    def connect(self) -> Handle:
        """Create the client of another process."""
        return Handle(self._engine, self.network.line())

    async def call(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        return await self._first.call(operation, request)

    async def close(self) -> None:
        await self._first.close()

    @property
    def faults(self) -> Faults:
        return self.network.faults

    @faults.setter
    def faults(self, faults: Faults) -> None:
        self.network.faults = faults

    # For assertions of tests

    @property
    def changes(self) -> list[Change]:
        """All writes, in the order in which they took effect."""
        return self._engine.changes

    def items(self) -> Iterator[Item]:
        return self._engine.items()

    def trace(self) -> list[Event]:
        return self.network.trace()

    def story(self) -> str:
        """The trace of all calls, for a failed run."""
        return "\n".join(map(str, self.trace()))


class Handle:
    """The client of one process."""

    def __init__(self, engine: Engine, line: Line) -> None:
        self._engine = engine
        self._line = line
        self._token = 0

    async def call(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        if operation == "TransactWriteItems" and "ClientRequestToken" not in request:
            self._token += 1
            token = f"client-{self._line.client}-{self._token}"
            request = {**request, "ClientRequestToken": token}

        def effect(flight: Flight) -> dict[str, Any]:
            if operation == "BatchWriteItem":
                return self._batch(request, flight)
            now = asyncio.get_running_loop().time()
            return self._engine.execute(operation, request, now, flight.after)

        answer: dict[str, Any] = await self._line.call(operation, lambda: _subject(request), effect)
        return answer

    async def close(self) -> None:
        self._line.close()

    def cut(self) -> None:
        """Act like `kill -9` of the process: no call returns, and calls in transit may be lost."""
        self._line.cut()

    def _batch(self, request: Mapping[str, Any], flight: Flight) -> dict[str, Any]:
        chance, faults = self._line.network.chance, self._line.network.faults
        pieces = self._engine.pieces(request, asyncio.get_running_loop().time)
        left = [piece for piece in pieces if chance.random() < faults.unprocessed]
        flight.spread([piece.do for piece in pieces if piece not in left])
        return {"UnprocessedItems": {piece.table: [p.sent for p in left] for piece in left[:1]}}


def _subject(request: Mapping[str, Any]) -> str:
    """The keys in a request, such as `chain/0003`."""
    if "TransactItems" in request:
        actions = [(name, body) for one in request["TransactItems"] for name, body in one.items()]
        return ", ".join(f"{name} {_subject(body)}" for name, body in actions)
    if "RequestItems" in request:
        (sent,) = request["RequestItems"].values()
        return ", ".join(_subject(body) for one in sent for body in one.values())
    if "KeyConditionExpression" in request:
        values = request.get("ExpressionAttributeValues", {})
        text = str(request["KeyConditionExpression"])
        for name in sorted(values, key=len, reverse=True):
            text = text.replace(name, repr(next(iter(values[name].values()))))
        return text
    key = request.get("Key") or request.get("Item") or {}
    return "/".join(str(key[name].get("S")) for name in ("p", "s") if name in key)
