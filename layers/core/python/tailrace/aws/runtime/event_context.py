"""The context of functions that handle events for cables: the log, and the connections.

The event loop belongs to the process: connections to other services outlive an event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from tailrace.aws.runtime.observability import Observer
from tailrace.configuration import load_settings
from tailrace.protocols.action_cable.api_gateway.broadcaster import Broadcaster
from tailrace.protocols.action_cable.api_gateway.gateway_api import GatewayApi
from tailrace.store.dynamodb.store import DynamoStore
from tailrace.streams import Streams

T = TypeVar("T")


class EventContext:
    def __init__(self, name: str) -> None:
        self.settings = load_settings(store="dynamodb", check_table=False, sweep_interval=0)
        self.observer = Observer(name, self.settings)
        self.store = DynamoStore(self.settings, meter=self.observer.record_call)
        self.streams = Streams(self.store, self.settings)
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        self.run(self.store.open())
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
        self.run(self.gateway_api.close())
        self.run(self.store.close())
        self._loop.close()
