"""How often a client may do something."""

from __future__ import annotations

import time
from collections.abc import Callable


class Rate:
    """A bucket with room for `burst`, of which `rate` drain each second; at a rate of 0 nothing is
    ever refused."""

    def __init__(
        self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cost = 1 / rate if rate else 0.0
        # A bucket without room for one would never take any.
        self._room = self._cost * max(burst, 1)
        self._clock = clock
        self._used_until = 0.0

    def take(self) -> float:
        """Count one; if there is no room for it, nothing is counted: the seconds until there is."""
        now = self._clock()
        used_until = max(self._used_until, now) + self._cost
        over = used_until - now - self._room
        # Sums of fractions are not exact: without the margin the last of a burst might be refused.
        if over > 1e-6:
            return over
        self._used_until = used_until
        return 0.0
