"""Long work on the event loop gives way to everybody else."""

from __future__ import annotations

import asyncio
import time
from typing import Final

SLICE_SECONDS: Final = 0.005
"""For how long work may go on at a time: an append takes less than that to be acknowledged."""


class Pace:
    """Work that calls `rest` after each bounded step holds up nobody for long."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    async def rest(self) -> None:
        """Let others run, if it is their turn."""
        if time.perf_counter() - self._since >= SLICE_SECONDS:
            await asyncio.sleep(0)
            self._since = time.perf_counter()
