"""Measures for how long single callbacks block the event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import Final, Self

INTERVAL: Final = 0.025
"""Seconds between two measurements, and so their precision."""

WINDOW: Final = 60.0
"""Seconds for which a block is reported."""

WARN_SECONDS: Final = 0.1
"""Blocks from this length on are logged: users begin to notice them."""

QUIET_SECONDS: Final = 10.0
"""Seconds between two such log lines."""

logger = logging.getLogger("tailrace")


class Watchdog:
    """Wakes up often and measures how late it is, and the CPU time of the event loop's thread.

    Lateness alone shows how busy the machine is, CPU time alone how busy the server is; a block is
    the smaller of both. Lambda functions, which have one request at a time, do not start it."""

    def __init__(self) -> None:
        self._blocks: deque[tuple[float, float]] = deque()
        """Time and length of blocks; each is longer than all that follow it."""
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
        """The longest block of the last minute in seconds; None if the watchdog does not run."""
        if self._task is None:
            return None
        self._drop_old(time.monotonic())
        return self._blocks[0][1] if self._blocks else 0.0

    def record(self, now: float, late: float, used: float) -> None:
        """Record that the watchdog woke up late, after the thread used some CPU time."""
        block = min(late, used)
        if block <= 0:
            return
        while self._blocks and self._blocks[-1][1] <= block:
            self._blocks.pop()
        self._blocks.append((now, block))
        self._drop_old(now)
        if block >= WARN_SECONDS and now - self._warned >= QUIET_SECONDS:
            self._warned = now
            logger.warning("the event loop was blocked for %d ms", block * 1000)

    def _drop_old(self, now: float) -> None:
        while self._blocks and self._blocks[0][0] < now - WINDOW:
            self._blocks.popleft()

    async def _watch(self) -> None:
        now, cpu = time.monotonic(), time.thread_time()
        while True:
            await asyncio.sleep(INTERVAL)
            due = now + INTERVAL
            before, now = cpu, time.monotonic()
            cpu = time.thread_time()
            self.record(now, now - due, cpu - before)
