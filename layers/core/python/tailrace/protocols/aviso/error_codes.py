"""Error responses of Aviso, with all their codes.

| code | status | `error` |
|---|---|---|
| `INVALID_JSON`, `UNKNOWN_FIELD`, `INVALID_REQUEST_SHAPE` | 400 | `Invalid … Request` |
| `INVALID_NOTIFICATION_REQUEST` and its like for watch and replay | 400 | `Invalid … Request` |
| `UNKNOWN_EVENT_TYPE` | 400 | `unknown_event_type` |
| `UNAUTHORIZED` | 401 | `unauthorized` |
| `FORBIDDEN` | 403 | `forbidden` |
| `TOO_MANY_REQUESTS` | 429 | `too_many_requests` |
| `NOTIFICATION_STORAGE_FAILED` | 500 | `Notification Storage Failed` |
| `SSE_STREAM_INITIALIZATION_FAILED` | 500 | `SSE stream creation failed` |
| `INTERNAL_ERROR` | 500 | `internal_error` |
| `SERVICE_UNAVAILABLE` | 503 | `service_unavailable` |
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from tailrace.web.messages import RawHeaders


class RequestKind(Enum):
    """The requests that share the body format of `request_body`."""

    NOTIFICATION = "notification"
    WATCH = "watch"
    REPLAY = "replay"

    @property
    def label(self) -> str:
        return f"Invalid {self.value.capitalize()} Request"


LABELS: Final = {
    "UNKNOWN_EVENT_TYPE": "unknown_event_type",
    "UNAUTHORIZED": "unauthorized",
    "FORBIDDEN": "forbidden",
    "TOO_MANY_REQUESTS": "too_many_requests",
    "NOTIFICATION_STORAGE_FAILED": "Notification Storage Failed",
    "SSE_STREAM_INITIALIZATION_FAILED": "SSE stream creation failed",
    "INTERNAL_ERROR": "internal_error",
    "SERVICE_UNAVAILABLE": "service_unavailable",
}


class AvisoError(Exception):
    """An error response; `extra` has further fields of its body."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        label: str = "",
        extra: dict[str, Any] | None = None,
        headers: RawHeaders | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers: RawHeaders = headers or []
        self.fields: dict[str, Any] = {
            "code": code,
            "error": label or LABELS[code],
            "message": message,
            **(extra or {}),
        }


class BadField(ValueError):
    """An invalid value of an identifier field; the message names the field and the reason."""


def body_error(kind: RequestKind, code: str, message: str, details: str = "") -> AvisoError:
    extra = {"details": details or message}
    return AvisoError(400, code, message, label=kind.label, extra=extra)


def request_error(kind: RequestKind, message: str, details: str = "") -> AvisoError:
    return body_error(kind, f"INVALID_{kind.name}_REQUEST", message, details)


def event_type_error(event_type: str, configured: list[str]) -> AvisoError:
    return AvisoError(
        400,
        "UNKNOWN_EVENT_TYPE",
        f"unknown event type '{event_type[:80]}'; GET /api/v1/schema lists the event types",
        extra={"configured_event_types": sorted(configured)},
    )
