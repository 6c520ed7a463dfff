"""The context of functions that handle events for cables: log, connections, other functions.

The event loop belongs to the process: connections to other services outlive an event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import quote

import orjson

from tailrace.aws.client.json_client import RestClient
from tailrace.aws.client.pool import ExchangeFailed
from tailrace.aws.client.service_access import CredentialsUnavailable, find_service_access
from tailrace.aws.runtime.observability import Observer
from tailrace.configuration import load_settings
from tailrace.errors import BadSetting, StoreUnavailable
from tailrace.protocols.action_cable.api_gateway.broadcaster import Broadcaster
from tailrace.protocols.action_cable.api_gateway.gateway_api import GatewayApi
from tailrace.settings import Settings
from tailrace.store.dynamodb.store import DynamoStore
from tailrace.streams import Streams

TASK: Final = "tailrace"
"""The key of the events with which our functions invoke each other."""

RESPONSE_SECONDS: Final = 50.0
"""How long to wait for the response of a function: less than our own functions may run."""

ATTEMPTS: Final = 3
PAUSE: Final = 0.05

T = TypeVar("T")


class LambdaInvoker:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client: RestClient | None = None
        self._caller: RestClient | None = None

    async def invoke(self, function: str, event: Mapping[str, Any]) -> None:
        """Invoke a function by name or ARN; twice if the response to the first call is lost."""
        if self._client is None:
            access = await find_service_access(self._settings, "lambda")
            self._client = RestClient(access, "lambda")
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

    async def call(self, function: str, event: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Invoke a function once, and return its response; None if there is none, whether it was
        invoked or not."""
        if self._caller is None:
            access = await find_service_access(self._settings, "lambda")
            self._caller = RestClient(access, "lambda", call_seconds=RESPONSE_SECONDS)
        path = f"/2015-03-31/functions/{quote(function, safe='')}/invocations"
        try:
            response = await self._caller.send("POST", path, orjson.dumps(event))
            content = orjson.loads(response.body) if response.status == 200 else None
        except (ExchangeFailed, CredentialsUnavailable, orjson.JSONDecodeError):
            return None
        # A function that failed has a response, too, which describes the error.
        return content if isinstance(content, dict) and "errorType" not in content else None

    async def close(self) -> None:
        for client in (self._client, self._caller):
            if client is not None:
                await client.close()


class EventContext:
    def __init__(self, name: str) -> None:
        self.settings = load_settings(store="dynamodb", sweep_interval=0)
        if self.settings.rpc_url:
            raise BadSetting(
                "TAILRACE_RPC_URL is for servers: channels of an application are not served on AWS"
            )
        self.observer = Observer(name, self.settings)
        self.store = DynamoStore(self.settings, meter=self.observer.record_call, check_table=False)
        self.streams = Streams(self.store, self.settings)
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        self.run(self.store.open())
        self.functions = LambdaInvoker(self.settings)
        self.gateway_api = GatewayApi(self.settings)
        self.broadcaster = Broadcaster(
            self.store.table, self.gateway_api, self.settings, self.streams.clock
        )

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    def flush(self, **metadata: Any) -> None:
        """Publish the metrics."""
        for outcome, times in self.gateway_api.counts.items():
            self.observer.count(f"cable_{outcome}_total", times)
        self.gateway_api.counts.clear()
        self.observer.flush(**metadata)

    def close(self) -> None:
        self.run(self.functions.close())
        self.run(self.gateway_api.close())
        self.run(self.store.close())
        self._loop.close()
