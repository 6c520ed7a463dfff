"""The stored form of a notification: a CloudEvent, one message of its stream.

| attribute | |
|---|---|
| `subject` | the topic; first, so that a filter need not parse messages that do not match |
| `spatialbbox` | `south,west,north,east` of its shape, if it has one |
| `specversion`, `datacontenttype` | `1.0`, `application/json` |
| `id` | the id of the publishing request; clients get `<event type>@<sequence>` instead |
| `source`, `type` | the server, `int.ecmwf.aviso.<event type>` |
| `time` | when it was accepted, UTC |
| `data` | `identifier` and `payload`, in the form that clients get; last, to be sent unchanged |

The order is fixed and there are no spaces, so that the parts can be found without parsing. A
message of any other form, appended by some other client of the stream, is not a notification.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson

from tailrace.limits import AVISO_EVENT_BYTES
from tailrace.protocols.aviso import timestamps, topics
from tailrace.protocols.aviso.event_types import EventType
from tailrace.protocols.aviso.shapes import Box, Ring

TYPE: Final = "int.ecmwf.aviso."

_TEXT: Final = rb'[^"\\]*(?:\\.[^"\\]*)*'


class NewNotification(NamedTuple):
    """A validated notification, with all values in canonical form."""

    event: EventType
    values: Mapping[str, str]
    """The fields of the topic, in its order."""
    shapes: Mapping[str, Ring]
    payload: Any


def encode(notification: NewNotification, request_id: str, source: str, now: int) -> bytes:
    event = notification.event
    attributes = {"subject": topics.join(event.base, notification.values.values())}
    for ring in notification.shapes.values():
        attributes["spatialbbox"] = str(Box.around(ring))
    attributes |= {
        "specversion": "1.0",
        "id": request_id,
        "source": source,
        "type": TYPE + event.name,
        "time": timestamps.format_timestamp(now),
        "datacontenttype": "application/json",
    }
    identifier = {**notification.values, **notification.shapes}
    data = {"identifier": identifier, "payload": notification.payload}
    sorted_data = orjson.dumps(data, option=orjson.OPT_SORT_KEYS)
    return b'%b,"data":%b}' % (orjson.dumps(attributes)[:-1], sorted_data)


@lru_cache(maxsize=1024)
def compile_head(subject: bytes) -> re.Pattern[bytes]:
    """Compile an expression for notifications with a subject; a match ends before the data."""
    return re.compile(
        rb'\{"subject":"(?P<subject>' + subject + rb')",'
        rb'(?:"spatialbbox":"(?P<box>[0-9eE.,+-]*)",)?'
        rb'"specversion":"1\.0","id":"' + _TEXT + rb'","source":"' + _TEXT + rb'",'
        rb'"type":"' + _TEXT + rb'","time":"(?P<time>[^"\\]*)",'
        rb'"datacontenttype":"application/json","data":'
    )


_ANY_HEAD: Final = compile_head(_TEXT)


class Notification:
    """A stored notification, parsed lazily."""

    __slots__ = ("_body", "_data", "_head")

    def __init__(self, head: re.Match[bytes], body: bytes) -> None:
        self._head = head
        self._body = body
        self._data: dict[str, Any] | None = None

    @classmethod
    def parse(cls, body: bytes) -> Notification | None:
        """The notification in a stored message, if it is one."""
        head = None if len(body) > AVISO_EVENT_BYTES else _ANY_HEAD.match(body)
        notification = None if head is None else cls(head, body)
        return notification if notification is not None and notification.valid else None

    @property
    def valid(self) -> bool:
        """Whether it can be sent unchanged. Anybody who may append to the stream can append
        anything: a line break or an extra bracket would inject data into the events of clients."""
        if b"\n" in self._body or b"\r" in self._body:
            return False
        try:
            return isinstance(self.data["identifier"], dict)
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return False

    @property
    def subject(self) -> bytes:
        return self._head["subject"]

    @property
    def time(self) -> bytes:
        return self._head["time"]

    @property
    def raw_data(self) -> bytes:
        return self._body[self._head.end() : -1]

    @property
    def box(self) -> Box | None:
        box = self._head["box"]
        try:
            return None if box is None else Box.parse(box)
        except (ValueError, TypeError):
            return None

    @property
    def data(self) -> dict[str, Any]:
        if self._data is None:
            self._data = orjson.loads(self.raw_data)
        return self._data

    def fields(self, event: EventType) -> dict[str, str] | None:
        """The fields that a filter may constrain; None if it was published under another schema."""
        if event.schemaless:
            if self.subject.partition(b".")[0] != event.base.encode():
                return None
            fields = self.data["identifier"].items()
            return {name: value for name, value in fields if isinstance(value, str)}
        raw = self.subject
        try:
            text = orjson.loads(b'"%b"' % raw) if b"\\" in raw else raw.decode()
            base, values = topics.split(text)
        except ValueError:
            return None
        if base != event.base or len(values) != len(event.keys):
            return None
        return {handler.name: value for handler, value in zip(event.keys, values, strict=True)}


class Renderer:
    """Renders notifications of one event type as frames; prepares the constant parts once."""

    def __init__(self, event: EventType, base_url: str) -> None:
        source, kind = orjson.dumps(base_url), orjson.dumps(TYPE + event.name)
        schema = b'"dataschema":%b,' % orjson.dumps(f"{base_url}/schema/{event.name}")
        self._before_id = b',"datacontenttype":"application/json",%b"id":%b@' % (
            b"" if event.schemaless else schema,
            orjson.dumps(event.name)[:-1],
        )
        self._before_time = b'","source":%b,"specversion":"1.0","time":"' % source
        self._end = b'","type":%b}\n\n' % kind

    def frame(self, name: bytes, sequence: int, notification: Notification) -> bytes:
        return b'event: %b\ndata: {"data":%b%b%d%b%b%b' % (
            name,
            notification.raw_data,
            self._before_id,
            sequence,
            self._before_time,
            notification.time,
            self._end,
        )
