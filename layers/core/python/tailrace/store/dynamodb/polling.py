"""Waiting: one task per stream and process polls the next slot, for all waits for it.

The pause between two polls is shortest while the stream has had news in the last minutes, and then
grows with the silence. Polls are eventually consistent, at half the price: readers read again
anyway.
"""

from __future__ import annotations

import asyncio

from tailrace.clock import Clock
from tailrace.errors import StoreUnavailable, StreamTooHot
from tailrace.limits import POLLS_PER_SECOND, RECENT_SECONDS
from tailrace.settings import Settings
from tailrace.store.base import resolve
from tailrace.store.dynamodb import layout
from tailrace.store.dynamodb.chain import Chain
from tailrace.store.dynamodb.table import Table


class Poller:
    def __init__(self, table: Table, clock: Clock, settings: Settings) -> None:
        self._table = table
        self._clock = clock
        self._fastest = settings.poll_fastest
        self._slowest = max(self._fastest, settings.poll_slowest)
        self._rate = 0.0
        """Polls a second that the pauses of all streams would make."""
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
        rate = 0.0
        try:
            while True:
                pause = self._pause(now() - chain.written_at)
                self._rate += 1 / pause - rate
                rate = 1 / pause
                await asyncio.sleep(pause * max(1.0, self._rate / POLLS_PER_SECOND))
                if chain.waiters:
                    await self._read_slot(chain, max(chain.waiters.values()))
        finally:
            self._rate -= rate

    def _pause(self, silence: float) -> float:
        return min(self._fastest * max(silence / RECENT_SECONDS, 1.0), self._slowest)

    async def _read_slot(self, chain: Chain, slot: int) -> None:
        begun = asyncio.get_running_loop().time()
        try:
            item = await self._table.get(layout.slot_key(chain.stream.id, slot), consistent=False)
        except (StoreUnavailable, StreamTooHot):
            return  # A reader reads after its wait, and gets the error if that fails, too.
        chain.known_at = max(chain.known_at, begun)
        if item is not None:
            state = layout.entry_of(item).state
            chain.observe(state, begun - max(0, self._clock() - state.written_at) / 1000)
