"""The application as a function runs it: watched, and behind the door."""

from __future__ import annotations

import asyncio
import random
from typing import Any, Self

from tailrace.aws.access import keeper
from tailrace.aws.door import Door, origin_secret
from tailrace.aws.observe import Observed, Observer
from tailrace.http.asgi import Application, Receive, Scope, Send
from tailrace.settings import Settings
from tailrace.store.dynamo.store import DynamoStore


class Function:
    """An ASGI application; its lifespan opens and closes the store."""

    def __init__(self, name: str, **given: Any) -> None:
        # The stack made the table, the edge compresses, and a function is not there to sweep.
        settings = Settings.from_env(
            store="dynamodb", check_table=False, compress_bytes=0, sweep_interval=0, **given
        )
        observer = Observer(name, settings)
        store = DynamoStore(settings, meter=observer.called)
        self._application = Application(settings, store, keeper=keeper(settings))
        door = Door(self._application, origin_secret(settings))
        self._app = Observed(door, observer, store.outcomes)
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
