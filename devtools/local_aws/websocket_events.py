"""The events of a WebSocket API: $connect, $default and $disconnect."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from devtools.local_aws.events import HOP_BY_HOP


@dataclass(slots=True)
class Client:
    """A client of an API, and the part of its events that describes it."""

    api: str
    domain: str
    stage: str
    source_ip: str
    user_agent: str
    connection_id: str = field(default_factory=lambda: new_id())
    connected_at: float = field(default_factory=time.time)
    last_active_at: float = field(default_factory=time.time)

    @property
    def identity(self) -> dict[str, str]:
        agent = {"userAgent": self.user_agent} if self.user_agent else {}
        return {**agent, "sourceIp": self.source_ip}

    def connects(
        self, query: str, headers: Iterable[tuple[str, str]], added: Mapping[str, str]
    ) -> dict[str, Any]:
        """$connect; `added` are the headers that the edge adds."""
        event = self._event("$connect", "CONNECT")
        event |= _several("headers", "multiValueHeaders", self._forwarded(headers, added))
        if query:
            given = parse_qsl(query, keep_blank_values=True)
            event |= _several("queryStringParameters", "multiValueQueryStringParameters", given)
        return event

    def says(self, body: str) -> dict[str, Any]:
        """$default."""
        event = self._event("$default", "MESSAGE", messageId=new_id())
        return {**event, "body": body}

    def leaves(self, code: int, reason: str) -> dict[str, Any]:
        """$disconnect."""
        event = self._event(
            "$disconnect", "DISCONNECT", disconnectStatusCode=code, disconnectReason=reason
        )
        left = [("Host", self.domain), ("x-api-key", ""), ("X-Forwarded-For", "")]
        return event | _several("headers", "multiValueHeaders", [*left, ("x-restapi", "")])

    def _event(self, route: str, kind: str, **more: object) -> dict[str, Any]:
        now, request_id = time.time(), new_id()
        return {
            "requestContext": {
                "routeKey": route,
                "eventType": kind,
                "extendedRequestId": request_id,
                "requestTime": time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(now)),
                "messageDirection": "IN",
                "stage": self.stage,
                "connectedAt": int(self.connected_at * 1000),
                "requestTimeEpoch": int(now * 1000),
                "identity": self.identity,
                "requestId": request_id,
                "domainName": self.domain,
                "connectionId": self.connection_id,
                "apiId": self.api,
                **more,
            },
            "isBase64Encoded": False,
        }

    def _forwarded(
        self, headers: Iterable[tuple[str, str]], added: Mapping[str, str]
    ) -> list[tuple[str, str]]:
        """The client's headers, with their original names, and the added ones."""
        own = {"Host": self.domain, **added}
        hidden = HOP_BY_HOP | {name.lower() for name in own} | {"x-forwarded-for"}
        given = list(headers)
        passed = [value for name, value in given if name.lower() == "x-forwarded-for"]
        return [
            *((name, value) for name, value in given if name.lower() not in hidden),
            *own.items(),
            ("X-Amzn-Trace-Id", f"Root=1-{int(time.time()):08x}-{secrets.token_hex(12)}"),
            ("X-Forwarded-For", ", ".join([*passed, self.source_ip])),
            ("X-Forwarded-Port", "443"),
            ("X-Forwarded-Proto", "https"),
        ]


def new_id() -> str:
    """A connection id like those of AWS, which end with a character that paths must escape."""
    return base64.urlsafe_b64encode(secrets.token_bytes(11)).decode()


def _several(single: str, multiple: str, given: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """All values of each name, and the last value of each."""
    values: dict[str, list[str]] = {}
    for name, value in given:
        values.setdefault(name, []).append(value)
    return {single: {name: each[-1] for name, each in values.items()}, multiple: values}
