"""What a long-lived server does in the background, again and again: sweeping, compacting."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

logger = logging.getLogger("tailrace")


class Sweeper:
    def __init__(self, what: str, work: Callable[[], Awaitable[object]], interval: float) -> None:
        """`what` the log calls it; an interval of 0: never."""
        self._what = what
        self._work = work
        self._interval = interval
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if not self._interval:
            return
        self._task = asyncio.create_task(self._run(), name=f"tailrace-{self._what}")

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
                # The next round tries again; a server does not stop serving over its cleaning.
                logger.exception("%s failed", self._what)
            await asyncio.sleep(self._interval)
