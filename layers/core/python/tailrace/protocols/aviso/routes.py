"""The routes below `/api/v1/`, and `/ready`."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import import_module
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import orjson

from tailrace.auth.authorizer import PolicyProvider
from tailrace.auth.origins import Origins
from tailrace.clock import Clock
from tailrace.errors import BodyTooLarge, ServerBusy, TailraceError, TooManyRequests
from tailrace.limits import AVISO_BODY_BYTES, AVISO_KEY_BYTES
from tailrace.log.append import Append
from tailrace.log.state import Producer
from tailrace.protocols.aviso import DOCUMENT, PREFIX, READY, envelope
from tailrace.protocols.aviso.access import Access
from tailrace.protocols.aviso.admin import Admin, Told
from tailrace.protocols.aviso.config import Config
from tailrace.protocols.aviso.deletions import JSON, Deletions, append
from tailrace.protocols.aviso.errors import Operation, Refused, invalid
from tailrace.protocols.aviso.moments import shown_seconds
from tailrace.protocols.aviso.requests import (
    parse_body,
    parse_notification,
    parse_subscription,
    refuse_point,
)
from tailrace.protocols.aviso.watching import Opened, Watching
from tailrace.settings import Settings
from tailrace.streams import Streams
from tailrace.web.limiter import Limiter, client_key
from tailrace.web.messages import (
    PREFLIGHT_HEADERS,
    RawHeaders,
    Request,
    Response,
    Sink,
    Streaming,
    cors,
)
from tailrace.web.statuses import status_of

Answer = Response | Streaming

_VISIBLE: Final = re.compile(r"[!-~]+")
_EVENT_STREAM: Final[RawHeaders] = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]

logger = logging.getLogger("tailrace")


class _Route(NamedTuple):
    answer: Callable[[Request, str], Awaitable[Answer]]
    writes: bool = False


class AvisoRoutes:
    def __init__(
        self,
        streams: Streams,
        settings: Settings,
        provider: PolicyProvider,
        limiter: Limiter,
        clock: Clock,
        config: Config | None = None,
    ) -> None:
        self._streams = streams
        self._config = config or Config.load(settings)
        self._access = Access(provider, clock, self._config.admin_roles)
        self._limiter = limiter
        self._origins = Origins(settings.allowed_origins)
        deletions = Deletions(streams)
        self._watching = Watching(streams, self._config, deletions)
        self._admin = Admin(streams, self._config, deletions)
        routes = {
            "POST notification": _Route(self._notify, writes=True),
            "POST watch": _Route(partial(self._subscribe, Operation.WATCH)),
            "POST replay": _Route(partial(self._subscribe, Operation.REPLAY)),
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
        """The answer to any request; never an exception."""
        request_id = str(uuid.uuid4())
        try:
            answer = await self._answer(request, request_id)
        except Refused as error:
            fields = {**error.fields, "request_id": request_id}
            answer = _json(error.status, fields, error.headers)
        except (BodyTooLarge, ServerBusy) as error:
            answer = _text(status_of(error), str(error))
        except Exception:
            logger.exception("%s %s failed (%s)", request.method, request.raw_path, request_id)
            message = "something went wrong in the server; its log says what"
            fields = Refused(500, "INTERNAL_ERROR", message).fields
            answer = _json(500, {**fields, "request_id": request_id})
        answer.headers.append((b"x-request-id", request_id.encode()))
        answer.headers.extend(cors(self._origins, request.headers.get(b"origin")))
        return answer

    async def _answer(self, request: Request, request_id: str) -> Answer:
        if request.method == "GET" and request.raw_path == READY:
            return await self._ready()
        if request.method == "GET" and request.raw_path == DOCUMENT:
            from tailrace.protocols.aviso.openapi import describe

            return Response(200, _json_headers(), orjson.dumps(describe(self._config)))
        if request.method == "OPTIONS":
            return Response(204, [*PREFLIGHT_HEADERS])
        path = request.raw_path.removeprefix(PREFIX)
        route = self._route(request.method, path)
        if route is None:
            if not path.startswith("schema"):
                caller = await self._access.caller(request)
                if path.startswith("admin/"):
                    caller.administer()
            return _text(404, "")
        return await route.answer(request, request_id)

    def _route(self, method: str, path: str) -> _Route | None:
        if path.endswith("/"):
            return None
        # Or one name more: the last part is that of an event type, or of a notification.
        parent = path[: path.rfind("/") + 1]
        return self._routes.get(f"{method} {path}") or self._routes.get(f"{method} {parent}")

    # Publishing

    async def _notify(self, request: Request, request_id: str) -> Answer:
        caller = await self._access.caller(request)
        await request.read(AVISO_BODY_BYTES)
        body = parse_body(request.body, Operation.NOTIFICATION, self._config.events)
        refuse_point(body)
        caller.write(body.event)
        accepted = parse_notification(body)
        producer = _producer(request, caller.name)
        self._admit(partial(self._limiter.append, client_key(caller.name, request.peer)))
        now = self._streams.clock()
        message = envelope.encode(accepted, request_id, self._config.base_url, now)
        try:
            await append(self._streams, body.event.path, Append(message, JSON, producer=producer))
        except TailraceError as error:
            logger.warning("a notification was not stored (%s): %s", request_id, error)
            raise Refused(
                500,
                "NOTIFICATION_STORAGE_FAILED",
                "the notification was not stored",
                more={"details": str(error)},
            ) from None
        told = {
            "status": "success",
            "request_id": request_id,
            "processed_at": shown_seconds(now),
        }
        return Response(200, _json_headers(), orjson.dumps(told))

    # Reading

    async def _subscribe(self, operation: Operation, request: Request, request_id: str) -> Answer:
        caller = await self._access.caller(request)
        await request.read(AVISO_BODY_BYTES)
        body = parse_body(request.body, operation, self._config.events)
        caller.read(body.event)
        asked = parse_subscription(body)
        if asked.filter.spatial:
            # Loading GEOS takes a quarter of a second, the first time.
            await asyncio.to_thread(import_module, "tailrace.protocols.aviso.spatial")
        client = client_key(caller.name, request.peer)
        self._admit(partial(self._limiter.admit, client))
        try:
            opened = await self._watching.open(operation, asked, request_id)
        except TailraceError as error:
            raise Refused(
                500,
                "SSE_STREAM_INITIALIZATION_FAILED",
                "the stream of events cannot begin",
                more={"details": str(error), "topic": asked.filter.topic},
            ) from None
        return Streaming(200, [*_EVENT_STREAM], partial(self._stream, client, opened))

    async def _stream(self, client: str, opened: Opened, sink: Sink) -> None:
        with self._limiter.live(client):
            await self._watching.answer(opened, sink)

    def _admit(self, ask: Callable[[], None]) -> None:
        try:
            ask()
        except TooManyRequests as error:
            retry = (b"retry-after", b"%d" % error.retry_after)
            raise Refused(429, "TOO_MANY_REQUESTS", str(error), headers=[retry]) from None

    # Schemas

    async def _schemas(self, _: Request, __: str) -> Answer:
        events = self._config.events
        told: dict[str, Any] = {
            "status": "success",
            "schema": {name: event.described() for name, event in events.items()},
            "event_types": list(events),
            "total_schemas": len(events),
        }
        if not events:
            told["message"] = "no event types are configured"
        return _json(200, told)

    async def _schema(self, request: Request, request_id: str) -> Answer:
        name = unquote(request.raw_path.rpartition("/")[2])
        event = self._config.events.get(name)
        if event is not None:
            told = {"status": "success", "event_type": name, "schema": event.described()}
            return _json(200, told)
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
        (await self._access.caller(request)).administer()
        given = unquote(request.raw_path.rpartition("/")[2])
        told = await self._admin.delete(given)
        return _told(told, request_id, notification_id=given)

    async def _wipe(self, request: Request, request_id: str) -> Answer:
        (await self._access.caller(request)).administer()
        await request.read(AVISO_BODY_BYTES)
        kind = (request.header(b"content-type") or "").partition(";")[0].strip().lower()
        try:
            body = orjson.loads(request.body) if kind == JSON else None
        except orjson.JSONDecodeError:
            body = None
        name = body.get("stream_name") if isinstance(body, dict) else None
        if not isinstance(name, str):
            return _text(400, 'send JSON such as {"stream_name":"mars"}')
        return _told(await self._admin.wipe(name), request_id)

    async def _wipe_all(self, request: Request, request_id: str) -> Answer:
        (await self._access.caller(request)).administer()
        return _told(await self._admin.wipe_all(), request_id)

    # Health

    async def _ready(self) -> Answer:
        """Whether the store answers: a look at a stream that need not be there."""
        try:
            await self._streams.store.tail("aviso/ready")
        except TailraceError:
            return _json(503, {"status": "not_ready", "backend_connected": False})
        return _json(200, {"status": "ready", "backend_connected": True})


def _producer(request: Request, caller: str | None) -> Producer | None:
    """A key stands for a producer that sends once: what comes again is the same, sent again."""
    given = request.header(b"idempotency-key")
    if given is None:
        return None
    if len(given) > AVISO_KEY_BYTES or not _VISIBLE.fullmatch(given):
        message = f"Idempotency-Key has from 1 to {AVISO_KEY_BYTES} visible characters"
        raise invalid(Operation.NOTIFICATION, message)
    # Nobody can use up the keys of others.
    key = hashlib.sha256(f"{caller or ''}\n{given}".encode()).hexdigest()[:32]
    return Producer(f"aviso-{key}", 0, 0)


def _json_headers() -> RawHeaders:
    return [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]


def _json(status: int, fields: dict[str, Any], headers: RawHeaders | None = None) -> Response:
    body = orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)
    return Response(status, [*_json_headers(), *(headers or [])], body)


def _text(status: int, text: str) -> Response:
    headers: RawHeaders = [(b"content-type", b"text/plain; charset=utf-8")]
    return Response(status, [*headers, (b"cache-control", b"no-store")], text.encode())


def _told(told: Told, request_id: str, **more: str) -> Response:
    fields = {"success": told.success, "message": told.message, **more, "request_id": request_id}
    return Response(told.status, _json_headers(), orjson.dumps(fields))
