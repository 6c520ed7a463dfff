"""What is sent to clients: API Gateway's management API, one call a frame.

A frame that is refused for its rate is sent again. One whose fate is unclear is not: the client
might get it twice, or without one before it. Whoever sends ends that connection instead, and the
client comes back and says how far it has got.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Sequence
from enum import Enum, auto
from typing import Final, Protocol
from urllib.parse import quote

from tailrace.aws.client.endpoint import CredentialsUnavailable
from tailrace.aws.client.lambda_credentials import find_access
from tailrace.aws.client.pool import Answer, Broken
from tailrace.aws.client.rest_client import RestClient
from tailrace.errors import StoreUnavailable
from tailrace.limits import CABLE_POST_BYTES
from tailrace.settings import Settings

ATTEMPTS: Final = 8
PAUSE: Final = 0.025
LONGEST_PAUSE: Final = 1.0

logger = logging.getLogger("tailrace")


class Sent(Enum):
    """What came of sending."""

    OK = auto()
    GONE = auto()
    """There is no such connection any more."""
    DOUBTFUL = auto()
    """It may have arrived or not."""


class Posts(Protocol):
    counts: Counter[str]

    async def send(self, connection: str, frames: Sequence[str]) -> Sent:
        """In their order, until one is not sent. What is too large is left out."""

    async def end(self, connection: str) -> None:
        """Close it."""

    async def close(self) -> None: ...


class GatewayApi:
    """The `Posts` of the API that `cable_endpoint` names."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client: RestClient | None = None
        self.counts: Counter[str] = Counter()
        """What came of frames: posts, gone, doubtful, oversized."""

    async def send(self, connection: str, frames: Sequence[str]) -> Sent:
        for frame in frames:
            body = frame.encode()
            if len(body) > CABLE_POST_BYTES:
                self.counts["oversized"] += 1
                logger.warning("a message of %d bytes is too large for a cable", len(body))
                continue
            sent = await self._post(connection, body)
            if sent is not Sent.OK:
                return sent
        return Sent.OK

    async def end(self, connection: str) -> None:
        for attempt in range(ATTEMPTS):
            try:
                answer = await self._ask("DELETE", connection)
            except Broken:
                status = 500
            else:
                status = answer.status
            if status < 500 and status != 429:
                return
            await _pause(attempt)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def _post(self, connection: str, body: bytes) -> Sent:
        for attempt in range(ATTEMPTS):
            try:
                answer = await self._ask("POST", connection, body)
            except Broken as broken:
                if broken.sent:
                    break
            except CredentialsUnavailable as error:
                raise StoreUnavailable(str(error)) from error
            else:
                match answer.status:
                    case 200 if answer.resent:
                        break
                    case 200:
                        self.counts["posts"] += 1
                        return Sent.OK
                    case 410:
                        self.counts["gone"] += 1
                        return Sent.GONE
                    case 429:
                        pass
                    case status if status >= 500:
                        break
                    case status:
                        raise StoreUnavailable(
                            f"API Gateway refuses what is sent: {status} {answer.body[:200]!r}"
                        )
            await _pause(attempt)
        self.counts["doubtful"] += 1
        return Sent.DOUBTFUL

    async def _ask(self, method: str, connection: str, body: bytes = b"") -> Answer:
        if self._client is None:
            access = await find_access(self._settings, "apigatewaymanagementapi")
            self._client = RestClient(
                access, "execute-api", self._settings.connections, self._settings.cable_endpoint
            )
        return await self._client.send(method, f"/@connections/{quote(connection, safe='')}", body)


async def _pause(attempt: int) -> None:
    longest = min(LONGEST_PAUSE, PAUSE * 2**attempt)
    await asyncio.sleep(random.uniform(0, longest))  # noqa: S311 - no secret
