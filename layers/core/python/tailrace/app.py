"""The application: the only module that knows settings, stores and protocols together.

FastAPI would make a stream request six times as expensive, so streams have an endpoint of their
own, and functions that only answer streams never import FastAPI.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from tailrace import metrics
from tailrace.auth.authorizer import Authorizer, PolicyProvider, StaticPolicy
from tailrace.auth.origins import LocalHosts, Origins
from tailrace.auth.proxies import Proxies
from tailrace.clock import Clock, PeriodicTask, system_clock
from tailrace.errors import BadSetting, NotAllowed, NotFound
from tailrace.protocols import aviso
from tailrace.protocols.durable_streams.missing import MissingStreams, Permits
from tailrace.protocols.durable_streams.plain_append import PlainAppends
from tailrace.protocols.durable_streams.plain_poll import PlainPolls, PollReader
from tailrace.protocols.durable_streams.plain_read import PlainReads
from tailrace.protocols.durable_streams.routes import StreamRoutes
from tailrace.settings import Settings
from tailrace.store.base import Compacting, Store
from tailrace.streams import Streams
from tailrace.web.asgi import (
    App,
    Message,
    Receive,
    Scope,
    Send,
    apply_forwarded_headers,
    send_answer,
    serve_request,
)
from tailrace.web.authorize import RequestAuthorizer
from tailrace.web.limiter import Limiter
from tailrace.web.messages import (
    COMMON_HEADERS,
    Answer,
    BodyMemory,
    PollClient,
    RawHeaders,
    Request,
    combine,
    cors,
    request_id,
)
from tailrace.web.statuses import error_response
from tailrace.web.urls import MANY, STREAMS, StreamUrls
from tailrace.web.watchdog import Watchdog

if TYPE_CHECKING:
    from tailrace.aws.client.json_client import Call
    from tailrace.protocols.action_cable.core.publisher import Audience
    from tailrace.protocols.action_cable.server import CableServer
    from tailrace.protocols.aviso.routes import AvisoRoutes
    from tailrace.protocols.durable_streams.many import ManyStreams
    from tailrace.protocols.subscriptions.app import SubscriptionApp
    from tailrace.web.uvicorn.exchange import FastLane

logger = logging.getLogger("tailrace")


class Application:
    """Tailrace as one ASGI application."""

    def __init__(
        self,
        settings: Settings,
        store: Store[Any] | None = None,
        clock: Clock = system_clock,
        provider: PolicyProvider | None = None,
        hosts: LocalHosts | None = None,
        permits: Permits | None = None,
        *,
        serves_many: bool = True,
        compresses: bool = True,
    ) -> None:
        """`provider`: provides the authorizer where the settings alone do not define it.
        `hosts`: the only hosts whose requests are answered; None: any.
        `permits`: bound waits for streams that do not exist, if processes have few requests each.
        `serves_many`: whether many requests share the process, so that it may follow patterns, and
        do what subscriptions have due.
        `compresses`: whether bodies are compressed here, and not by a cache in front."""
        self._serves_many = serves_many
        self.settings = settings
        self._clock = clock
        self._provider = provider or StaticPolicy(Authorizer(settings))
        self._hosts = hosts
        self._origins = Origins(settings.allowed_origins)
        self._proxies = Proxies(settings.trusted_proxies)
        self._limiter = Limiter(settings.append_rate, settings.live_connections)
        self._memory = BodyMemory(max(settings.body_memory, settings.max_body_bytes))
        self._urls = StreamUrls(settings.ds_path)
        self._authorizer = RequestAuthorizer(self._provider, clock, self._urls)
        self.streams = Streams(store or choose_store(settings, clock), settings, clock)
        self._missing = MissingStreams(self.streams, permits)
        self.routes = StreamRoutes(
            self.streams,
            settings,
            self._urls,
            self._authorizer,
            self._limiter,
            self._origins,
            hosts,
            self._missing,
            compresses=compresses,
        )
        self._cable: CableServer | None = None
        self._cable_paths = _cable_paths(settings)
        self._tasks = () if settings.read_only else tuple(_maintenance(self.streams, settings))
        self.watchdog = Watchdog()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
            return
        if self._proxies:
            apply_forwarded_headers(self._proxies, scope)
        is_http, path = scope["type"] == "http", scope["path"]
        if is_http and path.startswith(self._urls.prefixes):
            await serve_request(scope, receive, send, self._respond, self._memory)
        elif not await self._check_host(scope, receive, send):
            return
        elif is_http and path == MANY:
            await serve_request(scope, receive, send, self.many.respond, self._memory)
        elif not is_http:
            await self.cable.websocket(scope, receive, send)
        elif path in self._cable_paths or self._is_api(path):
            respond = partial(self.cable.respond, path)
            await serve_request(scope, receive, send, respond, self._memory)
        elif _is_aviso(path) and self.aviso is not None:
            await serve_request(scope, receive, send, self.aviso.respond, self._memory)
        else:
            await self._serve_api(scope, receive, send)

    # Handlers, imported on first use: most Lambda functions need few of them

    def fast_lane(self) -> FastLane:
        """Stream requests, for our own server to answer without ASGI."""
        from tailrace.web.uvicorn.exchange import FastLane

        plain = self._plain_appends()
        self.routes.plain_reads = reads = self._plain_reads()
        return FastLane(
            self._urls.byte_prefixes,
            self._respond,
            self._memory,
            self.settings.max_body_bytes,
            self._origins,
            self._proxies,
            None if plain is None else plain.begin,
            None if reads is None else reads.answer,
            None if reads is None else self._plain_polls(),
        )

    @property
    def _is_open(self) -> bool:
        return isinstance(self._provider, StaticPolicy) and self._provider.authorizer.open

    def _plain_reads(self) -> PlainReads | None:
        """Reads without a task; None where each has to be authorized, or the store has to say
        whether the stream has changed."""
        if not self._is_open or self.settings.store != "sqlite":
            return None
        return PlainReads(self.streams, self._origins, self._hosts)

    @cached_property
    def subscriptions(self) -> SubscriptionApp:
        """Subscriptions."""
        from tailrace.protocols.subscriptions.app import SubscriptionApp

        return SubscriptionApp(
            self.streams,
            self.settings,
            self._urls,
            self._provider,
            self._limiter,
            self._clock,
            self._hosts,
        )

    def _plain_polls(self) -> Callable[[bytes, RawHeaders, PollClient], PollReader | None] | None:
        """Long-polls without a task; None where each has to be counted."""
        if self.settings.live_connections:
            return None
        return PlainPolls(
            self.streams,
            self._urls,
            self._origins,
            self._hosts,
            self.settings.long_poll_timeout,
            self.routes.answer_poll,
        ).begin

    def _plain_appends(self) -> PlainAppends | None:
        """Appends without a task; None where each has to be authorized or counted."""
        settings = self.settings
        if not self._is_open or settings.append_rate or settings.read_only:
            return None
        return PlainAppends(self.streams, self._urls, self._origins, self._hosts)

    @cached_property
    def many(self) -> ManyStreams:
        """Reads of many streams by one request."""
        from tailrace.protocols.durable_streams.many import ManyStreams

        return ManyStreams(
            self.streams,
            self.settings,
            self._authorizer,
            self._limiter,
            self._origins,
            None,
            self._missing,
            patterns=self._serves_many,
        )

    @property
    def cable(self) -> CableServer:
        """Action Cable."""
        if self._cable is None:
            from tailrace.protocols.action_cable.server import CableServer

            self._cable = CableServer(
                self.streams,
                self.settings,
                self._provider,
                self._limiter,
                self._clock,
                self._audience(),
            )
        return self._cable

    def _audience(self) -> Audience | None:
        """The subscribers of broadcasts, if they are connected to API Gateway."""
        if not self.settings.cable_endpoint:
            return None
        from tailrace.protocols.action_cable.api_gateway.broadcaster import Broadcaster
        from tailrace.protocols.action_cable.api_gateway.gateway_api import GatewayApi
        from tailrace.store.dynamodb.store import DynamoStore

        store = self.streams.store
        assert isinstance(store, DynamoStore), "API Gateway's connections are in the table"
        return Broadcaster(store.table, GatewayApi(self.settings), self.settings, self._clock)

    def load(self) -> None:
        """Import all of it now: an error in Aviso's schema is reported before the server listens,
        and no request waits for an import."""
        _ = self.aviso, self.api
        self._add_gauges()
        if self.aviso is None:
            sentence = "Aviso needs more packages: pip install 'tailrace[aviso]'"
            if self.settings.aviso_schema:
                raise BadSetting(sentence)
            logger.info("%s", sentence)

    def _add_gauges(self) -> None:
        store, watchdog = self.streams.store, self.watchdog
        metrics.gauges["damaged_objects_num"] = lambda: store.damaged
        metrics.gauges["longest_block_ms"] = lambda: (watchdog.longest_block() or 0) * 1000

    @cached_property
    def aviso(self) -> AvisoRoutes | None:
        """Aviso; None where the packages that read its schema are not installed."""
        try:
            from tailrace.protocols.aviso.routes import AvisoRoutes
        except ModuleNotFoundError:
            return None
        return AvisoRoutes(self.streams, self.settings, self._provider, self._limiter, self._clock)

    @cached_property
    def api(self) -> App:
        """Listings, health and documents; ModuleNotFoundError where FastAPI is not installed."""
        from tailrace.api import build_api

        return build_api(
            self.streams,
            self.settings,
            self._authorizer,
            self.watchdog,
            audience=lambda: self.cable.audience,
        )

    # Start and stop

    async def start(self) -> None:
        await self.streams.store.open()
        if self._serves_many and not self.settings.read_only:
            await self.subscriptions.start(runs=self.settings.subscription_runner)
        for task in self._tasks:
            task.start()

    async def drain(self) -> None:
        """End live reads and subscriptions; Action Cable clients get a request to reconnect."""
        if self._cable is not None:
            await self._cable.drain()
        self.streams.drain()

    async def stop(self) -> None:
        await self.drain()
        if "subscriptions" in vars(self):
            await self.subscriptions.stop()
        for task in self._tasks:
            await task.stop()
        await self.streams.store.close()

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.start()
        except Exception as error:  # noqa: BLE001 - the server reports why it cannot start
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.stop()
        await send({"type": "lifespan.shutdown.complete"})

    # Requests

    @property
    def _has_subscriptions(self) -> bool:
        """Whether subscriptions are served: functions need keys that they share."""
        settings = self.settings
        return not settings.read_only and (self._serves_many or bool(settings.subscription_keys))

    async def _respond(self, request: Request) -> Answer:
        """Answer a request below a mount of streams."""
        if self._has_subscriptions and request.raw_path.startswith(self._urls.reserved):
            return await self.subscriptions.routes.respond(request)
        return await self.routes.respond(request)

    def _is_api(self, path: str) -> bool:
        """Whether a path is one of AnyCable's REST API."""
        api = self.settings.api_path
        return (
            bool(api)
            and not self.settings.read_only
            and (path == f"{api}/publish" or path.startswith(f"{api}/presence/"))
        )

    async def _check_host(self, scope: Scope, receive: Receive, send: Send) -> bool:
        """Refuse a request that names another host, or comes from a page of one; False: refused."""
        if self._hosts is None:
            return True
        try:
            self._hosts.check(combine(scope["headers"]))
        except NotAllowed as error:
            if scope["type"] == "websocket":
                await receive()
            await send_answer(error_response(error), scope, receive, send)
            return False
        return True

    async def _serve_api(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request by FastAPI, with the headers that every answer has."""
        fields = dict(scope.get("headers", ()))
        own_id = None if scope["path"] == aviso.HEALTH else fields.get(b"x-request-id")
        scope["tailrace.id"] = request_id(own_id)
        allowed = cors(self._origins, fields.get(b"origin"))
        try:
            api = self.api
        except ModuleNotFoundError:
            error = NotFound(f"this function serves only paths that begin with {STREAMS}")
            answer = error_response(error, scope["tailrace.id"])
            answer.headers.extend(allowed)
            await send_answer(answer, scope, receive, send)
            return

        async def complete(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers: RawHeaders = [*message["headers"], *COMMON_HEADERS, *allowed]
                if all(name != b"x-request-id" for name, _ in headers):
                    headers.append((b"x-request-id", scope["tailrace.id"].encode()))
                message["headers"] = headers
            await send(message)

        await api(scope, receive, complete)


def choose_store(settings: Settings, clock: Clock) -> Store[Any]:
    if settings.store == "dynamodb":
        from tailrace.store.dynamodb.store import DynamoStore

        return DynamoStore(settings, clock, meter=_count_call)
    from tailrace.store.sqlite.store import SqliteStore

    return SqliteStore(settings, clock)


class _Outage:
    """Logs when DynamoDB gets out of reach, and when it is back."""

    def __init__(self) -> None:
        self._began: float | None = None

    def note(self, outcome: str) -> None:
        if outcome == "unavailable":
            if self._began is None:
                self._began = time.monotonic()
                logger.error("DynamoDB is out of reach")
        elif self._began is not None:
            logger.warning("DynamoDB is back after %.1f seconds", time.monotonic() - self._began)
            self._began = None


_outage = _Outage()


def _count_call(call: Call) -> None:
    _outage.note(call.outcome)
    metrics.count("dynamodb_calls_total")
    metrics.count("dynamodb_retries_total", by=call.attempts - 1)
    metrics.count("dynamodb_read_units", by=call.read_units)
    metrics.count("dynamodb_write_units", by=call.write_units)
    if call.outcome != "ok":
        metrics.count("dynamodb_failures_total", call.outcome)


def _is_aviso(path: str) -> bool:
    return path.startswith(aviso.PREFIX) or path in (aviso.READY, aviso.DOCUMENT)


def _cable_paths(settings: Settings) -> frozenset[str]:
    """The paths of Action Cable besides that of its WebSocket."""
    broadcast_path = "" if settings.read_only else settings.broadcast_path
    return frozenset(filter(None, (broadcast_path, settings.events_path)))


def _maintenance(streams: Streams, settings: Settings) -> Iterator[PeriodicTask]:
    yield PeriodicTask("sweeping", streams.sweep, settings.sweep_interval)
    if isinstance(streams.store, Compacting):
        compact = partial(_compact, streams.store)
        yield PeriodicTask("compacting", compact, settings.compact_interval)


async def _compact(store: Compacting) -> None:
    for failure in (await store.compact()).failed:
        logger.error("%s", failure)
