"""Only CloudFront comes in: a function URL itself is open to the world.

An origin access control would do the same, but it asks every writer for a hash of the body that no
client of the protocol sends.

What the viewer function had to put elsewhere goes back to its place here: CloudFront passes on
neither `Authorization` nor what of a stream's query is not part of the cache key.
"""

from __future__ import annotations

from typing import Final

from tailrace.aws.edge import edge_token
from tailrace.aws.edge.origin_secret import FixedSecret, Secret, StoredSecret
from tailrace.errors import BadSetting, NotThroughTheEdge, TailraceError
from tailrace.settings import Settings
from tailrace.web.asgi import App, Receive, Scope, Send
from tailrace.web.statuses import error_response

SECRET_HEADER: Final = b"x-tailrace-origin"
HOST_HEADER: Final = b"x-forwarded-host"
"""The host that the client asked; `host` is the function's own."""

AUTHORIZATION_HEADER: Final = b"x-tailrace-authorization"
QUERY_HEADER: Final = b"x-tailrace-query"
VIEWER_HEADER: Final = b"x-tailrace-viewer"
"""The address that the client asked from; the connection is CloudFront's."""

EDGE_VERIFIED: Final = "tailrace.edge_verified"
"""In the scope: the edge has checked that whoever asks may read this path."""


class OriginGuard:
    def __init__(self, app: App, secret: Secret) -> None:
        self._app = app
        self._secret = secret

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        shown = headers.pop(SECRET_HEADER, b"")
        edge_token_ = headers.pop(edge_token.HEADER, None)
        try:
            if not await self._secret.admits(shown.decode("latin-1")):
                raise NotThroughTheEdge("ask the distribution; a function answers nobody else")
            edge_verified = edge_token_ is not None and await self._verifies(edge_token_, scope)
        except TailraceError as error:
            await _refuse(error, send)
            return
        query = scope.get("query_string", b""), headers.pop(QUERY_HEADER, b"")
        viewer = headers.pop(VIEWER_HEADER, b"").decode("latin-1")
        inside = {
            **scope,
            "client": (viewer, 0),
            "query_string": b"&".join(filter(None, query)),
            "headers": _restored(headers),
            EDGE_VERIFIED: edge_verified,
        }
        await self._app(inside, receive, send)

    async def _verifies(self, shown: bytes, scope: Scope) -> bool:
        raw_path = scope["raw_path"]
        if scope["method"] in ("GET", "HEAD") and await self._secret.verifies(shown, raw_path):
            return True
        # Not ignored: the credentials stayed at the edge, and whoever had good ones would be told
        # to get others.
        raise NotThroughTheEdge("the edge and the function have different keys; try again")


def _restored(headers: dict[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    # The edge moves it; what comes under its own name has not passed there.
    headers.pop(b"authorization", None)
    for name, sent_as in ((b"authorization", AUTHORIZATION_HEADER), (b"host", HOST_HEADER)):
        value = headers.pop(sent_as, None)
        if value is not None:
            headers[name] = value
    return list(headers.items())


def origin_secret(settings: Settings) -> Secret:
    if not settings.origin_secret:
        raise BadSetting("TAILRACE_ORIGIN_SECRET is missing: a function without it would be open")
    if settings.origin_secret.startswith("arn:"):
        return StoredSecret(settings)
    return FixedSecret(settings.origin_secret)


async def _refuse(error: TailraceError, send: Send) -> None:
    answer = error_response(error)
    headers = [*answer.headers, (b"content-length", b"%d" % len(answer.body))]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
