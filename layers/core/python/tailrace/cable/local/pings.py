"""Pings, by which clients know that somebody is there."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Final

from tailrace.cable import frames
from tailrace.cable.local.listener import Client
from tailrace.clock import Clock

FASTEST: Final = 0.1
SLOWEST: Final = 3600.0

_DIVISORS: Final = {"s": 1000, "ms": 1}


class Pings:
    """As often as the server does it, or as a client asks for with `pi` (0: never), with a time in
    the unit that it asks for with `ptp`: s, ms or ns."""

    def __init__(self, query: Mapping[str, Sequence[str]], interval: float, clock: Clock) -> None:
        self._interval = _interval(query.get("pi", ("",))[-1], interval)
        self._unit = query.get("ptp", ("s",))[-1]
        self._clock = clock

    async def __call__(self, client: Client) -> None:
        if not self._interval:
            return
        # At some time, so that clients that came together are not pinged together.
        await asyncio.sleep(self._interval * random.uniform(0.5, 1.5))  # noqa: S311 - no secret
        while True:
            client.push(client.encoder.control(frames.ping(self._now())))
            await asyncio.sleep(self._interval)

    def _now(self) -> int:
        now = self._clock()
        return now * 1_000_000 if self._unit == "ns" else now // _DIVISORS.get(self._unit, 1000)


def _interval(asked: str, default: float) -> float:
    try:
        seconds = float(asked)
    except ValueError:
        return default
    if seconds == 0:
        return 0
    return min(max(seconds, FASTEST), SLOWEST) if seconds > 0 else default
