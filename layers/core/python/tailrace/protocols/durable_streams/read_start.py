"""Where a read begins: at an offset, at the last messages, at an instant, or at an event's id."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tailrace.errors import BadHeader, BadOffset, BadParameter
from tailrace.limits import MAX_INTEGER
from tailrace.log import offsets
from tailrace.log.expiry import parse_decimal, parse_instant
from tailrace.log.offsets import Position
from tailrace.streams import Streams, View

_UNIX: Final = re.compile(r"[0-9]{1,16}(\.[0-9]{1,9})?")
_MILLISECONDS: Final = 100_000_000_000
"""From here on a Unix time is in milliseconds: as seconds it would be in the year 5138."""


class Last(NamedTuple):
    """The last messages of a stream, or its last bytes if it is not JSON."""

    length: int


class Since(NamedTuple):
    """All that was appended at an instant or later."""

    instant: int
    """In milliseconds."""


ReadStart = Position | Last | Since

Parameters = Mapping[str, Sequence[str]]


def parse_live(parameters: Parameters) -> str:
    """Parse how a read goes on at the tail: long-poll, sse, or empty for not at all."""
    live = parameters.get("live", [""])[-1]
    if live not in ("", "false", "long-poll", "sse"):
        raise BadParameter(f"live must be long-poll, sse or false, not '{live[:40]}'")
    return "" if live == "false" else live


def parse_start(
    parameters: Parameters, event_id: str | None, *, live: bool, lenient: bool = False
) -> ReadStart:
    """Parse where a read begins. `event_id`: the Last-Event-ID of a browser that reconnects; it is
    newer than what the URL says. `lenient`: 0 and an empty offset are the beginning, too."""
    if event_id:
        return offsets.parse(event_id)
    named = [name for name in ("offset", "last", "since") if name in parameters]
    if not named:
        if live:
            raise BadOffset(
                "a live read needs an offset: -1, now, or a Stream-Next-Offset; or last, or since"
            )
        return Position(offsets.BEGINNING)
    if len(named) > 1:
        raise BadParameter(f"{' and '.join(named)} exclude each other: each says where to begin")
    name = named[0]
    if len(parameters[name]) > 1:
        error = BadOffset if name == "offset" else BadParameter
        raise error(f"{name} was given more than once")
    text = parameters[name][0]
    if name == "last":
        return Last(_count(text))
    if name == "since":
        return Since(_instant(text))
    if lenient and text in ("", "0"):
        return Position(offsets.BEGINNING)
    return offsets.parse_position(text)


async def read_from(
    streams: Streams, path: str, start: ReadStart, chunk_bytes: int | None = None
) -> View:
    """Read the first chunk. `chunk_bytes`: another size than that of the settings."""
    match start:
        case Last(length):
            return await streams.read_last(path, length, chunk_bytes)
        case Since(instant):
            return await streams.read_since(path, instant, chunk_bytes)
        case _:
            return await streams.read(path, start, chunk_bytes)


async def resolve(streams: Streams, path: str, start: ReadStart) -> Position:
    """Return the position where a read begins, without reading anything."""
    match start:
        case Last(length):
            return await streams.last(path, length)
        case Since(instant):
            return await streams.since(path, instant)
        case Position(offsets.NOW):
            return await streams.last(path, 0)
        case _:
            return start


def _count(text: str) -> int:
    try:
        return parse_decimal("last", text)
    except BadHeader as error:
        raise BadParameter(str(error)) from None


def _instant(text: str) -> int:
    if _UNIX.fullmatch(text):
        whole, _, fraction = text.partition(".")
        if int(whole) >= _MILLISECONDS:
            return min(int(whole), MAX_INTEGER)
        return int(whole) * 1000 + int(fraction[:3].ljust(3, "0"))
    try:
        # In a query a plus sign is a space.
        return parse_instant(text.replace(" ", "+"))
    except BadHeader:
        raise BadParameter(
            "since must be an RFC 3339 time such as 2030-01-31T12:00:00Z, or a Unix time in"
            f" seconds or milliseconds, not '{text[:40]}'"
        ) from None
