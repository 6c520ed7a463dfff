"""Waiting: one task per stream and process polls the next slot, for all waits for it.

The pause between two polls grows with the silence, so that an entry is late by a share of the time
it took to come. Polls are eventually consistent, at half the price: readers read again anyway.
"""

from __future__ import annotations

import asyncio
from typing import Final

from tailrace.clock import Clock
from tailrace.errors import StoreUnavailable, StreamTooHot
from tailrace.limits import POLL_MILLISECONDS
from tailrace.store.base import resolve
from tailrace.store.dynamodb import layout
from tailrace.store.dynamodb.chain import Chain
from tailrace.store.dynamodb.table import Table

SHARE: Final = 0.1
"""Of the silence so far: how late an entry may be noticed."""


class Poller:
    def __init__(self, table: Table, clock: Clock, slowest: float) -> None:
        self._table = table
        self._clock = clock
        self._fastest = POLL_MILLISECONDS / 1000
        self._slowest = max(self._fastest, slowest)
        self._tasks: set[asyncio.Task[None]] = set()

    async def wait(self, chain: Chain, slot: int, seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        chain.waiters[waiter] = slot
        chain.watchers += 1
        timer = loop.call_later(seconds, resolve, waiter, False)
        if chain.polling is None:
            chain.polling = loop.create_task(self._poll(chain))
            self._tasks.add(chain.polling)
            chain.polling.add_done_callback(self._tasks.discard)
        try:
            return await waiter
        finally:
            timer.cancel()
            chain.watchers -= 1
            chain.waiters.pop(waiter, None)
            if not chain.waiters and chain.polling is not None:
                chain.polling.cancel()
                chain.polling = None

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _poll(self, chain: Chain) -> None:
        now = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(self._pause(now() - chain.written_at))
            if chain.waiters:
                await self._read_slot(chain, max(chain.waiters.values()))

    def _pause(self, silence: float) -> float:
        return min(max(silence * SHARE, self._fastest), self._slowest)

    async def _read_slot(self, chain: Chain, slot: int) -> None:
        now = asyncio.get_running_loop().time()
        try:
            item = await self._table.get(layout.slot_key(chain.stream.id, slot), consistent=False)
        except (StoreUnavailable, StreamTooHot):
            return  # A reader reads after its wait, and gets the error if that fails, too.
        if item is not None:
            state = layout.entry_of(item).state
            chain.observe(state, now - max(0, self._clock() - state.written_at) / 1000)
