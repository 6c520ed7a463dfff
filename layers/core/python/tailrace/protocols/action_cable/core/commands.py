"""What clients say on a cable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from tailrace.errors import BadRequest
from tailrace.limits import MAX_INTEGER


class Position(NamedTuple):
    """The last message that a client has of a stream."""

    epoch: str
    offset: int


class History(NamedTuple):
    """What a client missed: since when, in seconds, or after which message of each stream."""

    since: float
    positions: Mapping[str, Position]


class Command(NamedTuple):
    name: str
    identifier: str = ""
    data: Any = None
    history: History | None = None
    presence: Mapping[str, Any] | None = None


def parse(text: str | bytes) -> Command:
    """One command, or BadRequest for what is none."""
    try:
        fields = orjson.loads(text)
    except orjson.JSONDecodeError:
        raise BadRequest("a command is a JSON object") from None
    if not isinstance(fields, dict):
        raise BadRequest("a command is a JSON object")
    name, identifier = fields.get("command"), fields.get("identifier", "")
    if not isinstance(name, str) or not isinstance(identifier, str):
        raise BadRequest("command and identifier are texts")
    presence = fields.get("presence")
    return Command(
        name,
        identifier,
        fields.get("data"),
        _history(fields.get("history")),
        presence if isinstance(presence, dict) else None,
    )


def _history(given: object) -> History | None:
    if not isinstance(given, dict):
        return None
    since, streams = given.get("since"), given.get("streams")
    positions: dict[str, Position] = {}
    for stream, place in streams.items() if isinstance(streams, dict) else ():
        position = _position(place)
        if position is not None:
            positions[stream] = position
    return History(_seconds(since), positions)


def _position(place: object) -> Position | None:
    if not isinstance(place, dict):
        return None
    epoch, offset = place.get("epoch"), place.get("offset")
    if isinstance(epoch, str) and isinstance(offset, int) and 0 <= offset <= MAX_INTEGER:
        return Position(epoch, offset)
    # What cannot be a place in any stream is one that is not found.
    return Position("", 0)


def _seconds(since: object) -> float:
    if isinstance(since, bool) or not isinstance(since, (int, float)):
        return 0
    return since if 0 <= since <= MAX_INTEGER else 0
