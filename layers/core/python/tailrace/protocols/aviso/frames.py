"""Server-sent events of watch and replay: a name, one line of JSON with sorted keys."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

import orjson

from tailrace.protocols.aviso.moments import shown_seconds

LIVE: Final = b"live-notification"
REPLAY: Final = b"replay"
CONTROL: Final = b"replay-control"


class Reason(Enum):
    """Why an answer ends; of several the first one counts."""

    SHUTDOWN = "server_shutdown"
    DURATION = "max_duration_reached"
    END = "end_of_stream"


_MESSAGES: Final = {
    Reason.SHUTDOWN: "the server stops; come back in a moment",
    Reason.DURATION: "the connection has lasted long enough; come back and go on",
    Reason.END: "there is no more",
}


class Frames:
    """The frames of one answer."""

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
        self, now: int, sequence: int | None, date: str | None, batch: int, end: int | None
    ) -> bytes:
        return self._frame(
            CONTROL,
            now,
            type="replay_started",
            from_sequence=sequence,
            from_date=date,
            batch_size=batch,
            end_sequence=end,
            request_id=self._request_id,
        )

    def completed(self, now: int) -> bytes:
        return self._frame(CONTROL, now, type="replay_completed")

    def limited(self, now: int, most: int) -> bytes:
        return self._frame(
            CONTROL,
            now,
            type="notification_replay_limit_reached",
            max_allowed=most,
            message=f"more than {most} notifications would be replayed; ask for fewer at a time",
        )

    def heartbeat(self, now: int) -> bytes:
        return self._frame(b"heartbeat", now)

    def closing(self, now: int, reason: Reason) -> bytes:
        return self._frame(
            b"connection-closing",
            now,
            reason=reason.value,
            message=_MESSAGES[reason],
            request_id=self._request_id,
        )

    def _frame(self, event: bytes, now: int, **fields: Any) -> bytes:
        data = {"topic": self._topic, "timestamp": shown_seconds(now), **fields}
        return b"event: %b\ndata: %b\n\n" % (
            event,
            orjson.dumps(data, option=orjson.OPT_SORT_KEYS),
        )
