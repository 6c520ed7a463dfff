"""HTTP routes of Aviso: those below `/api/v1/`, `/ready` and the OpenAPI document."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import orjson

from tailrace import __version__, metrics
from tailrace.auth.authorizer import PolicyProvider
from tailrace.auth.origins import Origins
from tailrace.clock import Clock
from tailrace.errors import BodyTooLarge, ServerBusy, TailraceError, TooManyRequests
from tailrace.limits import AVISO_BODY_BYTES, AVISO_KEY_BYTES
from tailrace.live.follower import Sink
from tailrace.log.append import Append
from tailrace.log.state import Producer
from tailrace.protocols.aviso import DOCUMENT, PREFIX, READY, envelope
from tailrace.protocols.aviso.admin import Admin, AdminResult
from tailrace.protocols.aviso.callers import Authenticator, Caller
from tailrace.protocols.aviso.config import AvisoConfig
from tailrace.protocols.aviso.deletions import JSON, Deletions, append_or_create
from tailrace.protocols.aviso.error_codes import AvisoError, RequestKind, request_error
from tailrace.protocols.aviso.event_stream import EventStreams, PreparedStream
from tailrace.protocols.aviso.request_body import (
    RequestBody,
    parse_body,
    parse_notification,
    parse_query,
    refuse_filter_fields,
)
from tailrace.protocols.aviso.timestamps import format_seconds
from tailrace.settings import Settings
from tailrace.streams import Streams
from tailrace.web.endpoint import Endpoint
from tailrace.web.health import StoreHealth
from tailrace.web.limiter import Limiter, client_key
from tailrace.web.messages import (
    METHODS,
    PREFLIGHT_HEADERS,
    Answer,
    RawHeaders,
    Request,
    Response,
    Streaming,
    new_id,
)
from tailrace.web.statuses import INTERNAL_MESSAGE, status_of

_VISIBLE: Final = re.compile(r"[!-~]+")
_EVENT_STREAM: Final[RawHeaders] = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]

logger = logging.getLogger("tailrace")

EXPECTED: Final = (AvisoError, BodyTooLarge, ServerBusy)
"""The errors that are answers."""


class _Route(NamedTuple):
    handle: Callable[[Request, str], Awaitable[Answer]]
    writes: bool = False


class AvisoRoutes:
    def __init__(
        self,
        streams: Streams,
        settings: Settings,
        provider: PolicyProvider,
        limiter: Limiter,
        clock: Clock,
        config: AvisoConfig | None = None,
    ) -> None:
        self._streams = streams
        self._config = config or AvisoConfig.load(settings)
        self._authenticator = Authenticator(provider, clock, self._config.admin_roles)
        self._limiter = limiter
        self._health = StoreHealth(streams.store)
        self._endpoint = Endpoint(
            self._answer, Origins(settings.allowed_origins), expected=EXPECTED, render=render_error
        )
        metrics.gauges["aviso_build_info"] = lambda: {(__version__,): 1}
        deletions = Deletions(streams)
        self._event_streams = EventStreams(streams, self._config, deletions)
        self._admin = Admin(streams, self._config, deletions)
        routes = {
            "POST notification": _Route(self._notify, writes=True),
            "POST watch": _Route(partial(self._open_stream, RequestKind.WATCH)),
            "POST replay": _Route(partial(self._open_stream, RequestKind.REPLAY)),
            "GET schema": _Route(self._schemas),
            "GET schema/": _Route(self._schema),
            "DELETE admin/notification/": _Route(self._delete, writes=True),
            "DELETE admin/wipe/stream": _Route(self._wipe, writes=True),
            "DELETE admin/wipe/all": _Route(self._wipe_all, writes=True),
        }
        self._routes = {
            name: route
            for name, route in routes.items()
            if not (route.writes and settings.read_only)
        }

    async def respond(self, request: Request) -> Answer:
        answer = await self._endpoint.respond(request)
        path = request.raw_path.removeprefix(PREFIX)
        parent = path[: path.rfind("/") + 1]
        known = (each for each in (path, parent) if f"{request.method} {each}" in self._routes)
        route = next(known, None)
        metrics.count(
            "aviso_http_requests_total",
            "unmatched" if route is None else PREFIX + route,
            request.method if request.method in METHODS else "other",
            str(answer.status),
        )
        return answer

    async def _answer(self, request: Request) -> Answer:
        request.id = request_id = new_id()
        if request.method == "GET" and request.raw_path == READY:
            return await self._ready()
        if request.method == "GET" and request.raw_path == DOCUMENT:
            from tailrace.protocols.aviso.openapi import describe

            return Response(200, _json_headers(), orjson.dumps(describe(self._config)))
        if request.method == "OPTIONS":
            return Response(204, [*PREFLIGHT_HEADERS])
        path = request.raw_path.removeprefix(PREFIX)
        route = self._find_route(request.method, path)
        if route is None:
            if not path.startswith("schema"):
                caller = await self._authenticator.authenticate(request)
                if path.startswith("admin/"):
                    caller.require_admin()
            return _text(404, "")
        return await route.handle(request, request_id)

    def _find_route(self, method: str, path: str) -> _Route | None:
        if path.endswith("/"):
            return None
        # The last segment may be the name of an event type or the id of a notification.
        parent = path[: path.rfind("/") + 1]
        return self._routes.get(f"{method} {path}") or self._routes.get(f"{method} {parent}")

    # Publishing

    async def _notify(self, request: Request, request_id: str) -> Answer:
        caller = await self._authenticator.authenticate(request)
        await request.read(AVISO_BODY_BYTES)
        label, status = "unknown", "rejected"
        try:
            body = parse_body(request.body, RequestKind.NOTIFICATION, self._config.events)
            label = body.event.label
            answer = await self._store(request, body, caller, request_id)
            status = "success"
        except AvisoError as error:
            status = "error" if error.status >= 500 else "rejected"
            raise
        finally:
            metrics.count("aviso_notifications_total", label, status)
        return answer

    async def _store(
        self, request: Request, body: RequestBody, caller: Caller, request_id: str
    ) -> Answer:
        refuse_filter_fields(body)
        caller.require_write(body.event)
        notification = parse_notification(body)
        producer = _parse_idempotency_key(request, caller.name)
        self._check_rate(partial(self._limiter.append, client_key(caller.name, request.peer)))
        now = self._streams.clock()
        message = envelope.encode(notification, request_id, self._config.base_url, now)
        try:
            append = Append(message, JSON, producer=producer)
            await append_or_create(self._streams, body.event.path, append)
        except TailraceError as error:
            logger.warning("storing a notification failed (%s): %s", request_id, error)
            raise AvisoError(
                500,
                "NOTIFICATION_STORAGE_FAILED",
                "the notification was not stored",
                extra={"details": str(error)},
            ) from None
        fields = {
            "status": "success",
            "request_id": request_id,
            "processed_at": format_seconds(now),
        }
        return Response(200, _json_headers(), orjson.dumps(fields))

    # Reading

    async def _open_stream(self, kind: RequestKind, request: Request, request_id: str) -> Answer:
        caller = await self._authenticator.authenticate(request)
        await request.read(AVISO_BODY_BYTES)
        body = parse_body(request.body, kind, self._config.events)
        caller.require_read(body.event)
        query = parse_query(body)
        if query.filter.spatial:
            # The first import loads GEOS, which would block the event loop for a quarter second.
            await asyncio.to_thread(import_module, "tailrace.protocols.aviso.geometry")
        client = client_key(caller.name, request.peer)
        self._check_rate(partial(self._limiter.admit, client))
        try:
            prepared = await self._event_streams.prepare(kind, query, request_id)
        except TailraceError as error:
            raise AvisoError(
                500,
                "SSE_STREAM_INITIALIZATION_FAILED",
                "the event stream cannot be opened",
                extra={"details": str(error), "topic": query.filter.topic},
            ) from None
        labels = f"{PREFIX}{kind.value}", body.event.label
        return Streaming(200, [*_EVENT_STREAM], partial(self._send, client, prepared, labels))

    async def _send(
        self, client: str, prepared: PreparedStream, labels: tuple[str, str], sink: Sink
    ) -> None:
        metrics.count("aviso_sse_connections_total", *labels)
        metrics.count("aviso_sse_connections_active", *labels)
        try:
            with self._limiter.live(client):
                await self._event_streams.send(prepared, sink)
        finally:
            metrics.count("aviso_sse_connections_active", *labels, by=-1)

    def _check_rate(self, check: Callable[[], None]) -> None:
        try:
            check()
        except TooManyRequests as error:
            retry = (b"retry-after", b"%d" % error.retry_after)
            raise AvisoError(429, "TOO_MANY_REQUESTS", str(error), headers=[retry]) from None

    # Schemas

    async def _schemas(self, _: Request, __: str) -> Answer:
        events = self._config.events
        fields: dict[str, Any] = {
            "status": "success",
            "schema": {name: event.describe() for name, event in events.items()},
            "event_types": list(events),
            "total_schemas": len(events),
        }
        if not events:
            fields["message"] = "no event types are configured"
        return _json(200, fields)

    async def _schema(self, request: Request, request_id: str) -> Answer:
        name = unquote(request.raw_path.rpartition("/")[2])
        event = self._config.events.get(name)
        if event is not None:
            fields = {"status": "success", "event_type": name, "schema": event.describe()}
            return _json(200, fields)
        missing: dict[str, Any] = {
            "status": "error",
            "message": f"there is no event type '{name[:80]}'",
            "request_id": request_id,
        }
        if self._config.events:
            missing["available_types"] = list(self._config.events)
        return _json(404, missing)

    # Administration

    async def _delete(self, request: Request, request_id: str) -> Answer:
        (await self._authenticator.authenticate(request)).require_admin()
        notification_id = unquote(request.raw_path.rpartition("/")[2])
        result = await self._admin.delete(notification_id)
        return _admin_response(result, request_id, notification_id=notification_id)

    async def _wipe(self, request: Request, request_id: str) -> Answer:
        (await self._authenticator.authenticate(request)).require_admin()
        await request.read(AVISO_BODY_BYTES)
        media_type = (request.header(b"content-type") or "").partition(";")[0].strip().lower()
        try:
            body = orjson.loads(request.body) if media_type == JSON else None
        except orjson.JSONDecodeError:
            body = None
        name = body.get("stream_name") if isinstance(body, dict) else None
        if not isinstance(name, str):
            return _text(400, 'expected a JSON body such as {"stream_name":"mars"}')
        return _admin_response(await self._admin.wipe(name), request_id)

    async def _wipe_all(self, request: Request, request_id: str) -> Answer:
        (await self._authenticator.authenticate(request)).require_admin()
        return _admin_response(await self._admin.wipe_all(), request_id)

    # Health

    async def _ready(self) -> Answer:
        try:
            await self._health.check()
        except TailraceError:
            return _json(503, {"status": "not_ready", "backend_connected": False})
        return _json(200, {"status": "ready", "backend_connected": True})


def _parse_idempotency_key(request: Request, caller: str | None) -> Producer | None:
    """Turn an idempotency key into a producer that appends once, so that retries are duplicates."""
    key = request.header(b"idempotency-key")
    if key is None:
        return None
    if len(key) > AVISO_KEY_BYTES or not _VISIBLE.fullmatch(key):
        message = f"Idempotency-Key must have from 1 to {AVISO_KEY_BYTES} visible ASCII characters"
        raise request_error(RequestKind.NOTIFICATION, message)
    # The caller is part of the digest, so that one caller cannot use up the keys of another.
    digest = hashlib.sha256(f"{caller or ''}\n{key}".encode()).hexdigest()[:32]
    return Producer(f"aviso-{digest}", 0, 0)


def render_error(error: Exception, request_id: str) -> Response:
    """The answer to an error, as Aviso's clients expect it."""
    if isinstance(error, BodyTooLarge | ServerBusy):
        answer = _text(status_of(error), str(error))
    else:
        if not isinstance(error, AvisoError):
            error = AvisoError(500, "INTERNAL_ERROR", INTERNAL_MESSAGE)
        answer = _json(error.status, {**error.fields, "request_id": request_id}, error.headers)
    answer.headers.append((b"x-request-id", request_id.encode()))
    return answer


def _json_headers() -> RawHeaders:
    return [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]


def _json(status: int, fields: dict[str, Any], headers: RawHeaders | None = None) -> Response:
    body = orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)
    return Response(status, [*_json_headers(), *(headers or [])], body)


def _text(status: int, text: str) -> Response:
    headers: RawHeaders = [(b"content-type", b"text/plain; charset=utf-8")]
    return Response(status, [*headers, (b"cache-control", b"no-store")], text.encode())


def _admin_response(result: AdminResult, request_id: str, **extra: str) -> Response:
    fields = {
        "success": result.success,
        "message": result.message,
        **extra,
        "request_id": request_id,
    }
    return Response(result.status, _json_headers(), orjson.dumps(fields))
