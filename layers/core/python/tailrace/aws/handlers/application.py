"""The application as a function runs it: watched, and behind the guard."""

from __future__ import annotations

import asyncio
import random
from typing import Any, Self

from tailrace.app import Application
from tailrace.aws.edge.origin_guard import OriginGuard, origin_secret
from tailrace.aws.runtime.observability import Observed, Observer
from tailrace.aws.runtime.policy_provider import provider
from tailrace.configuration import load_settings
from tailrace.store.dynamodb.store import DynamoStore
from tailrace.web.asgi import Receive, Scope, Send


class Function:
    """An ASGI application; its lifespan opens and closes the store."""

    def __init__(self, name: str, **given: Any) -> None:
        # The stack made the table, the edge compresses, and a function is not there to sweep.
        settings = load_settings(
            store="dynamodb", check_table=False, compress_bytes=0, sweep_interval=0, **given
        )
        observer = Observer(name, settings)
        store = DynamoStore(settings, meter=observer.called)
        self._application = Application(settings, store, provider=provider(settings))
        guard = OriginGuard(self._application, origin_secret(settings))
        self._app = Observed(guard, observer, store.outcomes)
        self._fresh = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._fresh and scope["type"] == "http":
            # Environments restored from one snapshot would back off in step with each other.
            random.seed()
            self._fresh = False
        await self._app(scope, receive, send)

    def started(self) -> Self:
        """Opened now, for an adapter whose lifespan would last for one request only.

        The event loop is the thread's own from here on, as Mangum expects it."""
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        loop.run_until_complete(self._application.start())
        return self
