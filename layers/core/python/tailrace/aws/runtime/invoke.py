"""Functions that have something done by others, without waiting for it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import orjson

from tailrace.aws.client.lambda_credentials import find_access
from tailrace.aws.client.pool import Broken
from tailrace.aws.client.rest_client import RestClient
from tailrace.errors import StoreUnavailable
from tailrace.settings import Settings

ATTEMPTS: Final = 3
PAUSE: Final = 0.05


class Functions:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client: RestClient | None = None

    async def wake(self, function: str, event: Mapping[str, Any]) -> None:
        """`function`: its name or ARN. It may be woken twice when an answer gets lost."""
        if self._client is None:
            access = await find_access(self._settings, "lambda")
            self._client = RestClient(access, "lambda", self._settings.connections)
        path = f"/2015-03-31/functions/{quote(function, safe='')}/invocations"
        body, why = orjson.dumps(event), ""
        for attempt in range(ATTEMPTS):
            try:
                answer = await self._client.send(
                    "POST", path, body, "x-amz-invocation-type:Event\r\n"
                )
            except Broken as broken:
                why = str(broken)
            else:
                if answer.status == 202:
                    return
                why = f"status {answer.status}: {answer.body[:200]!r}"
                if answer.status < 500 and answer.status != 429:
                    break
            await asyncio.sleep(PAUSE * 2**attempt)
        raise StoreUnavailable(f"the function {function} could not be woken: {why}")

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
