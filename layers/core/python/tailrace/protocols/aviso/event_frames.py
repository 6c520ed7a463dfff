"""Server-sent events of watch and replay: a name and one line of JSON with sorted keys."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

import orjson

from tailrace.protocols.aviso.request_body import Bound
from tailrace.protocols.aviso.timestamps import format_seconds, to_milliseconds

LIVE: Final = b"live-notification"
REPLAY: Final = b"replay"
CONTROL: Final = b"replay-control"


class EndReason(Enum):
    """Why a response ends. If several apply, the first one is sent."""

    SHUTDOWN = "server_shutdown"
    DURATION = "max_duration_reached"
    END = "end_of_stream"


_MESSAGES: Final = {
    EndReason.SHUTDOWN: "the server is shutting down; reconnect to continue",
    EndReason.DURATION: "the connection has reached its maximum duration; reconnect to continue",
    EndReason.END: "the stream has ended",
}


class EventFrames:
    """The frames of one response."""

    def __init__(self, topic: str, request_id: str) -> None:
        self._topic = topic
        self._request_id = request_id

    def established(self, now: int, seconds: float) -> bytes:
        return self._frame(
            LIVE,
            now,
            type="connection_established",
            connection_will_close_in_seconds=int(seconds),
            request_id=self._request_id,
        )

    def started(
        self, now: int, start: Bound, stop: Bound | None, end: int | None, batch: int
    ) -> bytes:
        """`end`: the sequence at which the replay stops, if it has an upper bound."""
        return self._frame(
            CONTROL,
            now,
            type="replay_started",
            from_sequence=start.sequence,
            from_date=_format_date(start),
            to_date=_format_date(stop),
            batch_size=batch,
            end_sequence=end,
            request_id=self._request_id,
        )

    def completed(self, now: int) -> bytes:
        return self._frame(CONTROL, now, type="replay_completed")

    def limited(self, now: int, limit: int) -> bytes:
        return self._frame(
            CONTROL,
            now,
            type="notification_replay_limit_reached",
            max_allowed=limit,
            message=f"the replay exceeds {limit} notifications; narrow its bounds or its filter",
        )

    def heartbeat(self, now: int) -> bytes:
        return self._frame(b"heartbeat", now)

    def closing(self, now: int, reason: EndReason) -> bytes:
        return self._frame(
            b"connection-closing",
            now,
            reason=reason.value,
            message=_MESSAGES[reason],
            request_id=self._request_id,
        )

    def _frame(self, event: bytes, now: int, **fields: Any) -> bytes:
        data = {"topic": self._topic, "timestamp": format_seconds(now), **fields}
        return b"event: %b\ndata: %b\n\n" % (
            event,
            orjson.dumps(data, option=orjson.OPT_SORT_KEYS),
        )


def _format_date(bound: Bound | None) -> str | None:
    if bound is None or bound.instant is None:
        return None
    return format_seconds(to_milliseconds(bound.instant))
