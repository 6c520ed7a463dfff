"""Server-sent events as a browser reads them (WHATWG HTML, "server-sent events")."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Self

import httpx

from tests.support.wire import Connection, request, target

_LINE = re.compile(rb"([^\r\n]*)(\r\n|\r|\n)")


class Event(NamedTuple):
    kind: str
    data: str

    @property
    def control(self) -> dict[str, Any]:
        assert self.kind == "control"
        value: dict[str, Any] = json.loads(self.data)
        return value


def parsed(stream: bytes) -> list[Event]:
    """The events of a whole response; an unfinished one at its end does not count."""
    events: list[Event] = []
    kind, data = "", list[str]()
    for match in _LINE.finditer(stream):
        line = match[1].decode()
        field, colon, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if data:
                events.append(Event(kind or "message", "\n".join(data)))
            kind, data = "", []
        elif field == "event":
            kind = value
        elif field == "data":
            data.append(value)
        elif field not in ("id", "retry"):
            assert colon, f"{line!r} is no field that the protocol has"
            assert not field, f"{line!r} is no field that the protocol has"
    return events


class EventStream:
    """A live read of one stream."""

    def __init__(
        self,
        connection: Connection,
        path: str,
        offset: str = "-1",
        headers: Mapping[str, str] | None = None,
        **query: str,
    ) -> None:
        self._connection = connection
        self._unread = list[Event]()
        where = target(path, live="sse", offset=offset, **query)
        connection.send(request("GET", where, headers or {}))
        self.status: int
        self.headers: httpx.Headers
        self.status, self.headers = connection.head()
        assert self.status == 200

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        while not self._unread:
            chunks = [self._connection.chunk()]
            # A large event comes in several chunks.
            while chunks[-1] and not chunks[-1].endswith(b"\n\n"):
                chunks.append(self._connection.chunk())
            if not chunks[-1]:
                raise StopIteration
            self._unread = parsed(b"".join(chunks))
        return self._unread.pop(0)

    def quiet(self, seconds: float) -> bool:
        """Whether nothing comes for a while, not even a comment."""
        return not self._unread and self._connection.quiet(seconds)

    def pair(self) -> tuple[str, dict[str, Any]]:
        """The next data, and the control event that has to follow it."""
        data = next(self)
        assert data.kind == "data"
        return data.data, next(self).control

    def caught_up(self) -> Self:
        """Reads until the server says that there is no more for now."""
        for event in self:
            if event.kind == "control" and "upToDate" in event.control:
                return self
        raise AssertionError("the response ended")
