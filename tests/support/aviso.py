"""A schema with a field of each type, and Aviso in the test process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tailrace.app import Application
from tailrace.clock import Clock, system_clock
from tailrace.protocols.aviso.config import AvisoConfig
from tailrace.protocols.aviso.error_codes import AvisoError, RequestKind
from tailrace.protocols.aviso.event_types import EventTypes
from tailrace.protocols.aviso.request_body import RequestBody, parse_body
from tailrace.protocols.aviso.routes import AvisoRoutes
from tailrace.settings import Settings
from tailrace.web.messages import Request, Response, Streaming

SCHEMA = Path(__file__).with_name("schema.yaml")

IDENTIFIER = {
    "destination": "FOO",
    "date": "2026-01-31",
    "time": "6",
    "hazard": "Storm",
    "expver": "1",
    "step": 12,
    "level": 42.5,
}
"""A valid identifier of the event type `product`."""

SQUARE = "0,0,0,10,10,10,10,0,0,0"


def make_settings(**overrides: Any) -> Settings:
    return Settings(**{"aviso_schema": str(SCHEMA), **overrides})


@cache
def events() -> EventTypes:
    return AvisoConfig.load(make_settings()).events


def parse(operation: RequestKind, **fields: Any) -> RequestBody:
    return parse_body(json.dumps(fields).encode(), operation, events())


def catch(call: Callable[[], object]) -> AvisoError:
    """The error that a call raises."""
    try:
        call()
    except AvisoError as error:
        return error
    raise AssertionError("no AvisoError was raised")


class Frame(NamedTuple):
    """A server-sent event."""

    name: str
    data: dict[str, Any]

    @property
    def sequence(self) -> int:
        return int(self.data["id"].rpartition("@")[2])


def parse_frames(raw: bytes) -> list[Frame]:
    frames = []
    for frame in raw.decode().split("\n\n")[:-1]:
        name, data = frame.split("\n")
        assert name.startswith("event: ")
        assert data.startswith("data: ")
        frames.append(Frame(name[7:], json.loads(data[6:])))
    return frames


class CollectingSink:
    """A sink that collects all data; it is full after `capacity` pushes, until it is drained."""

    def __init__(self, capacity: int = 1_000_000) -> None:
        self.raw = b""
        self.grown = asyncio.Event()
        self._left = self._capacity = capacity

    async def drain(self) -> None:
        await asyncio.sleep(0)
        self._left = self._capacity

    def push(self, data: bytes) -> bool:
        assert data, "an empty chunk would end a chunked body"
        self.raw += data
        self.grown.set()
        self._left -= 1
        return self._left > 0

    @property
    def frames(self) -> list[Frame]:
        return parse_frames(self.raw)

    def sequences(self, name: str = "") -> list[int]:
        """The sequences of all notifications, or of those in frames with this name."""
        return [
            frame.sequence
            for frame in self.frames
            if "specversion" in frame.data and name in ("", frame.name)
        ]


class Watch:
    """A running watch."""

    def __init__(self, answer: Streaming, sink: CollectingSink) -> None:
        self.sink = sink
        self.task = asyncio.ensure_future(answer.run(sink))

    async def until(
        self, condition: Callable[[CollectingSink], bool], seconds: float = 120.0
    ) -> None:
        async with asyncio.timeout(seconds):
            while not condition(self.sink):
                self.sink.grown.clear()
                await self.sink.grown.wait()

    async def leave(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class Aviso:
    """Aviso's routes, without a network."""

    def __init__(self, settings: Settings, clock: Clock = system_clock) -> None:
        self.application = Application(settings, clock=clock)
        routes = self.application.aviso
        assert routes is not None
        self.routes: AvisoRoutes = routes
        self.streams = self.application.streams

    async def send(
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

    async def request(self, *args: Any, **more: Any) -> tuple[int, dict[str, Any]]:
        """Send a request; returns the status and the JSON body."""
        answer = await self.send(*args, **more)
        assert isinstance(answer, Response)
        return answer.status, json.loads(answer.body or b"null")

    async def notify(self, headers: Mapping[str, str] | None = None, **fields: Any) -> None:
        sent = {"event_type": "product", "identifier": IDENTIFIER, **fields}
        status, body = await self.request("POST", "/api/v1/notification", sent, headers)
        assert status == 200, body

    async def replay(self, **fields: Any) -> CollectingSink:
        sent = {"event_type": "product", "identifier": {}, "from_id": "0", **fields}
        answer = await self.send("POST", "/api/v1/replay", sent)
        assert isinstance(answer, Streaming), answer
        sink = CollectingSink()
        async with asyncio.timeout(120):
            await answer.run(sink)
        return sink

    async def watch(self, capacity: int = 1_000_000, **fields: Any) -> Watch:
        sent = {"event_type": "product", "identifier": {}, **fields}
        answer = await self.send("POST", "/api/v1/watch", sent)
        assert isinstance(answer, Streaming), answer
        watch = Watch(answer, CollectingSink(capacity))
        await watch.until(lambda sink: bool(sink.raw))
        return watch


StartAviso = Callable[..., Awaitable[Aviso]]
