"""Turns: one append per stream and process is under way; the others would only lose to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tailrace.errors import StreamTooHot
from tailrace.limits import TURN_SECONDS


class Turns:
    def __init__(self) -> None:
        self._queues: dict[str, tuple[asyncio.Lock, int]] = {}
        """For each path in use its lock, and how many hold it or wait for it."""

    @asynccontextmanager
    async def take(self, path: str) -> AsyncIterator[None]:
        lock, users = self._queues.get(path) or (asyncio.Lock(), 0)
        self._queues[path] = (lock, users + 1)
        try:
            await _acquire(lock)
            try:
                yield
            finally:
                lock.release()
        finally:
            lock, users = self._queues.pop(path)
            if users > 1:
                self._queues[path] = (lock, users - 1)


async def _acquire(lock: asyncio.Lock) -> None:
    try:
        async with asyncio.timeout(TURN_SECONDS):
            await lock.acquire()
    except TimeoutError:
        raise StreamTooHot(
            "more appends wait for this stream than it can take; try again later"
        ) from None
