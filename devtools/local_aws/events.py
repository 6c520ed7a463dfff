"""Converts requests to events of function URLs, in payload format 2.0."""

from __future__ import annotations

import base64
import secrets
import time
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl

MOST_BYTES: Final = 6 << 20
"""The maximum size of an event."""

HOP_BY_HOP: Final = frozenset(
    {
        "connection",
        "expect",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers of a single connection, which are not forwarded in either direction."""

_TEXT: Final = frozenset({"application/json", "application/javascript", "application/xml"})


@dataclass(frozen=True, slots=True)
class Request:
    """A received request with its complete body."""

    method: str
    target: str
    protocol: str
    headers: list[tuple[str, str]]
    body: bytes
    peer: str

    @property
    def closes(self) -> bool:
        """Whether the connection is closed after the response."""
        return ("connection", "close") in ((name.lower(), value) for name, value in self.headers)


@dataclass(frozen=True, slots=True)
class Call:
    """A request and the event that was made from it."""

    request_id: str
    trace: str
    event: dict[str, Any]


def to_call(request: Request, domain: str) -> Call:
    path, _, query = request.target.partition("?")
    request_id, trace = _uuid(), f"Root=1-{int(time.time()):08x}-{secrets.token_hex(12)}"
    headers, cookies = _headers(request, domain, trace)
    prefix = domain.partition(".")[0]
    now = time.time()
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": query,
        "headers": headers,
        "requestContext": {
            "accountId": "anonymous",
            "apiId": prefix,
            "domainName": domain,
            "domainPrefix": prefix,
            "http": {
                "method": request.method,
                "path": path,
                "protocol": request.protocol,
                "sourceIp": request.peer,
                "userAgent": headers.get("user-agent", ""),
            },
            "requestId": request_id,
            "routeKey": "$default",
            "stage": "$default",
            "time": time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(now)),
            "timeEpoch": int(now * 1000),
        },
        "isBase64Encoded": False,
    }
    if cookies:
        event["cookies"] = cookies
    if query:
        event["queryStringParameters"] = _parameters(query)
    if request.body:
        text = _as_text(request.body, headers.get("content-type", ""))
        event["body"] = base64.b64encode(request.body).decode() if text is None else text
        event["isBase64Encoded"] = text is None
    return Call(request_id, trace, event)


def _headers(request: Request, domain: str, trace: str) -> tuple[dict[str, str], list[str]]:
    """The headers with one value per name, and the cookies, which are separate."""
    headers: dict[str, str] = {}
    cookies: list[str] = []
    for given, value in request.headers:
        name = given.lower()
        if name == "cookie":
            cookies += [cookie.strip() for cookie in value.split(";") if cookie.strip()]
        elif name not in HOP_BY_HOP:
            headers[name] = f"{headers[name]},{value}" if name in headers else value
    forwarded = headers.get("x-forwarded-for")
    headers |= {
        "host": domain,
        "x-amzn-trace-id": trace,
        "x-forwarded-for": f"{forwarded}, {request.peer}" if forwarded else request.peer,
        "x-forwarded-port": "443",
        "x-forwarded-proto": "https",
    }
    return headers, cookies


def _parameters(query: str) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        found.setdefault(name, []).append(value)
    return {name: ",".join(values) for name, values in found.items()}


def _as_text(body: bytes, content_type: str) -> str | None:
    """The body as text, if its content type is a text type."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind in _TEXT or kind.startswith("text/"):
        try:
            return body.decode()
        except UnicodeDecodeError:
            return None
    return None


def _uuid() -> str:
    digits = secrets.token_hex(16)
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
