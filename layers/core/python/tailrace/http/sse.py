"""Server-sent events: a batch of data, then a control event that says where it ends."""

from __future__ import annotations

import base64
import re
from typing import Final

import orjson

from tailrace.log.content import Mode, joined
from tailrace.streams import View

KEEP_ALIVE: Final = b": keep-alive\n\n"

_LINE_END = re.compile(rb"\r\n|\r|\n")


def encode(view: View, cursor: int) -> bytes:
    """A view as events."""
    events = control_event(view, cursor)
    if view.bodies:
        mode = view.tail.stream.config.mode
        events = data_event(mode, joined(mode, view.bodies)) + events
    return events


def data_event(mode: Mode, payload: bytes) -> bytes:
    if mode is Mode.BYTES:
        return b"event: data\ndata:%b\n\n" % base64.b64encode(payload)
    # Every kind of line end starts a new field, so that no payload can forge an event.
    lines = _LINE_END.split(payload)
    return b"event: data\n%b\n" % b"".join(
        [b"data:%b%b\n" % (b" " if line[:1] == b" " else b"", line) for line in lines]
    )


def control_event(view: View, cursor: int) -> bytes:
    fields: dict[str, str | bool] = {"streamNextOffset": view.next_offset}
    if not view.closed:
        fields["streamCursor"] = str(cursor)
    if view.up_to_date:
        fields["upToDate"] = True
    if view.closed:
        fields["streamClosed"] = True
    return b"event: control\ndata:%b\n\n" % orjson.dumps(fields)
