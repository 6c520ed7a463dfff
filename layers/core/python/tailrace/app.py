"""The application: the only module that knows settings, stores and protocols together.

Stream requests go straight to their routes, since FastAPI would make them six times as expensive,
and a function that only answers streams never imports it. FastAPI answers everything else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from tailrace.auth.authorizer import Authorizer, PolicyProvider, StaticPolicy
from tailrace.auth.hosts import LocalHosts
from tailrace.clock import Clock, system_clock
from tailrace.errors import NotFound, TailraceError
from tailrace.protocols import aviso
from tailrace.protocols.durable_streams.routes import StreamRoutes
from tailrace.settings import Settings
from tailrace.store.base import Compacting, Store
from tailrace.streams import Streams
from tailrace.web.asgi import App, Message, Receive, Scope, Send, believe, refuse, serve
from tailrace.web.authorize import RequestAuthorizer
from tailrace.web.messages import COMMON_HEADERS, RawHeaders, Response, combined, cors, request_id
from tailrace.web.paths import PREFIXES
from tailrace.web.statuses import error_response
from tailrace.web.watchdog import Watchdog

if TYPE_CHECKING:
    from tailrace.protocols.action_cable.core.publisher import Audience
    from tailrace.protocols.action_cable.in_process.server import Cable
    from tailrace.protocols.aviso.routes import AvisoRoutes

logger = logging.getLogger("tailrace")


class Application:
    """Tailrace as one ASGI application."""

    def __init__(
        self,
        settings: Settings,
        store: Store | None = None,
        clock: Clock = system_clock,
        provider: PolicyProvider | None = None,
        hosts: LocalHosts | None = None,
    ) -> None:
        """`provider`: provides the authorizer where the settings alone do not define it.
        `hosts`: the only hosts whose requests are answered; None: any."""
        self.settings = settings
        self._clock = clock
        self._provider = provider or StaticPolicy(Authorizer(settings))
        self.authorizer = RequestAuthorizer(self._provider, clock)
        self.streams = Streams(store or choose_store(settings, clock), settings, clock)
        self.routes = StreamRoutes(self.streams, settings, self.authorizer, hosts)
        self._hosts = hosts
        self._sweepers = () if settings.read_only else tuple(_sweepers(self.streams, settings))
        self.watchdog = Watchdog()
        self._api: App | None = None
        self._cable: Cable | None = None
        self._cable_paths = _cable_paths(settings)
        self._aviso: AvisoRoutes | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.routes.proxies and scope["type"] != "lifespan":
            believe(self.routes.proxies, scope)
        if scope["type"] == "http" and scope["path"].startswith(PREFIXES):
            await serve(scope, receive, send, self.routes.respond, self.routes.bodies)
        elif self._hosts is not None and (refusal := _refused(self._hosts, scope)) is not None:
            await refuse(refusal, scope, receive, send)
        elif scope["type"] == "websocket":
            await self.cable.websocket(scope, receive, send)
        elif scope["type"] == "http" and scope["path"] in self._cable_paths:
            respond = partial(self.cable.respond, scope["path"])
            await serve(scope, receive, send, respond, self.routes.bodies)
        elif scope["type"] == "http" and _is_aviso(scope["path"]) and self.aviso is not None:
            await serve(scope, receive, send, self.aviso.respond, self.routes.bodies)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await self._serve_other(scope, receive, send)

    @property
    def api(self) -> App:
        if self._api is None:
            try:
                from tailrace.api import build_api
            except ModuleNotFoundError:
                self._api = _streams_only
            else:
                self._api = build_api(self.streams, self.settings, self.authorizer, self.watchdog)
        return self._api

    @property
    def cable(self) -> Cable:
        """Action Cable, which most functions never import."""
        if self._cable is None:
            from tailrace.protocols.action_cable.in_process.server import Cable

            self._cable = Cable(
                self.streams,
                self.settings,
                self._provider,
                self.routes.limiter,
                self._clock,
                self._audience(),
            )
        return self._cable

    def _audience(self) -> Audience | None:
        """Those who hear broadcasts, where they are connected to API Gateway."""
        if not self.settings.cable_endpoint:
            return None
        from tailrace.protocols.action_cable.api_gateway.broadcaster import Broadcaster
        from tailrace.protocols.action_cable.api_gateway.gateway_api import GatewayApi
        from tailrace.store.dynamodb.store import DynamoStore

        store = self.streams.store
        assert isinstance(store, DynamoStore), "API Gateway's clients are in the table"
        return Broadcaster(store.table, GatewayApi(self.settings), self.settings, self._clock)

    @property
    def aviso(self) -> AvisoRoutes | None:
        """Aviso; None where what reads its schema is not installed."""
        if self._aviso is None:
            try:
                from tailrace.protocols.aviso.routes import AvisoRoutes
            except ModuleNotFoundError:
                return None
            self._aviso = AvisoRoutes(
                self.streams, self.settings, self._provider, self.routes.limiter, self._clock
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


def _refused(hosts: LocalHosts, scope: Scope) -> Response | None:
    if scope["type"] == "lifespan":
        return None
    try:
        hosts.check(combined(scope["headers"]))
    except TailraceError as error:
        return error_response(error)
    return None


def choose_store(settings: Settings, clock: Clock) -> Store:
    if settings.store == "dynamodb":
        from tailrace.store.dynamodb.store import DynamoStore

        return DynamoStore(settings, clock)
    from tailrace.store.sqlite.store import SqliteStore

    return SqliteStore(settings, clock)


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


async def _streams_only(_: Scope, __: Receive, send: Send) -> None:
    """For where FastAPI is not installed: a function that only streams."""
    answer = error_response(NotFound(f"only what begins with {PREFIXES[0]} is served here"))
    await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
    await send({"type": "http.response.body", "body": answer.body})


class Sweeper:
    def __init__(self, what: str, work: Callable[[], Awaitable[object]], interval: float) -> None:
        """`what` the log calls it; an interval of 0: never."""
        self._what = what
        self._work = work
        self._interval = interval
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if not self._interval:
            return
        self._task = asyncio.create_task(self._run(), name=f"tailrace-{self._what}")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            try:
                await self._work()
            except Exception:
                # The next round tries again; a server does not stop serving over its cleaning.
                logger.exception("%s failed", self._what)
            await asyncio.sleep(self._interval)
