"""Only CloudFront comes in: a function URL itself is open to the world.

An origin access control would do the same, but it asks every writer for a hash of the body that no
client of the protocol sends.
"""

from __future__ import annotations

from typing import Final

from tailrace.aws.secret import FixedSecret, Secret, StoredSecret
from tailrace.errors import BadSetting, NotThroughTheEdge, TailraceError
from tailrace.http.asgi import App, Receive, Scope, Send
from tailrace.http.statuses import error_response
from tailrace.settings import Settings

SECRET_HEADER: Final = b"x-tailrace-origin"
HOST_HEADER: Final = b"x-forwarded-host"
"""The host that the client asked; `host` is the function's own."""


class Door:
    def __init__(self, app: App, secret: Secret) -> None:
        self._app = app
        self._secret = secret

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        shown = headers.pop(SECRET_HEADER, b"")
        try:
            if not await self._secret.admits(shown.decode("latin-1")):
                raise NotThroughTheEdge("ask the distribution; a function answers nobody else")
        except TailraceError as error:
            await _refuse(error, send)
            return
        host = headers.pop(HOST_HEADER, None)
        if host is not None:
            headers[b"host"] = host
        await self._app({**scope, "headers": list(headers.items())}, receive, send)


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
