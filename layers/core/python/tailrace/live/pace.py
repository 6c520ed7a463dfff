"""Long work on the event loop lets other tasks run in between."""

from __future__ import annotations

import asyncio
import time
from typing import Final

SLICE_SECONDS: Final = 0.005
"""How long work may hold the event loop at a time: an append is acknowledged in less than that."""


class Pace:
    """Splits long work into slices: call `rest` after each bounded step."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    async def rest(self) -> None:
        """Let other tasks run if the current slice is over."""
        if time.perf_counter() - self._since >= SLICE_SECONDS:
            await asyncio.sleep(0)
            self._since = time.perf_counter()
