"""A gateway that is a dictionary."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence

from tailrace.errors import StoreUnavailable
from tailrace.protocols.action_cable.api_gateway.gateway_api import Sent


class Wires:
    """What each connection was sent; one that is not in here is gone."""

    def __init__(self) -> None:
        self.sent: dict[str, list[str]] = {}
        self.ended: list[str] = []
        self.counts: Counter[str] = Counter()
        self.slow = 0.0
        """Longest time that a frame takes."""
        self.doubt: Callable[[str], bool] = lambda _: False
        """Whether the fate of a frame is unclear: it arrives or not."""
        self.broken: set[str] = set()
        """Connections that API Gateway refuses to send anything to."""

    async def send(self, connection: str, frames: Sequence[str]) -> Sent:
        for frame in frames:
            if self.slow:
                await asyncio.sleep(random.uniform(0, self.slow))
            if connection in self.broken:
                raise StoreUnavailable("API Gateway refuses what is sent")
            if connection not in self.sent:
                self.counts["gone"] += 1
                return Sent.GONE
            if self.doubt(frame):
                if random.random() < 0.5:
                    self.sent[connection].append(frame)
                return Sent.DOUBTFUL
            self.sent[connection].append(frame)
            self.counts["posts"] += 1
        return Sent.OK

    async def end(self, connection: str) -> None:
        self.ended.append(connection)
        self.sent.pop(connection, None)

    async def close(self) -> None:
        pass
