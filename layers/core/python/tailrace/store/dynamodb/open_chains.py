"""The streams that this process holds open, and the locks of those it appends to."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tailrace.errors import StreamTooHot
from tailrace.limits import APPEND_LOCK_SECONDS
from tailrace.store.dynamodb.chain import UNKNOWN, Chain


class AppendLocks:
    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}
        """The lock of each path in use, and how many appends hold it or wait for it."""

    @asynccontextmanager
    async def hold(self, path: str) -> AsyncIterator[None]:
        """Hold the lock of a path; `StreamTooHot` when it does not become free in time."""
        lock, users = self._locks.get(path) or (asyncio.Lock(), 0)
        self._locks[path] = (lock, users + 1)
        try:
            await _acquire(lock)
            try:
                yield
            finally:
                lock.release()
        finally:
            lock, users = self._locks.pop(path)
            if users > 1:
                self._locks[path] = (lock, users - 1)


async def _acquire(lock: asyncio.Lock) -> None:
    try:
        async with asyncio.timeout(APPEND_LOCK_SECONDS):
            await lock.acquire()
    except TimeoutError:
        raise StreamTooHot(
            "more appends wait for this stream than it can take; try again later"
        ) from None


class OpenChains:
    """A cache of chains by path; the least recently used one is removed."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._chains: OrderedDict[str, Chain] = OrderedDict()

    def get(self, path: str) -> Chain | None:
        chain = self._chains.get(path)
        if chain is not None:
            self._chains.move_to_end(path)
        return chain

    def keep(self, chain: Chain) -> Chain:
        """Keep a chain and return it; of two for one incarnation, the one that is held already."""
        path = chain.stream.path
        held = self._chains.get(path)
        if held is not None and held is not chain:
            if held.stream.id == chain.stream.id:
                held.merge(chain)
                return held
            self.forget(held)
        self._chains[path] = chain
        self._chains.move_to_end(path)
        while len(self._chains) > self._size:
            oldest = next(iter(self._chains.values()))
            if oldest.watched or oldest is chain:
                break
            self.forget(oldest)
        return chain

    def forget(self, chain: Chain) -> None:
        if self._chains.get(chain.stream.path) is chain:
            del self._chains[chain.stream.path]
        chain.wake(everybody=True)

    def distrust(self) -> None:
        """Have the next write to each stream read the tail first."""
        for chain in self._chains.values():
            chain.seen_at = UNKNOWN

    def wake(self) -> None:
        for chain in self._chains.values():
            chain.wake(everybody=True)
