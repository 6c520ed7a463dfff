"""Converts events of function URLs, payload format 2.0, to ASGI requests. API Gateway's HTTP APIs
send the same format."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from asgi_stream.asgi import Scope
from asgi_stream.faults import MalformedEvent

_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")


def read_request(raw: bytes) -> tuple[Scope, bytes]:
    """Return the scope and the body of a request."""
    try:
        event = json.loads(raw)
        return _scope(event), _body(event)
    except (AttributeError, TypeError, ValueError) as error:
        raise MalformedEvent(f"not an HTTP event of payload format 2.0: {error!r}") from error


def _scope(event: Any) -> Scope:
    about = _get(event, "requestContext", dict)
    http = _get(event, "requestContext.http", dict)
    raw_path = _get(event, "rawPath", str).encode()
    client = http.get("sourceIp")
    server = about.get("domainName")
    return {
        "type": "http",
        # Not 2.4: with that, Starlette no longer waits for `http.disconnect`, and would not notice
        # the deadline.
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": str(http.get("protocol", "HTTP/1.1")).rpartition("/")[2],
        "method": _get(event, "requestContext.http.method", str).upper(),
        "scheme": "https",
        "path": _ESCAPE.sub(_byte, raw_path).decode("utf-8", "replace"),
        "raw_path": raw_path,
        "query_string": str(event.get("rawQueryString") or "").encode(),
        "root_path": "",
        "headers": _headers(event),
        "client": (client, 0) if client else None,
        "server": (server, 443) if server else None,
        "aws.event": event,
    }


def _byte(escape: re.Match[bytes]) -> bytes:
    return bytes([int(escape[1], 16)])


def _get(event: Any, path: str, kind: type[Any]) -> Any:
    value = event
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if not isinstance(value, kind):
        raise MalformedEvent(f"not an HTTP event of payload format 2.0: it has no {path}")
    return value


def _headers(event: dict[str, Any]) -> list[tuple[bytes, bytes]]:
    fields = {name.lower(): value for name, value in (event.get("headers") or {}).items()}
    if event.get("cookies"):
        fields["cookie"] = "; ".join(event["cookies"])
    return [(name.encode(), str(value).encode()) for name, value in fields.items()]


def _body(event: dict[str, Any]) -> bytes:
    body = str(event.get("body") or "")
    return base64.b64decode(body, validate=True) if event.get("isBase64Encoded") else body.encode()
