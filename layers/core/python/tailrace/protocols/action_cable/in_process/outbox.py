"""What waits to be sent to one client: bounded, in order, and nobody else waits for it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from tailrace.limits import CABLE_QUEUE_BYTES


class Outbox:
    def __init__(
        self, too_full: Callable[[], None], write_now: Callable[[str], bool] | None = None
    ) -> None:
        """`too_full` is called, once, when the client is too slow. `write_now` sends at once, or
        says that it cannot: a thousand tasks need not be woken to send a thousand times."""
        self._too_full = too_full
        self._write_now = write_now
        self._waiting: deque[str] = deque()
        self._size = 0
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()
        self._last = False

    def push(self, text: str) -> None:
        if self._last or not text:
            return
        if not self._size and self._write_now is not None and self._write_now(text):
            return
        # A message alone may be of any size: who could not take it would never get past it.
        too_much = self._size and self._size + len(text) > CABLE_QUEUE_BYTES
        self._size += len(text)
        self._waiting.append(text)
        self._filled.set()
        self._emptied.clear()
        if too_much:
            self._too_full()

    def finish(self, text: str, *, at_once: bool = False) -> None:
        """The last thing to be sent; `at_once`: instead of all that waits."""
        if self._last:
            return
        if at_once:
            self._waiting.clear()
            self._size = 0
        if text:
            self._waiting.append(text)
            self._size += len(text)
        self._last = True
        self._filled.set()

    async def drain(self) -> None:
        """Until all is sent, or nothing more is taken."""
        if not self._last:
            await self._emptied.wait()

    async def pump(self, send: Callable[[str], Awaitable[None]]) -> None:
        """Send until the last thing is sent."""
        while True:
            while self._waiting:
                text = self._waiting.popleft()
                await send(text)
                self._size -= min(self._size, len(text))
            self._emptied.set()
            if self._last:
                return
            self._filled.clear()
            await self._filled.wait()
