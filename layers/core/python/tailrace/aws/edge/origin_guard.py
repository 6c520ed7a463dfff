"""The guard of function URLs, which are public: it accepts requests from CloudFront only.

An origin access control would do the same, but requires a hash of the body in every write, which
clients of the protocol do not send.

The guard also restores what the viewer-request function had to move to other headers, since
CloudFront forwards neither `Authorization` nor query parameters outside the cache key.
"""

from __future__ import annotations

from typing import Final

from tailrace.aws.edge.origin_secret import (
    EDGE_TOKEN_HEADER,
    ManagedOriginSecret,
    OriginSecret,
    StaticOriginSecret,
)
from tailrace.errors import BadSetting, NotThroughTheEdge, TailraceError
from tailrace.settings import Settings
from tailrace.web.asgi import App, Receive, Scope, Send
from tailrace.web.statuses import error_response

SECRET_HEADER: Final = b"x-tailrace-origin"
HOST_HEADER: Final = b"x-forwarded-host"
"""The Host of the client's request; `host` is that of the function URL."""

AUTHORIZATION_HEADER: Final = b"x-tailrace-authorization"
QUERY_HEADER: Final = b"x-tailrace-query"
VIEWER_HEADER: Final = b"x-tailrace-viewer"
"""The client's address; the peer of the connection is CloudFront."""

EDGE_VERIFIED: Final = "tailrace.edge_verified"
"""In the ASGI scope: the edge has authorized the client to read this path."""


class OriginGuard:
    def __init__(self, app: App, secret: OriginSecret) -> None:
        self._app = app
        self._secret = secret

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        secret = headers.pop(SECRET_HEADER, b"").decode("latin-1")
        token = headers.pop(EDGE_TOKEN_HEADER, None)
        try:
            if not await self._secret.matches(secret):
                raise NotThroughTheEdge("requests must come through CloudFront")
            edge_verified = token is not None and await self._verify_edge_token(token, scope)
        except TailraceError as error:
            await _send_error(error, send)
            return
        query = scope.get("query_string", b""), headers.pop(QUERY_HEADER, b"")
        viewer = headers.pop(VIEWER_HEADER, b"").decode("latin-1")
        inner_scope = {
            **scope,
            "client": (viewer, 0),
            "query_string": b"&".join(filter(None, query)),
            "headers": _restore_headers(headers),
            EDGE_VERIFIED: edge_verified,
        }
        await self._app(inner_scope, receive, send)

    async def _verify_edge_token(self, token: bytes, scope: Scope) -> bool:
        raw_path, is_read = scope["raw_path"], scope["method"] in ("GET", "HEAD")
        if is_read and await self._secret.verify_edge_token(token, raw_path):
            return True
        # The edge removed the credentials, so ignoring a bad token would refuse a client with
        # valid ones as unauthorized.
        raise NotThroughTheEdge("the edge and the function have different keys; try again")


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


async def _send_error(error: TailraceError, send: Send) -> None:
    response = error_response(error)
    headers = [*response.headers, (b"content-length", b"%d" % len(response.body))]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})
