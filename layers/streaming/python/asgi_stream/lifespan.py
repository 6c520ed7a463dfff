"""The app's lifespan: startup during the environment's init, shutdown on SIGTERM."""

from __future__ import annotations

import asyncio
from typing import Any

from asgi_stream.asgi import App, Message
from asgi_stream.faults import StartupFailed, log


class Lifespan:
    """As with uvicorn, an app without lifespan support is served nevertheless, and each request
    gets a copy of `state`."""

    def __init__(self, app: App) -> None:
        self.state: dict[str, Any] = {}
        self._app = app
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self._started = asyncio.Event()
        self._stopped = asyncio.Event()
        self._failure: str | None = None

    async def start(self) -> None:
        self._messages.put_nowait({"type": "lifespan.startup"})
        self._task = asyncio.create_task(self._run())
        await self._started.wait()
        if self._failure is not None:
            raise StartupFailed(self._failure)

    async def stop(self) -> None:
        self._messages.put_nowait({"type": "lifespan.shutdown"})
        await self._stopped.wait()

    async def _run(self) -> None:
        asgi = {"version": "3.0", "spec_version": "2.0"}
        scope = {"type": "lifespan", "asgi": asgi, "state": self.state}
        try:
            await self._app(scope, self._messages.get, self._send)
        except Exception as error:  # noqa: BLE001 - whatever the app raises
            if self._started.is_set():
                log("the app's lifespan failed", error)
            else:
                log(f"the app does not support lifespan: {error!r}")
        finally:
            self._started.set()
            self._stopped.set()

    async def _send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "lifespan.startup.failed":
            self._failure = message.get("message") or "the app gave no reason"
        if kind == "lifespan.shutdown.failed":
            log(f"the app's shutdown failed: {message.get('message')}")
        (self._started if "startup" in kind else self._stopped).set()
