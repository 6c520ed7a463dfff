"""Server-sent events: a batch of data, then a control event that says where it ends."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Iterator
from typing import Final

import orjson

from tailrace.limits import EVENT_STEP_BYTES
from tailrace.live.follower import Sink
from tailrace.log.content import Mode, join_bodies
from tailrace.streams import View
from tailrace.web.messages import RawHeaders

KEEP_ALIVE: Final = b": keep-alive\n\n"

HEADERS: Final[RawHeaders] = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]

RETRY: Final = b"retry: 1000\n\n"
"""How long a browser waits before it reconnects, in milliseconds."""

RETRY_SHARED: Final = b"retry: 100\n\n"
"""The same for a shared response, which ends with the first data."""

DELETED: Final = b"event: deleted\ndata:{}\n\n"
"""Tells a reader that the stream was deleted; the answer ends after it."""

_CR, _LF, _SPACE = b"\r\n "


def encode(view: View, cursor: int) -> bytes:
    """Encode a view as events."""
    return b"".join(pieces(view, cursor))


async def send(sink: Sink, view: View, cursor: int, before: bytes = b"") -> None:
    """Push a view as events: a large one in pieces, no faster than the client takes them.

    `before`: goes in front of them."""
    if is_small(view):
        sink.push(before + encode(view, cursor))
        return
    if before:
        sink.push(before)  # An empty chunk would end the response.
    for piece in pieces(view, cursor):
        if not sink.push(piece):
            await sink.drain()
        await asyncio.sleep(0)


def is_small(view: View) -> bool:
    """Whether a view is encoded at once without blocking other requests."""
    return sum(map(len, view.bodies)) <= EVENT_STEP_BYTES


def pieces(view: View, cursor: int) -> Iterator[bytes]:
    """Encode a view in pieces of bounded size."""
    if view.bodies:
        mode = view.tail.stream.config.mode
        yield from data_event(mode, join_bodies(mode, view.bodies))
    yield control_event(view, cursor)


def data_event(mode: Mode, payload: bytes) -> Iterator[bytes]:
    encoded = _base64(payload) if mode is Mode.BYTES else _lines(payload)
    first = next(encoded, b"")
    yield b"event: data\ndata:" + first
    yield from encoded
    yield b"\n\n"


def _base64(payload: bytes) -> Iterator[bytes]:
    size = EVENT_STEP_BYTES // 3 * 3
    for start in range(0, len(payload), size):
        yield b64encode(payload[start : start + size])


def _lines(payload: bytes) -> Iterator[bytes]:
    """Encode text, each line of which becomes a field of its own: no payload can forge an event.

    A line that begins with a space gets another one, since clients remove one from each field."""
    start, after_end = 0, True
    while start < len(payload):
        stop = start + EVENT_STEP_BYTES
        if payload[stop - 1 : stop + 1] == b"\r\n":
            stop += 1
        piece = payload[start:stop]
        begin = b" " if after_end and piece[0] == _SPACE else b""
        after_end = piece[-1] in (_CR, _LF)
        piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n ", b"\n  ")
        yield begin + piece.replace(b"\n", b"\ndata:")
        start = stop


def control_event(view: View, cursor: int) -> bytes:
    fields: dict[str, str | bool] = {"streamNextOffset": view.next_offset}
    if not view.closed:
        fields["streamCursor"] = str(cursor)
    if view.up_to_date:
        fields["upToDate"] = True
    if view.closed:
        fields["streamClosed"] = True
    # The id goes with the event that follows the data: a browser that reconnects has that data.
    event_id = view.next_offset.encode()
    return b"event: control\ndata:%b\nid:%b\n\n" % (orjson.dumps(fields), event_id)
