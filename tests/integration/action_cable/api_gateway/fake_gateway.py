"""A fake of API Gateway's management API."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence

from tailrace.errors import StoreUnavailable
from tailrace.protocols.action_cable.api_gateway.gateway_api import SendResult


class FakeConnectionApi:
    """Keeps the frames sent to each connection; a connection without an entry is gone."""

    def __init__(self) -> None:
        self.sent: dict[str, list[str]] = {}
        self.ended: list[str] = []
        self.counts: Counter[str] = Counter()
        self.slow = 0.0
        """The longest time to send a frame, in seconds."""
        self.doubt: Callable[[str], bool] = lambda _: False
        """Whether the outcome of a frame is uncertain: it arrives or not, at random."""
        self.broken: set[str] = set()
        """Connections that API Gateway refuses to send anything to."""

    async def send(
        self,
        connection: str,
        frames: Sequence[str],
        attempts: int | None = None,  # noqa: ARG002 - nothing is throttled
    ) -> SendResult:
        for frame in frames:
            if self.slow:
                await asyncio.sleep(random.uniform(0, self.slow))
            if connection in self.broken:
                raise StoreUnavailable("API Gateway refuses a frame")
            if connection not in self.sent:
                self.counts["gone"] += 1
                return SendResult.GONE
            if self.doubt(frame):
                if random.random() < 0.5:
                    self.sent[connection].append(frame)
                return SendResult.DOUBTFUL
            self.sent[connection].append(frame)
            self.counts["posts"] += 1
        return SendResult.OK

    async def end(self, connection: str) -> None:
        self.ended.append(connection)
        self.sent.pop(connection, None)

    async def close(self) -> None:
        pass
