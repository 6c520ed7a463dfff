"""The guard of origins: it accepts requests from CloudFront only.

Function URLs are public. An origin access control would do the same, but requires a hash of the
body in every write, which clients of the protocol do not send. Containers are in a private network,
but the guard also proves which distribution a request came through, and with which edge token.

The guard restores what the viewer-request function had to move to other headers, since CloudFront
forwards neither `Authorization` nor query parameters outside the cache key.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Final, NamedTuple

from tailrace.aws.edge.origin_secret import (
    EDGE_TOKEN_HEADER,
    ManagedOriginSecret,
    OriginSecret,
    StaticOriginSecret,
)
from tailrace.errors import BadSetting, NotThroughTheEdge, TailraceError
from tailrace.settings import Settings
from tailrace.web.asgi import App, Receive, Scope, Send, send_answer
from tailrace.web.messages import Answer, RawHeaders, Request
from tailrace.web.statuses import error_response

SECRET_HEADER: Final = b"x-tailrace-origin"
HOST_HEADER: Final = b"x-forwarded-host"
"""The Host of the client's request; `host` is that of the origin."""

AUTHORIZATION_HEADER: Final = b"x-tailrace-authorization"
QUERY_HEADER: Final = b"x-tailrace-query"
VIEWER_HEADER: Final = b"x-tailrace-viewer"
"""The client's address; the peer of the connection is CloudFront."""

EDGE_VERIFIED: Final = "tailrace.edge_verified"
"""In the ASGI scope: the edge has authorized the client to read this path."""

EDGE_SCHEME: Final = "https"
"""How clients reach CloudFront, whatever it speaks with the origin."""


class ViewerRequest(NamedTuple):
    """The parts of a request that the edge changes, as its client has sent them."""

    headers: RawHeaders
    query: bytes
    viewer: str
    """The client's address."""
    edge_verified: bool


class OriginGuard:
    """An ASGI application in front of another one."""

    def __init__(self, app: App, secret: OriginSecret, unguarded: Collection[str] = ()) -> None:
        """`unguarded`: paths that may be read without the secret, such as that of health checks,
        if there is no query."""
        self._app = app
        self._secret = secret
        self._unguarded = frozenset(unguarded)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._is_unguarded(scope):
            await self._app(scope, receive, send)
            return
        is_http = scope["type"] == "http"
        try:
            request = await admit(
                self._secret,
                # A handshake of a WebSocket has no edge token: the edge verifies reads of streams.
                scope["method"] if is_http else "",
                scope.get("raw_path", b""),
                scope.get("query_string", b""),
                scope["headers"],
            )
        except TailraceError as error:
            if not is_http:
                await receive()
            await send_answer(error_response(error), scope, receive, send)
            return
        restored = {
            "client": (request.viewer, 0),
            "scheme": EDGE_SCHEME if is_http else "wss",
            "query_string": request.query,
            "headers": request.headers,
            EDGE_VERIFIED: request.edge_verified,
        }
        if is_http:
            await self._app({**scope, **restored}, receive, send)
            return
        # Not a copy: the application frees what only the handshake needed.
        scope.update(restored)
        del request, restored
        await self._app(scope, receive, send)

    def _is_unguarded(self, scope: Scope) -> bool:
        return (
            scope["type"] == "http"
            and scope["method"] == "GET"
            and scope.get("path") in self._unguarded
            and not scope.get("query_string")
        )


def guard_requests(
    secret: OriginSecret, respond: Callable[[Request], Awaitable[Answer]]
) -> Callable[[Request], Awaitable[Answer]]:
    """Guard a handler of requests that do not come through ASGI."""

    async def respond_to_edge(request: Request) -> Answer:
        path, query = request.raw_path.encode("latin-1"), request.query.encode("latin-1")
        try:
            admitted = await admit(secret, request.method, path, query, request.fields)
        except TailraceError as error:
            return error_response(error, request.id)
        request.restore(
            admitted.headers,
            admitted.query.decode("latin-1"),
            EDGE_SCHEME,
            admitted.viewer,
            edge_verified=admitted.edge_verified,
        )
        return await respond(request)

    return respond_to_edge


async def admit(
    secret: OriginSecret, method: str, raw_path: bytes, query: bytes, fields: RawHeaders
) -> ViewerRequest:
    """Admit a request that came through CloudFront; raise NotThroughTheEdge for any other."""
    headers = dict(fields)
    shown = headers.pop(SECRET_HEADER, b"").decode("latin-1")
    token = headers.pop(EDGE_TOKEN_HEADER, None)
    if not await secret.matches(shown):
        raise NotThroughTheEdge("requests must come through CloudFront")
    edge_verified = token is not None
    if token is not None:
        is_read = method in ("GET", "HEAD")
        if not is_read or not await secret.verify_edge_token(token, raw_path):
            # The edge removed the credentials, so ignoring a bad token would refuse a client with
            # valid ones as unauthorized.
            raise NotThroughTheEdge("the edge and the origin have different keys; try again")
    whole_query = b"&".join(filter(None, (query, headers.pop(QUERY_HEADER, b""))))
    viewer = headers.pop(VIEWER_HEADER, b"").decode("latin-1")
    return ViewerRequest(_restore_headers(headers), whole_query, viewer, edge_verified)


def _restore_headers(headers: dict[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    # The edge moves this header, so one with the original name did not come through it.
    headers.pop(b"authorization", None)
    for name, sent_as in ((b"authorization", AUTHORIZATION_HEADER), (b"host", HOST_HEADER)):
        value = headers.pop(sent_as, None)
        if value is not None:
            headers[name] = value
    return list(headers.items())


def create_origin_secret(settings: Settings) -> OriginSecret:
    if not settings.origin_secret:
        raise BadSetting(
            "TAILRACE_ORIGIN_SECRET is not set: without it the function would accept any request"
        )
    if settings.origin_secret.startswith("arn:"):
        return ManagedOriginSecret(settings)
    return StaticOriginSecret(settings.origin_secret)
