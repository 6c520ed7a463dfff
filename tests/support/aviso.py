"""A schema with a field of each type, and Aviso inside the test process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tailrace.app import Application
from tailrace.clock import Clock, system_clock
from tailrace.protocols.aviso.config import Config
from tailrace.protocols.aviso.errors import Operation, Refused
from tailrace.protocols.aviso.requests import Body, parse_body
from tailrace.protocols.aviso.routes import AvisoRoutes
from tailrace.protocols.aviso.schema import EventType
from tailrace.settings import Settings
from tailrace.web.messages import Request, Response, Streaming

SCHEMA = Path(__file__).with_name("schema.yaml")

WORKING = {
    "destination": "FOO",
    "date": "2026-01-31",
    "time": "6",
    "hazard": "Storm",
    "expver": "1",
    "step": 12,
    "level": 42.5,
}
"""An identifier of the event type `product`."""

SQUARE = "0,0,0,10,10,10,10,0,0,0"


def settings(**given: Any) -> Settings:
    return Settings(**{"aviso_schema": str(SCHEMA), **given})


@cache
def events() -> Mapping[str, EventType]:
    return Config.load(settings()).events


def body(operation: Operation, **fields: Any) -> Body:
    return parse_body(json.dumps(fields).encode(), operation, events())


def refused(call: Callable[[], object]) -> Refused:
    try:
        call()
    except Refused as error:
        return error
    raise AssertionError("it was not refused")


class Event(NamedTuple):
    """A frame."""

    name: str
    data: dict[str, Any]

    @property
    def sequence(self) -> int:
        return int(self.data["id"].rpartition("@")[2])


def parse_frames(raw: bytes) -> list[Event]:
    frames = []
    for frame in raw.decode().split("\n\n")[:-1]:
        name, data = frame.split("\n")
        assert name.startswith("event: ")
        assert data.startswith("data: ")
        frames.append(Event(name[7:], json.loads(data[6:])))
    return frames


class Collected:
    """A sink that keeps what it gets, and has room for so many pushes at a time."""

    def __init__(self, room: int = 1_000_000) -> None:
        self.raw = b""
        self.grown = asyncio.Event()
        self._left = self._room = room

    async def drain(self) -> None:
        await asyncio.sleep(0)
        self._left = self._room

    def push(self, data: bytes) -> bool:
        assert data, "an empty chunk would end a chunked body"
        self.raw += data
        self.grown.set()
        self._left -= 1
        return self._left > 0

    @property
    def frames(self) -> list[Event]:
        return parse_frames(self.raw)

    def sequences(self, name: str = "") -> list[int]:
        """Of all notifications, or of those with a name."""
        return [
            frame.sequence
            for frame in self.frames
            if "specversion" in frame.data and name in ("", frame.name)
        ]


class Watch:
    """A watch that goes on."""

    def __init__(self, answer: Streaming, sink: Collected) -> None:
        self.sink = sink
        self.task = asyncio.ensure_future(answer.run(sink))

    async def until(self, holds: Callable[[Collected], bool], seconds: float = 120.0) -> None:
        async with asyncio.timeout(seconds):
            while not holds(self.sink):
                self.sink.grown.clear()
                await self.sink.grown.wait()

    async def leave(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class Aviso:
    """The routes, asked without a network."""

    def __init__(self, given: Settings, clock: Clock = system_clock) -> None:
        self.application = Application(given, clock=clock)
        routes = self.application.aviso
        assert routes is not None
        self.routes: AvisoRoutes = routes
        self.streams = self.application.streams

    async def ask(
        self,
        method: str,
        path: str,
        fields: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response | Streaming:
        raw = fields if isinstance(fields, bytes) else json.dumps(fields).encode()
        sent = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
        return await self.routes.respond(
            Request(method, path, "", sent, b"" if fields is None else raw)
        )

    async def response(self, *args: Any, **more: Any) -> tuple[int, dict[str, Any]]:
        """Status and JSON of an answer."""
        answer = await self.ask(*args, **more)
        assert isinstance(answer, Response)
        return answer.status, json.loads(answer.body or b"null")

    async def notify(self, headers: Mapping[str, str] | None = None, **fields: Any) -> None:
        sent = {"event_type": "product", "identifier": WORKING, **fields}
        status, told = await self.response("POST", "/api/v1/notification", sent, headers)
        assert status == 200, told

    async def replay(self, **fields: Any) -> Collected:
        sent = {"event_type": "product", "identifier": {}, "from_id": "0", **fields}
        answer = await self.ask("POST", "/api/v1/replay", sent)
        assert isinstance(answer, Streaming), answer
        sink = Collected()
        async with asyncio.timeout(120):
            await answer.run(sink)
        return sink

    async def watch(self, room: int = 1_000_000, **fields: Any) -> Watch:
        sent = {"event_type": "product", "identifier": {}, **fields}
        answer = await self.ask("POST", "/api/v1/watch", sent)
        assert isinstance(answer, Streaming), answer
        watch = Watch(answer, Collected(room))
        await watch.until(lambda sink: bool(sink.raw))
        return watch


Make = Callable[..., Awaitable[Aviso]]
