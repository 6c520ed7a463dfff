"""The subscription endpoints: everything below `__ds` of the root of streams."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import unquote

import orjson

from tailrace.auth.authorizer import Authorizer, Operation, PolicyProvider
from tailrace.auth.credentials import Credentials, parse_credentials
from tailrace.auth.origins import LocalHosts, Origins
from tailrace.auth.tokens import Grant
from tailrace.clock import Clock
from tailrace.errors import (
    InvalidSubscription,
    MethodNotAllowed,
    NotAllowed,
    NotFound,
    SubscriptionTokenInvalid,
)
from tailrace.limits import (
    LIST_PAGE_STREAMS,
    LISTED_LINKS,
    SUBSCRIPTION_BODY_BYTES,
    WAKE_STREAMS,
)
from tailrace.log.expiry import format_instant
from tailrace.protocols.subscriptions.core import wakes
from tailrace.protocols.subscriptions.core.configuration import (
    PULL_WAKE,
    WEBHOOK,
    list_of,
    number_of,
    parse_configuration,
    parse_id,
    parse_object,
    parse_path,
    parse_streams,
    text_of,
)
from tailrace.protocols.subscriptions.core.records import DurableSubscription, Link, Phase
from tailrace.protocols.subscriptions.service import (
    Ack,
    Fence,
    SubscriptionService,
    WakeSigner,
    describe_link,
)
from tailrace.settings import Settings
from tailrace.web.endpoint import Endpoint
from tailrace.web.limiter import Limiter, client_key
from tailrace.web.messages import PREFLIGHT_HEADERS, Answer, Request, Response
from tailrace.web.urls import StreamUrls

LIST_DEFAULT: Final = 100
JWKS_PATH: Final = "/v1/stream/__ds/jwks.json"

_BEARER: Final = re.compile(r"bearer +([!-~]+)", re.IGNORECASE)
_JWKS_HEADERS: Final = (
    (b"content-type", b"application/jwk-set+json"),
    (b"cache-control", b"public, max-age=300"),
)

_Handler = Callable[[Request, str], Awaitable[Answer]]


class Verifier(WakeSigner, Protocol):
    """Signs, and verifies what was signed."""

    async def kid(self, now: int) -> str: ...

    async def jwks(self, now: int) -> Mapping[str, Any]: ...

    async def verify_token(self, token: str, subscription: str, now: int) -> int | None:
        """Return the generation that a token is for, None if it is none of this subscription;
        raises TokenExpired."""


class _Caller(NamedTuple):
    authorizer: Authorizer
    credentials: Credentials
    grant: Grant | None
    """None: the server is open."""
    now: int

    @property
    def reads(self) -> tuple[str, ...] | None:
        """Patterns of the streams that the client may read; None: all."""
        return None if self.grant is None else self.grant.streams.each

    def authorize(self, operation: Operation, path: str) -> None:
        self.authorizer.authorize(operation, path, self.credentials, self.now)


class SubscriptionRoutes:
    def __init__(
        self,
        service: SubscriptionService,
        settings: Settings,
        urls: StreamUrls,
        provider: PolicyProvider,
        keys: Verifier,
        limiter: Limiter,
        hosts: LocalHosts | None,
        clock: Clock,
    ) -> None:
        self.respond = Endpoint(self._answer, Origins(settings.allowed_origins), hosts).respond
        self._service = service
        self._public_url = settings.public_url.rstrip("/")
        self._prefixes = urls.reserved
        self._provider = provider
        self._keys = keys
        self._limiter = limiter
        self._clock = clock
        self._subscription: Mapping[str, _Handler] = {
            "PUT": self._put,
            "GET": self._get,
            "DELETE": self._delete,
        }
        self._actions: Mapping[str, _Handler] = {
            "streams": self._add_streams,
            "callback": self._callback,
            "claim": self._claim,
            "ack": self._ack,
            "release": self._release,
        }

    async def _answer(self, request: Request) -> Answer:
        if request.method == "OPTIONS":
            return Response(204, [*PREFLIGHT_HEADERS])
        for prefix in self._prefixes:
            if request.raw_path.startswith(prefix):
                return await self._route(request, request.raw_path[len(prefix) :].split("/"))
        raise NotFound("there is nothing at this path")

    async def _route(self, request: Request, segments: list[str]) -> Answer:
        match segments:
            case ["jwks.json"]:
                _require(request, "GET", "HEAD")
                body = orjson.dumps(await self._keys.jwks(self._clock()))
                return Response(200, [*_JWKS_HEADERS], body)
            case ["subscriptions"]:
                _require(request, "GET")
                return await self._list(request)
            case ["subscriptions", id_]:
                handler = self._subscription.get(request.method)
                if handler is None:
                    raise MethodNotAllowed(request.method, "GET, PUT, DELETE, OPTIONS")
                return await handler(request, _id(id_))
            case ["subscriptions", id_, action] if action in self._actions:
                _require(request, "POST")
                return await self._actions[action](request, _id(id_))
            case ["subscriptions", id_, "streams", *path]:
                _require(request, "DELETE")
                return await self._remove_stream(request, _id(id_), "/".join(path))
        raise NotFound("there is nothing at this path")

    # Subscriptions

    async def _put(self, request: Request, id: str) -> Answer:  # noqa: A002
        caller = await self._caller(request)
        await request.read(SUBSCRIPTION_BODY_BYTES)
        configuration = parse_configuration(request.body)
        for name in filter(None, (*configuration.streams, configuration.pattern)):
            caller.authorize(Operation.SUBSCRIBE, name)
        if configuration.wake_stream is not None:
            # Wake events are appended in the name of the creator.
            caller.authorize(Operation.APPEND, configuration.wake_stream)
        record, new = await self._service.create(
            id, configuration, self._base_url(request), caller.reads
        )
        return _json(201 if new else 200, await self._describe(record))

    async def _get(self, request: Request, id: str) -> Answer:  # noqa: A002
        return _json(200, await self._describe(await self._find(request, id)))

    async def _delete(self, request: Request, id: str) -> Answer:  # noqa: A002
        caller = await self._caller(request)
        record = await self._service.store.load(id)
        if record is not None:
            await self._check(caller, record)
            await self._service.delete(id)
        return Response(204, [])

    async def _list(self, request: Request) -> Answer:
        """Answer with a page of the subscriptions that the client may use, without their links."""
        caller, parameters = await self._caller(request), request.parameters()
        limit = _limit(parameters.get("limit", [str(LIST_DEFAULT)])[-1])
        after = parameters.get("after", [""])[-1]
        records = await self._service.store.list(after, limit + 1)
        shown = [
            await self._describe(record, ())
            for record in records[:limit]
            if record.phase is not Phase.DELETED and await self._is_allowed(caller, record)
        ]
        more = records[limit - 1].id if len(records) > limit else None
        return _json(200, {"subscriptions": shown, "next": more})

    async def _is_allowed(self, caller: _Caller, record: DurableSubscription) -> bool:
        try:
            await self._check(caller, record)
        except NotAllowed:
            return False
        return True

    async def _add_streams(self, request: Request, id: str) -> Answer:  # noqa: A002
        caller = await self._caller(request)
        paths = parse_streams((await _fields(request)).get("streams"))
        for path in paths:
            caller.authorize(Operation.SUBSCRIBE, path)
        await self._check(caller, await self._service.find(id))
        await self._service.add_streams(id, paths)
        return Response(204, [])

    async def _remove_stream(
        self,
        request: Request,
        id: str,  # noqa: A002
        path: str,
    ) -> Answer:
        # The slashes within the path may be encoded, too.
        name = parse_path(unquote(path, errors="surrogateescape"), "the path")
        await self._find(request, id)
        await self._service.remove_stream(id, name)
        return Response(204, [])

    # Wakes

    async def _claim(self, request: Request, id: str) -> Answer:  # noqa: A002
        await self._find(request, id)
        fields = await _fields(request)
        worker = text_of(fields, "worker")
        if not worker:
            raise InvalidSubscription("worker must be the name of the worker")
        record, links = await self._service.claim(id, worker)
        answer = {
            "wake_id": record.wake_id,
            "generation": record.generation,
            "token": await self._service.token(record),
            "streams": [describe_link(link) for link in links],
            "lease_ttl_ms": record.lease_ttl_ms,
        }
        return _json(200, answer)

    async def _callback(self, request: Request, id: str) -> Answer:  # noqa: A002
        return await self._acknowledge(request, id, WEBHOOK)

    async def _ack(self, request: Request, id: str) -> Answer:  # noqa: A002
        return await self._acknowledge(request, id, PULL_WAKE)

    async def _acknowledge(
        self,
        request: Request,
        id: str,  # noqa: A002
        kind: str,
    ) -> Answer:
        generation, fields = await self._fenced(request, id, kind)
        acks = [_parse_ack(each) for each in list_of(fields, "acks")]
        if len(acks) > WAKE_STREAMS:
            raise InvalidSubscription(f"at most {WAKE_STREAMS} streams are acknowledged at once")
        done = fields.get("done", False)
        if not isinstance(done, bool):
            raise InvalidSubscription("done must be true or false")
        fence = _fence(generation, fields)
        next_wake = await self._service.acknowledge(id, fence, acks, done=done)
        return _json(200, {"ok": True, "next_wake": next_wake})

    async def _release(self, request: Request, id: str) -> Answer:  # noqa: A002
        generation, fields = await self._fenced(request, id, PULL_WAKE)
        await self._service.release(id, _fence(generation, fields))
        return Response(204, [])

    async def _fenced(
        self,
        request: Request,
        id: str,  # noqa: A002
        kind: str,
    ) -> tuple[int, Mapping[str, Any]]:
        """Verify the token of a wake; returns its generation, and the body."""
        match = _BEARER.fullmatch(request.header(b"authorization") or "")
        generation = None
        if match is not None:
            generation = await self._keys.verify_token(match[1], id, self._clock())
        if generation is None:
            raise SubscriptionTokenInvalid("send the token of the wake as a bearer token")
        request.client = client_key(f"subscription {id}", request.peer)
        fields = await _fields(request)
        record = await self._service.find(id)
        if record.type != kind:
            raise InvalidSubscription(f"this is a subscription of the type {record.type}")
        return generation, fields

    # Inside

    async def _find(self, request: Request, id: str) -> DurableSubscription:  # noqa: A002
        """Return a subscription that the client may use."""
        caller = await self._caller(request)
        record = await self._service.find(id)
        await self._check(caller, record)
        return record

    async def _caller(self, request: Request) -> _Caller:
        authorizer, now = await self._provider.current(), self._clock()
        credentials = parse_credentials(request.fields, request.parameters(), authorizer.jwt_param)
        await authorizer.prepare(credentials, now)
        grant = None if authorizer.open else authorizer.grant(credentials, now)
        request.client = client_key(None if grant is None else grant.subject, request.peer)
        if request.method != "GET":
            self._limiter.append(request.client)
        return _Caller(authorizer, credentials, grant, now)

    async def _check(self, caller: _Caller, record: DurableSubscription) -> None:
        """Check that a client may follow all that a subscription does."""
        if caller.grant is None:
            return
        if record.pattern is not None:
            caller.authorize(Operation.SUBSCRIBE, record.pattern)
        after = ""
        while links := await self._service.store.links(record, after, LISTED_LINKS):
            for link in links:
                if link.explicit:
                    caller.authorize(Operation.SUBSCRIBE, link.path)
            after = links[-1].path

    async def _describe(
        self, record: DurableSubscription, links: Sequence[Link] | None = None
    ) -> Mapping[str, Any]:
        if links is None:
            links = await self._service.store.links(record, "", LISTED_LINKS)
        webhook = None
        if record.url is not None:
            signing = {
                "alg": "ed25519",
                "kid": await self._keys.kid(self._clock()),
                "jwks_url": f"{record.base_url}{JWKS_PATH}",
            }
            webhook = {"url": record.url, "signing": signing}
        value = {
            "id": record.id,
            "subscription_id": record.id,
            "type": record.type,
            "pattern": record.pattern,
            "streams": [_describe_link(link) for link in links],
            "webhook": webhook,
            "wake_stream": record.wake_stream,
            "lease_ttl_ms": record.lease_ttl_ms,
            "created_at": format_instant(record.created_at),
            "status": wakes.status(record),
            "description": record.description,
        }
        return {name: each for name, each in value.items() if each is not None}

    def _base_url(self, request: Request) -> str:
        host = request.header(b"host") or "localhost"
        return self._public_url or f"{request.scheme}://{host}"


def _describe_link(link: Link) -> Mapping[str, str]:
    return {"path": link.path, "link_type": link.type, "acked_offset": link.acked}


def _limit(text: str) -> int:
    if not text.isdecimal() or len(text) > 9 or not 1 <= int(text) <= LIST_PAGE_STREAMS:
        raise InvalidSubscription(f"limit must be a whole number from 1 to {LIST_PAGE_STREAMS}")
    return int(text)


def _id(segment: str) -> str:
    return parse_id(unquote(segment, errors="surrogateescape"))


def _require(request: Request, *methods: str) -> None:
    if request.method not in methods:
        raise MethodNotAllowed(request.method, ", ".join((*methods, "OPTIONS")))


async def _fields(request: Request) -> Mapping[str, Any]:
    await request.read(SUBSCRIPTION_BODY_BYTES)
    return parse_object(request.body)


def _parse_ack(value: object) -> Ack:
    if not isinstance(value, dict) or not isinstance(value.get("offset"), str):
        raise InvalidSubscription("acks must be a list of objects with stream and offset")
    return Ack(parse_path(value.get("stream"), "stream"), value["offset"])


def _fence(token_generation: int, fields: Mapping[str, Any]) -> Fence:
    return Fence(token_generation, number_of(fields, "generation"), text_of(fields, "wake_id"))


def _json(status: int, value: Mapping[str, Any]) -> Response:
    headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]
    return Response(status, headers, orjson.dumps(value))
