"""Sweeping in the background of a long-lived server."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from tailrace.streams import Streams

logger = logging.getLogger("tailrace")


class Sweeper:
    def __init__(self, streams: Streams, interval: float) -> None:
        self._streams = streams
        self._interval = interval
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if not self._interval:
            return
        self._task = asyncio.create_task(self._run(), name="tailrace-sweeper")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            try:
                await self._streams.sweep()
            except Exception:
                # The next round tries again; a server does not stop serving over its cleaning.
                logger.exception("sweeping failed")
            await asyncio.sleep(self._interval)
