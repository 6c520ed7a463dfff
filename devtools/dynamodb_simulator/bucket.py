"""S3 in memory, for large bodies and segments, as slow and as unreliable as the table."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Any

from devtools.dynamodb_simulator.network import CALM, Effect, Event, Faults, Flight, Line, Network
from tailrace.aws.client.failures import CallFailed
from tailrace.errors import StoreUnavailable

LATENCY = (0.005, 0.1)


class MemoryBucket:
    """A bucket, which is also its own first client."""

    def __init__(
        self,
        chance: random.Random,
        *,
        latency: tuple[float, float] = LATENCY,
        faults: Faults = CALM,
    ) -> None:
        self.network = Network(chance, latency, faults)
        self.objects: dict[str, bytes] = {}
        self._first = self.connect()

    def connect(self) -> BucketHandle:
        return BucketHandle(self.objects, self.network.line())

    async def put(self, key: str, body: bytes) -> None:
        await self._first.put(key, body)

    async def get(self, key: str, begin: int = 0, end: int | None = None) -> bytes:
        return await self._first.get(key, begin, end)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._first.delete(keys)

    async def close(self) -> None:
        await self._first.close()

    def trace(self) -> list[Event]:
        return self.network.trace()


class BucketHandle:
    """The client of one process."""

    def __init__(self, objects: dict[str, bytes], line: Line) -> None:
        self._objects = objects
        self._line = line

    async def put(self, key: str, body: bytes) -> None:
        def effect(_: Flight) -> None:
            if key not in self._objects:
                self._objects[key] = body

        await self._call("PutObject", key, effect)

    async def get(self, key: str, begin: int = 0, end: int | None = None) -> bytes:
        """Raises `KeyError` for a missing object, and `IndexError` for an empty range."""

        def effect(_: Flight) -> bytes:
            body = self._objects[key][begin:end]
            if end is not None and not body:
                raise IndexError(f"{key} has no bytes from {begin} to {end}")
            return body

        body: bytes = await self._call("GetObject", key, effect)
        return body

    async def delete(self, keys: Sequence[str]) -> None:
        def effect(flight: Flight) -> None:
            flight.spread([partial(self._objects.pop, key, None) for key in keys])

        await self._call("DeleteObjects", ", ".join(keys), effect)

    async def close(self) -> None:
        self._line.close()

    def cut(self) -> None:
        self._line.cut()

    async def _call(self, operation: str, subject: str, effect: Effect) -> Any:
        try:
            return await self._line.call(operation, lambda: subject, effect)
        except CallFailed as error:
            raise StoreUnavailable(str(error)) from error
