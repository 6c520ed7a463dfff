"""Health of the server: whether its store does its part, now."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from tailrace.errors import StoreUnavailable
from tailrace.limits import HEALTH_SECONDS, PROBE_SECONDS
from tailrace.store.base import Probed


class StoreHealth:
    """Probes the store, at most once a second however many ask."""

    def __init__(self, store: Probed) -> None:
        self._store: Final = store
        self._lock = asyncio.Lock()
        self._probed_at = float("-inf")
        self._error: StoreUnavailable | None = None

    async def check(self) -> None:
        """Raise StoreUnavailable while the store does not do its part."""
        async with self._lock:
            if time.monotonic() - self._probed_at >= HEALTH_SECONDS:
                self._error = await self._probe()
                self._probed_at = time.monotonic()
        if self._error is not None:
            raise self._error

    async def _probe(self) -> StoreUnavailable | None:
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await self._store.probe()
        except StoreUnavailable as error:
            return StoreUnavailable(str(error))
        except TimeoutError:
            return StoreUnavailable(f"the store did not answer within {PROBE_SECONDS} seconds")
        return None
