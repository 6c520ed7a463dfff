"""The system clock in milliseconds, which only this module reads, and periodic tasks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable

from tailrace.errors import TailraceError

logger = logging.getLogger("tailrace")

Clock = Callable[[], int]


def system_clock() -> int:
    return time.time_ns() // 1_000_000


class PeriodicTask:
    """Work that is repeated in the background, such as deleting expired streams."""

    def __init__(self, name: str, work: Callable[[], Awaitable[object]], interval: float) -> None:
        """`name`: names the work in the log. `interval`: seconds of pause; 0: never run."""
        self._name = name
        self._work = work
        self._interval = interval
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._interval:
            self._task = asyncio.create_task(self._run(), name=f"tailrace-{self._name}")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        failed = False
        while True:
            try:
                await self._work()
                failed = False
            # The next run tries again: the server goes on serving if its maintenance fails.
            except (OSError, TailraceError) as error:
                # A full disk, or a store that does not respond, is no bug, and may last for hours.
                if not failed:
                    logger.error("%s failed: %s", self._name, error)
                failed = True
            except Exception:
                logger.exception("%s failed", self._name)
            await asyncio.sleep(self._interval)
