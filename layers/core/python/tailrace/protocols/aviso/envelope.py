"""A notification as the log has it: a CloudEvent, one message of its stream.

| attribute | |
|---|---|
| `subject` | the topic; first, so that a filter need not parse what it does not want |
| `spatialbbox` | `south,west,north,east` of its shape, if it has one |
| `specversion`, `datacontenttype` | `1.0`, `application/json` |
| `id` | of the request that sent it; clients of Aviso get `<event type>@<sequence>` instead |
| `source`, `type` | the server, `int.ecmwf.aviso.<event type>` |
| `time` | when it was accepted, UTC |
| `data` | `identifier` and `payload`, as clients of Aviso get them; last, to be sent as it is |

The order is fixed and there is no space, so that the parts are found without parsing. What somebody
appended to the stream otherwise, and does not look like this, is no notification.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson

from tailrace.limits import AVISO_EVENT_BYTES
from tailrace.protocols.aviso import moments, topics
from tailrace.protocols.aviso.schema import EventType
from tailrace.protocols.aviso.shapes import Box, Ring

TYPE: Final = "int.ecmwf.aviso."

_TEXT: Final = rb'[^"\\]*(?:\\.[^"\\]*)*'


class Accepted(NamedTuple):
    """A notification whose values are all as they are kept."""

    event: EventType
    values: tuple[str, ...]
    """Of the topic's fields, in its order."""
    spatial: dict[str, Any]
    """The shape, as it was sent."""
    ring: Ring | None
    payload: Any


def encode(accepted: Accepted, request_id: str, source: str, now: int) -> bytes:
    """The message that is stored."""
    event = accepted.event
    names = [handler.name for handler in event.keys]
    identifier = dict(zip(names, accepted.values, strict=True)) | accepted.spatial
    attributes = {"subject": topics.join(event.base, accepted.values)}
    if accepted.ring is not None:
        attributes["spatialbbox"] = str(Box.around(accepted.ring))
    attributes |= {
        "specversion": "1.0",
        "id": request_id,
        "source": source,
        "type": TYPE + event.name,
        "time": moments.shown(now),
        "datacontenttype": "application/json",
    }
    data = {"identifier": identifier, "payload": accepted.payload}
    sorted_data = orjson.dumps(data, option=orjson.OPT_SORT_KEYS)
    return b'%b,"data":%b}' % (orjson.dumps(attributes)[:-1], sorted_data)


@lru_cache(maxsize=1024)
def head(subject: bytes) -> re.Pattern[bytes]:
    """An expression for notifications with a subject; it ends where the data begins."""
    return re.compile(
        rb'\{"subject":"(?P<subject>' + subject + rb')",'
        rb'(?:"spatialbbox":"(?P<box>[0-9eE.,+-]*)",)?'
        rb'"specversion":"1\.0","id":"' + _TEXT + rb'","source":"' + _TEXT + rb'",'
        rb'"type":"' + _TEXT + rb'","time":"(?P<time>[^"\\]*)",'
        rb'"datacontenttype":"application/json","data":'
    )


ANYTHING: Final = head(_TEXT)


class Notification:
    """A stored notification; what is not asked for is not parsed."""

    __slots__ = ("_body", "_data", "_found")

    def __init__(self, found: re.Match[bytes], body: bytes) -> None:
        self._found = found
        self._body = body
        self._data: dict[str, Any] | None = None

    @classmethod
    def of(cls, body: bytes) -> Notification | None:
        """What a stored body is, if it is a notification."""
        found = None if len(body) > AVISO_EVENT_BYTES else ANYTHING.match(body)
        notification = None if found is None else cls(found, body)
        return notification if notification is not None and notification.sound else None

    @property
    def sound(self) -> bool:
        """Whether it can be sent as it is. Who may append to the stream may append anything, and a
        line break, or a bracket too many, would become a part of what clients read."""
        if b"\n" in self._body or b"\r" in self._body:
            return False
        try:
            return isinstance(self.data["identifier"], dict)
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return False

    @property
    def subject(self) -> bytes:
        return self._found["subject"]

    @property
    def time(self) -> bytes:
        return self._found["time"]

    @property
    def raw_data(self) -> bytes:
        return self._body[self._found.end() : -1]

    @property
    def box(self) -> Box | None:
        found = self._found["box"]
        try:
            return None if found is None else Box.parse(found)
        except (ValueError, TypeError):
            return None

    @property
    def data(self) -> dict[str, Any]:
        if self._data is None:
            self._data = orjson.loads(self.raw_data)
        return self._data

    def values(self, event: EventType) -> list[str] | None:
        """Of the topic's fields; None when it was made by another schema."""
        raw = self.subject
        try:
            text = orjson.loads(b'"%b"' % raw) if b"\\" in raw else raw.decode()
            base, values = topics.split(text)
        except ValueError:
            return None
        return values if base == event.base and len(values) == len(event.keys) else None


class Renderer:
    """Notifications of an event type as events of Aviso, with all that is the same done once."""

    def __init__(self, event: EventType, base_url: str) -> None:
        schema, source = orjson.dumps(f"{base_url}/schema/{event.name}"), orjson.dumps(base_url)
        identity, kind = orjson.dumps(event.name)[:-1], orjson.dumps(TYPE + event.name)
        self._before_id = b',"datacontenttype":"application/json","dataschema":%b,"id":%b@' % (
            schema,
            identity,
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
