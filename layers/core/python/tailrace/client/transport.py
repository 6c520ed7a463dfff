"""Requests with httpx: how both clients build them, and read what went wrong."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, Final

import httpx

from tailrace import __version__
from tailrace.client.errors import BadRequestError
from tailrace.client.exchange import HttpAnswer, HttpRequest, LostConnection

CONNECT_SECONDS: Final = 10.0
MOST_CONNECTIONS: Final = 200
USER_AGENT: Final = f"tailrace/{__version__}"

LOST: Final = (httpx.TransportError, httpx.DecodingError, httpx.StreamError)
_UNSENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


def options(verify: bool | ssl.SSLContext) -> dict[str, Any]:
    """The options of an httpx client."""
    limits = httpx.Limits(max_connections=MOST_CONNECTIONS, max_keepalive_connections=20)
    return {"verify": verify, "limits": limits, "headers": {"User-Agent": USER_AGENT}}


def trust_for(url: str) -> bool | ssl.SSLContext:
    """Which certificates to trust.

    Loading the system's takes longer than most requests, so plain HTTP uses a context without
    any: it would refuse every TLS connection.
    """
    return True if url.startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def build(
    client: httpx.Client | httpx.AsyncClient, request: HttpRequest, timeout: float
) -> httpx.Request:
    read = timeout if request.patience is None else request.patience
    try:
        return client.build_request(
            request.method,
            request.url,
            headers=dict(request.headers),
            # Without a body, none is sent; with an empty one httpx adds a type of its own.
            content=request.content or None,
            timeout=httpx.Timeout(timeout, read=read, connect=min(timeout, CONNECT_SECONDS)),
        )
    except httpx.InvalidURL as error:
        raise BadRequestError(f"'{request.url}' is not a URL: {error}") from None


def answer_of(response: httpx.Response, body: bytes = b"") -> HttpAnswer:
    return HttpAnswer(response.status_code, headers_of(response), body)


def headers_of(response: httpx.Response) -> Mapping[str, str]:
    return dict(response.headers.items())


def lost(error: Exception) -> LostConnection:
    """An error of httpx, as operations understand it."""
    if isinstance(error, httpx.TimeoutException):
        reason = "no response in time"
    else:
        reason = str(error).partition("] ")[2] or str(error) or type(error).__name__
    return LostConnection(reason, delivered=not isinstance(error, _UNSENT))
