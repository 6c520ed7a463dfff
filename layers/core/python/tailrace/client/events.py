"""Server-sent events, parsed from pieces of any size."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from tailrace.client.content import ContentKind
from tailrace.client.errors import ProtocolError


class ServerEvent(NamedTuple):
    name: str
    data: str


class EventParser:
    """Splits a response into events; an event that is cut off is never reported."""

    def __init__(self) -> None:
        self._rest = b""
        self._name = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> Iterator[ServerEvent]:
        text = self._rest + piece
        if b"\r" in text:
            # The line end of two characters may be cut between them.
            held = text.endswith(b"\r")
            text = text[:-1] if held else text
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n") + b"\r" * held
        *lines, self._rest = text.split(b"\n")
        for line in lines:
            if line:
                self._field(line.decode(errors="replace"))
            elif self._data or self._name:
                yield ServerEvent(self._name or "message", "\n".join(self._data))
                self._name, self._data = "", []

    def _field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._name = value
        elif name == "data":
            self._data.append(value)


class Control(NamedTuple):
    """The event after data: where the stream goes on."""

    next_offset: str
    cursor: str | None
    up_to_date: bool
    closed: bool


def parse_control(data: str) -> Control:
    try:
        fields: dict[str, Any] = json.loads(data)
        cursor = fields.get("streamCursor")
        return Control(
            str(fields["streamNextOffset"]),
            None if cursor is None else str(cursor),
            fields.get("upToDate") is True,
            fields.get("streamClosed") is True,
        )
    except (ValueError, LookupError, TypeError, AttributeError):
        raise ProtocolError(f"a control event that cannot be read: {data[:80]!r}") from None


def decode_data(data: str, kind: ContentKind, encoding: str) -> bytes:
    """The bytes of a data event."""
    if encoding == "base64":
        try:
            return base64.b64decode("".join(data.split()), validate=True)
        except (binascii.Error, ValueError):
            raise ProtocolError("a data event that is not base64") from None
    body = data.encode()
    if kind is ContentKind.JSON and not body.lstrip().startswith(b"["):
        return b"[%b]" % body
    return body
