"""Asynchronous invocation of Lambda functions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import orjson

from tailrace.aws.client.json_client import RestClient
from tailrace.aws.client.lambda_credentials import find_service_access
from tailrace.aws.client.pool import ExchangeFailed
from tailrace.errors import StoreUnavailable
from tailrace.settings import Settings

ATTEMPTS: Final = 3
PAUSE: Final = 0.05


class LambdaInvoker:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client: RestClient | None = None

    async def invoke(self, function: str, event: Mapping[str, Any]) -> None:
        """Invoke a function by name or ARN; twice if the response to the first call is lost."""
        if self._client is None:
            access = await find_service_access(self._settings, "lambda")
            self._client = RestClient(access, "lambda", self._settings.connections)
        path = f"/2015-03-31/functions/{quote(function, safe='')}/invocations"
        body, reason = orjson.dumps(event), ""
        for attempt in range(ATTEMPTS):
            try:
                response = await self._client.send(
                    "POST", path, body, "x-amz-invocation-type:Event\r\n"
                )
            except ExchangeFailed as failure:
                reason = str(failure)
            else:
                if response.status == 202:
                    return
                reason = f"status {response.status}: {response.body[:200]!r}"
                if response.status < 500 and response.status != 429:
                    break
            await asyncio.sleep(PAUSE * 2**attempt)
        raise StoreUnavailable(f"the function {function} could not be invoked: {reason}")

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
