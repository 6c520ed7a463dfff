"""Client of API Gateway's management API, which takes one call for each frame.

A frame that was throttled (429) is sent again. One whose outcome is uncertain is not: the client
might get it twice, or without the frame before it. The caller ends that connection instead, and the
client reconnects with the position of the last message that it got.
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

from tailrace.aws.client.json_client import RestClient
from tailrace.aws.client.pool import ExchangeFailed, ServiceResponse
from tailrace.aws.client.service_access import CredentialsUnavailable, find_service_access
from tailrace.errors import StoreUnavailable
from tailrace.limits import GATEWAY_FRAME_BYTES
from tailrace.settings import Settings

ATTEMPTS: Final = 12
PAUSE: Final = 0.025
LONGEST_PAUSE: Final = 1.0

logger = logging.getLogger("tailrace")


class SendResult(Enum):
    """The outcome of sending frames to a connection."""

    OK = auto()
    GONE = auto()
    """The connection no longer exists."""
    DOUBTFUL = auto()
    """The last frame may have arrived or not."""


class ConnectionApi(Protocol):
    """Sends frames to connections, and closes them."""

    counts: Counter[str]

    async def send(
        self, connection: str, frames: Sequence[str], attempts: int | None = None
    ) -> SendResult:
        """Send frames in order, until one fails. Frames that are too large are skipped.
        `attempts`: how often a frame is sent that API Gateway throttles; None: ATTEMPTS."""

    async def end(self, connection: str) -> None:
        """Close a connection."""

    async def close(self) -> None: ...


class GatewayApi:
    """The `ConnectionApi` of the WebSocket API at `cable_endpoint`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client: RestClient | None = None
        self.counts: Counter[str] = Counter()
        """Frames by outcome: posts, gone, doubtful, oversized."""

    async def send(
        self, connection: str, frames: Sequence[str], attempts: int | None = None
    ) -> SendResult:
        for frame in frames:
            body = frame.encode()
            if len(body) > GATEWAY_FRAME_BYTES:
                self.counts["oversized"] += 1
                logger.warning(
                    "a message of %d bytes is too large for a cable, and is skipped", len(body)
                )
                continue
            result = await self._post(connection, body, attempts or ATTEMPTS)
            if result is not SendResult.OK:
                return result
        return SendResult.OK

    async def end(self, connection: str) -> None:
        for attempt in range(ATTEMPTS):
            try:
                answer = await self._call("DELETE", connection)
            except ExchangeFailed:
                status = 500
            else:
                status = answer.status
            if status < 500 and status != 429:
                return
            await _pause(attempt)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def _post(self, connection: str, body: bytes, attempts: int) -> SendResult:
        for attempt in range(attempts):
            try:
                answer = await self._call("POST", connection, body)
            except ExchangeFailed as broken:
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
                        return SendResult.OK
                    case 410:
                        self.counts["gone"] += 1
                        return SendResult.GONE
                    case 429:
                        pass
                    case status if status >= 500:
                        break
                    case status:
                        raise StoreUnavailable(
                            f"API Gateway refuses a frame: status {status}, {answer.body[:200]!r}"
                        )
            await _pause(attempt)
        self.counts["doubtful"] += 1
        return SendResult.DOUBTFUL

    async def _call(self, method: str, connection: str, body: bytes = b"") -> ServiceResponse:
        if self._client is None:
            access = await find_service_access(self._settings, "apigatewaymanagementapi")
            self._client = RestClient(access, "execute-api", self._settings.cable_endpoint)
        return await self._client.send(method, f"/@connections/{quote(connection, safe='')}", body)


async def _pause(attempt: int) -> None:
    longest = min(LONGEST_PAUSE, PAUSE * 2**attempt)
    await asyncio.sleep(random.uniform(0, longest))  # noqa: S311 - no secret
