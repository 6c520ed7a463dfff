"""A filter: what watch and replay ask of notifications, compiled once for each request.

The head of a stored notification (`envelope`) holds everything but the shape, so a filter is an
expression over its bytes: most of what a replay reads is never parsed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from tailrace.limits import AVISO_EVENT_BYTES
from tailrace.protocols.aviso import topics
from tailrace.protocols.aviso.constraints import Constraint, Number, OneOf
from tailrace.protocols.aviso.envelope import Notification, head
from tailrace.protocols.aviso.handlers import Handler, IntHandler
from tailrace.protocols.aviso.schema import EventType
from tailrace.protocols.aviso.shapes import Pair, Ring

if TYPE_CHECKING:
    from tailrace.protocols.aviso.geometry import Shape

_ANY: Final = rb'[^".\\]*(?:\\.[^".\\]*)*'
"""A value in a topic: its dots are encoded, and its quotes and backslashes are those of JSON."""


@dataclass(frozen=True, slots=True)
class Filter:
    """`asked`: a constraint for places of the topic; where there is none, anything goes."""

    event: EventType
    asked: Mapping[int, Constraint]
    polygon: Ring | None = None
    point: Pair | None = None
    topic: str = ""
    """For people: a star where more than one value would do."""

    @property
    def spatial(self) -> bool:
        return self.polygon is not None or self.point is not None


class Test:
    """A filter ready to be asked about one notification after the other."""

    __test__ = False  # for pytest, which would take it for a class of tests

    def __init__(self, wanted: Filter) -> None:
        self._match = head(_subject(wanted)).match
        self._numbers = [
            (f"n{place}", number_of(wanted.event.keys[place]), _holds(asked))
            for place, asked in wanted.asked.items()
            if _is_numeric(asked)
        ]
        self._shape: Shape | None = None
        if wanted.spatial:
            from tailrace.protocols.aviso.geometry import asked_shape

            self._shape = asked_shape(wanted.polygon, wanted.point)

    def passes(self, body: bytes) -> Notification | None:
        """The notification in a stored body, if it is one and the filter lets it pass."""
        found = None if len(body) > AVISO_EVENT_BYTES else self._match(body)
        if found is None:
            return None
        for group, number, holds in self._numbers:
            value = number(found[group])
            if value is None or not holds(value):
                return None
        notification = Notification(found, body)
        shape = self._shape
        if shape is not None and not shape.near(notification):
            return None
        if not notification.sound:
            return None
        return notification if shape is None or shape.meets(notification) else None


def _subject(wanted: Filter) -> bytes:
    """An expression for the topics that pass, numbers aside."""
    parts = [re.escape(wanted.event.base).encode()]
    for place in range(len(wanted.event.keys)):
        asked = wanted.asked.get(place)
        if asked is None:
            parts.append(_ANY)
        elif isinstance(asked, OneOf) and not asked.numeric:
            tokens = (orjson.dumps(topics.encode(str(each)))[1:-1] for each in asked.values)
            parts.append(b"(?:%b)" % b"|".join(sorted(map(re.escape, tokens))))
        else:
            parts.append(b'(?P<n%d>[^".]*)' % place)
    return rb"\.".join(parts)


def _is_numeric(asked: Constraint) -> bool:
    return not isinstance(asked, OneOf) or asked.numeric


def _holds(asked: Constraint) -> Callable[[Number], bool]:
    return asked.values.__contains__ if isinstance(asked, OneOf) else asked.holds


def number_of(handler: Handler) -> Callable[[bytes | str], Number | None]:
    """Reads the kept form of a field; None where another schema left something else there."""
    return _integer if isinstance(handler, IntHandler) else _float


def _integer(token: bytes | str) -> int | None:
    try:
        return int(token)
    except ValueError:
        return None


def _float(token: bytes | str) -> float | None:
    # The dot of a number is encoded like any other.
    text = token if isinstance(token, str) else token.decode()
    try:
        return float(text.replace("%2E", "."))
    except ValueError:
        return None
