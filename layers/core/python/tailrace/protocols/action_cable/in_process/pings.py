"""Pings, by which clients know that somebody is there."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence

from tailrace.clock import Clock
from tailrace.protocols.action_cable.core import pings
from tailrace.protocols.action_cable.in_process.listener import Client


class Pings:
    """As often as the server does it, or as a client asks for."""

    def __init__(self, query: Mapping[str, Sequence[str]], interval: float, clock: Clock) -> None:
        self._interval = pings.interval(query, interval)
        self._unit = pings.unit(query)
        self._clock = clock

    async def __call__(self, client: Client) -> None:
        if not self._interval:
            return
        # At some time, so that clients that came together are not pinged together.
        await asyncio.sleep(self._interval * random.uniform(0.5, 1.5))  # noqa: S311 - no secret
        while True:
            client.push(client.encoder.control(pings.ping(self._clock(), self._unit)))
            await asyncio.sleep(self._interval)
