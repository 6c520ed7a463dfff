"""The queue of texts to send to one client: bounded, so that no other client waits for it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from tailrace.limits import CABLE_QUEUE_BYTES


class Outbox:
    def __init__(
        self, on_overflow: Callable[[], None], write_now: Callable[[str], bool] | None = None
    ) -> None:
        """`on_overflow` is called once, when the client is too slow. `write_now` sends at once, or
        returns False: without it, a message to a thousand clients would wake a thousand tasks."""
        self._on_overflow = on_overflow
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
        # A single message may have any size: a client could otherwise never get past it.
        overflows = self._size and self._size + len(text) > CABLE_QUEUE_BYTES
        self._size += len(text)
        self._waiting.append(text)
        self._filled.set()
        self._emptied.clear()
        if overflows:
            self._on_overflow()

    def finish(self, text: str, *, at_once: bool = False) -> None:
        """Send a last text, and nothing after it. `at_once`: discard what is queued before it."""
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
        """Wait until everything is sent, or the outbox is finished."""
        if not self._last:
            await self._emptied.wait()

    async def pump(self, send: Callable[[str], Awaitable[None]]) -> None:
        """Send what is pushed, until the last text is sent."""
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
