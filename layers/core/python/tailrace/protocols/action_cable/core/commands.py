"""Commands: the messages that clients send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from tailrace.errors import BadRequest
from tailrace.limits import MAX_INTEGER


class HistoryPosition(NamedTuple):
    """The position of the last message of a stream that a client has."""

    epoch: str
    offset: int


class MissedMessages(NamedTuple):
    """The messages that a client asks for: those since a time, in seconds, or after a position in
    each stream."""

    since: float
    positions: Mapping[str, HistoryPosition]


class Command(NamedTuple):
    name: str
    identifier: str = ""
    data: Any = None
    history: MissedMessages | None = None
    presence: Mapping[str, Any] | None = None


def parse(text: str | bytes) -> Command:
    """Parse one command; raises BadRequest for anything else."""
    try:
        fields = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise BadRequest("a command must be a JSON object") from None
    if not isinstance(fields, dict):
        raise BadRequest("a command must be a JSON object")
    name, identifier = fields.get("command"), fields.get("identifier", "")
    if not isinstance(name, str) or not isinstance(identifier, str):
        raise BadRequest("command and identifier must be strings")
    presence = fields.get("presence")
    return Command(
        name,
        identifier,
        fields.get("data"),
        _history(fields.get("history")),
        presence if isinstance(presence, dict) else None,
    )


def _history(fields: object) -> MissedMessages | None:
    if not isinstance(fields, dict):
        return None
    since, streams = fields.get("since"), fields.get("streams")
    positions: dict[str, HistoryPosition] = {}
    for stream, value in streams.items() if isinstance(streams, dict) else ():
        position = _position(value)
        if position is not None:
            positions[stream] = position
    return MissedMessages(_seconds(since), positions)


def _position(value: object) -> HistoryPosition | None:
    if not isinstance(value, dict):
        return None
    epoch, offset = value.get("epoch"), value.get("offset")
    if isinstance(epoch, str) and isinstance(offset, int) and 0 <= offset <= MAX_INTEGER:
        return HistoryPosition(epoch, offset)
    # An invalid position: no stream has this epoch, so the client gets `reject_history`.
    return HistoryPosition("", 0)


def _seconds(since: object) -> float:
    if isinstance(since, bool) or not isinstance(since, (int, float)):
        return 0
    return since if 0 <= since <= MAX_INTEGER else 0
