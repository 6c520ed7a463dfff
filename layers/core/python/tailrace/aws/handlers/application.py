"""The application as a function runs it: observed, and behind the origin guard."""

from __future__ import annotations

import asyncio
import random
from typing import Any, Self

from tailrace.app import Application
from tailrace.aws.edge.origin_guard import OriginGuard, create_origin_secret
from tailrace.aws.runtime.observability import ObservedApp, Observer
from tailrace.aws.runtime.policy_provider import create_policy_provider
from tailrace.clock import system_clock
from tailrace.configuration import load_settings
from tailrace.store.dynamodb.store import DynamoStore
from tailrace.store.dynamodb.wait_permits import WaitPermits
from tailrace.web.asgi import Receive, Scope, Send


class FunctionApplication:
    """An ASGI application; its lifespan opens and closes the store."""

    def __init__(self, name: str, **overrides: Any) -> None:
        # The sweep is a job.
        settings = load_settings(store="dynamodb", sweep_interval=0, **overrides)
        observer = Observer(name, settings)
        # The stack has created the table.
        store = DynamoStore(settings, meter=observer.record_call, check_table=False)
        self._application = Application(
            settings,
            store,
            provider=create_policy_provider(settings),
            permits=WaitPermits(store, settings.missing_waits, system_clock),
            serves_many=False,
            compresses=False,  # CloudFront does.
        )
        guard = OriginGuard(self._application, create_origin_secret(settings))
        self._app = ObservedApp(guard, observer, store.outcomes)
        self._fresh = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._fresh and scope["type"] == "http":
            # Environments restored from one snapshot share a seed, and would back off in step.
            random.seed()
            self._fresh = False
        await self._app(scope, receive, send)

    def start(self) -> Self:
        """Open the store now, for Mangum, whose lifespan would last for one request only.

        The new event loop becomes the thread's current one, where Mangum expects it."""
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        loop.run_until_complete(self._application.start())
        return self
