"""Tasks that the server repeats in the background, such as deleting expired streams."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

logger = logging.getLogger("tailrace")


class PeriodicTask:
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
        while True:
            try:
                await self._work()
            except Exception:
                # The next run tries again: the server goes on serving if its maintenance fails.
                logger.exception("%s failed", self._name)
            await asyncio.sleep(self._interval)
