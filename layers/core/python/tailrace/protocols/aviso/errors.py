"""What is wrong with an Aviso request, and the one table of its codes.

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


class Operation(Enum):
    """The requests that have a body of the common form."""

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


class Refused(Exception):
    """An answer other than success; `more` are further fields of its body."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        label: str = "",
        more: dict[str, Any] | None = None,
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
            **(more or {}),
        }


class BadField(ValueError):
    """A value that an identifier field does not take: the message says which and why."""


def bad_body(operation: Operation, code: str, message: str, details: str = "") -> Refused:
    more = {"details": details or message}
    return Refused(400, code, message, label=operation.label, more=more)


def invalid(operation: Operation, message: str, details: str = "") -> Refused:
    return bad_body(operation, f"INVALID_{operation.name}_REQUEST", message, details)


def unknown_event_type(event_type: str, configured: list[str]) -> Refused:
    return Refused(
        400,
        "UNKNOWN_EVENT_TYPE",
        f"unknown event type '{event_type[:80]}'; GET /api/v1/schema lists those there are",
        more={"configured_event_types": sorted(configured)},
    )
