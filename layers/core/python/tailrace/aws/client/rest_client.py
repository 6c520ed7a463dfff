"""Calls to AWS services that speak REST, over a pool of connections: one attempt each.

What an answer means, and whether to try again, is for the caller to say.
"""

from __future__ import annotations

import time
from typing import Final
from urllib.parse import urlsplit

from tailrace.aws.client.endpoint import Access
from tailrace.aws.client.json_client import tls
from tailrace.aws.client.pool import Answer, Pool
from tailrace.aws.client.sigv4 import RestSigner

IDLE_SECONDS: Final = 10.0
"""How long a connection waits for its next request: on one that the server has closed meanwhile a
request would be sent twice."""


class RestClient:
    def __init__(
        self, access: Access, service: str, connections: int, url: str | None = None
    ) -> None:
        """`url`: of what is asked for, where that is not the service's own endpoint. On this
        machine everything is at one address, and is told apart by its host."""
        asked = urlsplit(url or access.endpoint)
        place = urlsplit(access.endpoint) if access.local else asked
        secure = place.scheme == "https"
        assert place.hostname is not None
        port = place.port or (443 if secure else 80)
        self._access = access
        self._base = asked.path.rstrip("/")
        self._signer = RestSigner(asked.netloc, access.region, service)
        self._pool = Pool(
            place.hostname,
            port,
            tls(access.ca_bundle) if secure else None,
            connections,
            IDLE_SECONDS,
        )

    async def send(self, method: str, path: str, body: bytes = b"", more: str = "") -> Answer:
        """Raises `Broken`, and `CredentialsUnavailable`."""
        credentials = await self._access.credentials()
        where = f"{self._base}{path}"
        request = self._signer.request(method, where, body, credentials, time.time(), more)
        return await self._pool.exchange(request)

    async def close(self) -> None:
        await self._pool.close()
