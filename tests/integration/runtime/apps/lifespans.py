"""Apps that differ in what they do with their lifespan."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


async def full(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await _show(scope, send)
        return
    assert (await receive())["type"] == "lifespan.startup"
    await asyncio.sleep(0.05)
    scope["state"]["visits"] = []
    scope["state"]["name"] = "full"
    await send({"type": "lifespan.startup.complete"})
    assert (await receive())["type"] == "lifespan.shutdown"
    print("shut down")
    await send({"type": "lifespan.shutdown.complete"})


async def failing(scope: Scope, receive: Receive, send: Send) -> None:
    assert scope["type"] == "lifespan"
    await receive()
    await send({"type": "lifespan.startup.failed", "message": "no database"})


async def returning(scope: Scope, _: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await _show(scope, send)


async def crashing(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await _show(scope, send)
        return
    await receive()
    await send({"type": "lifespan.startup.complete"})
    raise RuntimeError("the lifespan crashed")


async def _show(scope: Scope, send: Send) -> None:
    scope["state"].setdefault("visits", []).append(scope["path"])
    scope["state"]["name"] = f"{scope['state'].get('name')}, seen by a request"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": json.dumps(scope["state"]).encode()})
