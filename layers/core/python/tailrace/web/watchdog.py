"""How long the event loop was held by one thing while everybody else waited."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import Final, Self

INTERVAL: Final = 0.025
"""Seconds between two looks, and so how exact a block is measured."""

WINDOW: Final = 60.0
"""Seconds for which a block is remembered."""

WARN_SECONDS: Final = 0.1
"""A block that is worth a line in the log: people begin to notice it."""

QUIET_SECONDS: Final = 10.0
"""Between two such lines."""

logger = logging.getLogger("tailrace")


class Watchdog:
    """Wakes up often, and sees how late, by the CPU time that the event loop's thread took.

    Lateness alone would tell how busy the machine is, CPU time alone how busy the server is. The
    loop was held for the smaller of both: since the time to wake up it did nothing else. Where it
    is not started, as in a function that has one request at a time, it knows nothing."""

    def __init__(self) -> None:
        self._blocks: deque[tuple[float, float]] = deque()
        """When, and how long, each longer than all that follow it."""
        self._warned = float("-inf")
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        self._task = None

    def longest_block(self) -> float | None:
        """Seconds, of the last minute; None where nobody looks."""
        if self._task is None:
            return None
        self._forget(time.monotonic())
        return self._blocks[0][1] if self._blocks else 0.0

    def note(self, now: float, late: float, used: float) -> None:
        """The watchdog woke up late, after the thread has used some CPU time."""
        block = min(late, used)
        if block <= 0:
            return
        while self._blocks and self._blocks[-1][1] <= block:
            self._blocks.pop()
        self._blocks.append((now, block))
        self._forget(now)
        if block >= WARN_SECONDS and now - self._warned >= QUIET_SECONDS:
            self._warned = now
            logger.warning("the event loop was held for %d ms", block * 1000)

    def _forget(self, now: float) -> None:
        while self._blocks and self._blocks[0][0] < now - WINDOW:
            self._blocks.popleft()

    async def _watch(self) -> None:
        now, cpu = time.monotonic(), time.thread_time()
        while True:
            await asyncio.sleep(INTERVAL)
            due = now + INTERVAL
            before, now = cpu, time.monotonic()
            cpu = time.thread_time()
            self.note(now, now - due, cpu - before)
