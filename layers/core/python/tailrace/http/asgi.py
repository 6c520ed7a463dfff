"""The application: a bare ASGI front for the stream routes, FastAPI for everything else.

A stream request through the front costs a sixth of one through a FastAPI route, and a function
that only answers streams never pays for importing FastAPI.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from tailrace import aviso
from tailrace.auth.hosts import LocalHosts
from tailrace.auth.policy import Door
from tailrace.auth.proxies import Proxies
from tailrace.clock import Clock, system_clock
from tailrace.errors import NotFound, TailraceError
from tailrace.http.bodies import Bodies, check_length, too_large
from tailrace.http.gate import Fixed, Gate, Keeper
from tailrace.http.paths import PREFIXES
from tailrace.http.routes import Answer, StreamRoutes
from tailrace.http.statuses import error_response
from tailrace.http.wire import (
    COMMON_HEADERS,
    Disconnected,
    RawHeaders,
    Request,
    Response,
    Streaming,
    combined,
    cors,
    request_id,
)
from tailrace.settings import Settings
from tailrace.store.base import Compacting, Store
from tailrace.store.choice import choose_store
from tailrace.streams import Streams
from tailrace.sweeper import Sweeper
from tailrace.watchdog import Watchdog

if TYPE_CHECKING:
    from tailrace.aviso.routes import AvisoRoutes
    from tailrace.cable.local.server import Cable
    from tailrace.cable.publisher import Audience

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


logger = logging.getLogger("tailrace")

SINK_ITEMS = 16
"""Pieces that may wait to be sent before a reader counts as slow."""


class Application:
    """Tailrace as one ASGI application."""

    def __init__(
        self,
        settings: Settings,
        store: Store | None = None,
        clock: Clock = system_clock,
        keeper: Keeper | None = None,
        hosts: LocalHosts | None = None,
    ) -> None:
        """`keeper`: who knows the door when the settings alone do not say it. `hosts`: the only
        ones that are answered; None: any."""
        self.settings = settings
        self._clock = clock
        self._keeper = keeper or Fixed(Door(settings))
        self.gate = Gate(self._keeper, clock)
        self.streams = Streams(store or choose_store(settings, clock), settings, clock)
        self.routes = StreamRoutes(self.streams, settings, self.gate, hosts)
        self._hosts = hosts
        self._sweepers = () if settings.read_only else tuple(_sweepers(self.streams, settings))
        self.watchdog = Watchdog()
        self._api: App | None = None
        self._cable: Cable | None = None
        self._cable_paths = _cable_paths(settings)
        self._aviso: AvisoRoutes | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.routes.proxies and scope["type"] != "lifespan":
            _believe(self.routes.proxies, scope)
        if scope["type"] == "http" and scope["path"].startswith(PREFIXES):
            await self._serve(scope, receive, send, self.routes.respond)
        elif self._hosts is not None and (refusal := _refused(self._hosts, scope)) is not None:
            await _refuse(refusal, scope, receive, send)
        elif scope["type"] == "websocket":
            await self.cable.websocket(scope, receive, send)
        elif scope["type"] == "http" and scope["path"] in self._cable_paths:
            respond = partial(self.cable.respond, scope["path"])
            await self._serve(scope, receive, send, respond)
        elif scope["type"] == "http" and _is_aviso(scope["path"]) and self.aviso is not None:
            await self._serve(scope, receive, send, self.aviso.respond)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await self._serve_other(scope, receive, send)

    @property
    def api(self) -> App:
        if self._api is None:
            try:
                from tailrace.http.api import build_api
            except ModuleNotFoundError:
                self._api = _streams_only
            else:
                self._api = build_api(self.streams, self.settings, self.gate, self.watchdog)
        return self._api

    @property
    def cable(self) -> Cable:
        """Action Cable, which most functions never import."""
        if self._cable is None:
            from tailrace.cable.local.server import Cable

            self._cable = Cable(
                self.streams,
                self.settings,
                self._keeper,
                self.routes.limiter,
                self._clock,
                self._audience(),
            )
        return self._cable

    def _audience(self) -> Audience | None:
        """Those who hear broadcasts, where they are connected to API Gateway."""
        if not self.settings.cable_endpoint:
            return None
        from tailrace.cable.gateway.posts import GatewayPosts
        from tailrace.cable.gateway.switchboard import Switchboard
        from tailrace.store.dynamo.store import DynamoStore

        store = self.streams.store
        assert isinstance(store, DynamoStore), "API Gateway's clients are in the table"
        return Switchboard(store.table, GatewayPosts(self.settings), self.settings, self._clock)

    @property
    def aviso(self) -> AvisoRoutes | None:
        """Aviso; None where what reads its schema is not installed."""
        if self._aviso is None:
            try:
                from tailrace.aviso.routes import AvisoRoutes
            except ModuleNotFoundError:
                return None
            self._aviso = AvisoRoutes(
                self.streams, self.settings, self._keeper, self.routes.limiter, self._clock
            )
        return self._aviso

    async def start(self) -> None:
        await self.streams.store.open()
        for sweeper in self._sweepers:
            sweeper.start()

    async def drain(self) -> None:
        """Let everybody go who waits for something."""
        if self._cable is not None:
            await self._cable.drain()
        self.streams.drain()

    async def stop(self) -> None:
        await self.drain()
        for sweeper in self._sweepers:
            await sweeper.stop()
        await self.streams.store.close()

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.start()
        except Exception as error:  # noqa: BLE001 - the server says why it cannot start
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def _serve_other(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What FastAPI answers, with the headers that every answer has."""
        fields = dict(scope.get("headers", ()))
        scope["tailrace.id"] = request_id(fields.get(b"x-request-id"))

        async def complete(message: Message) -> None:
            if message["type"] == "http.response.start":
                allowed = cors(self.routes.origins, fields.get(b"origin"))
                headers: RawHeaders = [*message["headers"], *COMMON_HEADERS, *allowed]
                if all(name != b"x-request-id" for name, _ in headers):
                    headers.append((b"x-request-id", scope["tailrace.id"].encode()))
                message["headers"] = headers
            await send(message)

        await self.api(scope, receive, complete)

    async def _serve(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        respond: Callable[[Request], Awaitable[Answer]],
    ) -> None:
        with _AsgiBody(scope, receive, self.routes.bodies) as body:
            request = Request(
                scope["method"],
                (scope.get("raw_path") or scope["path"].encode()).decode("latin-1"),
                scope["query_string"].decode("latin-1"),
                scope["headers"],
                b"",
                scope.get("scheme", "http"),
                peer=(scope.get("client") or ("",))[0],
                vouched=scope.get("tailrace.vouched", False),
                source=body,
            )
            try:
                answer = await respond(request)
            except Disconnected:
                return
        await _send(answer, scope["method"], receive, send)


def _believe(proxies: Proxies, scope: Scope) -> None:
    """Take the client's address and scheme from a trusted proxy."""
    headers = dict(scope["headers"])
    peer = (scope.get("client") or ("",))[0]
    scope["client"] = (proxies.client(peer, headers), 0)
    if scope["type"] == "http":
        scope["scheme"] = proxies.scheme(peer, headers, scope.get("scheme", "http"))


def _refused(hosts: LocalHosts, scope: Scope) -> Response | None:
    if scope["type"] == "lifespan":
        return None
    try:
        hosts.check(combined(scope["headers"]))
    except TailraceError as error:
        return error_response(error)
    return None


async def _refuse(answer: Response, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await _send(answer, scope["method"], receive, send)
        return
    await receive()
    await reject(answer, scope, send)


def _is_aviso(path: str) -> bool:
    return path.startswith(aviso.PREFIX) or path in (aviso.READY, aviso.DOCUMENT)


def _cable_paths(settings: Settings) -> frozenset[str]:
    """Where there is something of Action Cable besides the WebSocket."""
    writing = "" if settings.read_only else settings.broadcast_path
    return frozenset(filter(None, (writing, settings.events_path)))


def _sweepers(streams: Streams, settings: Settings) -> Iterator[Sweeper]:
    yield Sweeper("sweeping", streams.sweep, settings.sweep_interval)
    if isinstance(streams.store, Compacting):
        compact = partial(_compact, streams.store)
        yield Sweeper("compacting", compact, settings.compact_interval)


async def _compact(store: Compacting) -> None:
    for failure in (await store.compact()).failed:
        logger.error("%s", failure)


class _AsgiBody:
    """The body of a request, read when it is asked for, and counted until that is answered."""

    def __init__(self, scope: Scope, receive: Receive, bodies: Bodies) -> None:
        self._headers = scope["headers"]
        self._receive = receive
        self._bodies = bodies
        self._held = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bodies.give_back(self._held)

    async def read(self, limit: int) -> bytes:
        check_length(dict(self._headers).get(b"content-length"), limit)
        parts: list[bytes] = []
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise Disconnected
            part = message.get("body", b"")
            if self._held + len(part) > limit:
                raise too_large(limit)
            self._bodies.take(len(part))
            self._held += len(part)
            parts.append(part)
            more = message.get("more_body", False)
        return b"".join(parts)


async def _send(answer: Answer, method: str, receive: Receive, send: Send) -> None:
    headers: RawHeaders = COMMON_HEADERS + answer.headers
    if isinstance(answer, Response):
        if has_length(method, answer.status):
            headers.append((b"content-length", b"%d" % len(answer.body)))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        body = b"" if method == "HEAD" else answer.body
        await send({"type": "http.response.body", "body": body})
        return
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    sending = asyncio.ensure_future(_stream(answer, send))
    leaving = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait([sending, leaving], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sending, leaving):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


class _AsgiSink:
    """What is pushed is sent by a task of its own, in order."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: asyncio.Queue[bytes] = asyncio.Queue()

    async def room(self) -> None:
        await self._waiting.join()

    def push(self, data: bytes) -> bool:
        self._waiting.put_nowait(data)
        return self._waiting.qsize() < SINK_ITEMS

    async def pump(self) -> None:
        while True:
            data = await self._waiting.get()
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
            self._waiting.task_done()


async def _streams_only(_: Scope, __: Receive, send: Send) -> None:
    """For where FastAPI is not installed: a function that only streams."""
    answer = error_response(NotFound(f"only what begins with {PREFIXES[0]} is served here"))
    await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
    await send({"type": "http.response.body", "body": answer.body})


async def _stream(answer: Streaming, send: Send) -> None:
    sink = _AsgiSink(send)
    pump = asyncio.ensure_future(sink.pump())
    running = asyncio.ensure_future(answer.run(sink))
    try:
        await asyncio.wait([pump, running], return_when=asyncio.FIRST_COMPLETED)
        if pump.done():
            pump.result()
        await running
        await sink.room()
        await send({"type": "http.response.body", "body": b""})
    finally:
        pump.cancel()
        running.cancel()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def reject(answer: Response, scope: Scope, send: Send) -> None:
    """Answer a WebSocket's handshake with an HTTP error."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1000})
        return
    start = "websocket.http.response.start"
    await send({"type": start, "status": answer.status, "headers": answer.headers})
    await send({"type": "websocket.http.response.body", "body": answer.body})


def has_length(method: str, status: int) -> bool:
    """Whether an answer carries Content-Length: not where HTTP forbids or ignores a body."""
    return method != "HEAD" and status not in (204, 304)
