"""Filters of watch and replay requests, compiled once per request.

The head of a stored notification (see `envelope`) has everything but the shape, so a filter is
compiled to an expression over its bytes: most messages that a replay reads are never parsed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from tailrace.limits import AVISO_EVENT_BYTES
from tailrace.protocols.aviso import topics
from tailrace.protocols.aviso.constraints import Constraint, Number, OneOf
from tailrace.protocols.aviso.envelope import Notification, compile_head
from tailrace.protocols.aviso.event_types import EventType
from tailrace.protocols.aviso.field_handlers import Handler, IntHandler
from tailrace.protocols.aviso.shapes import Pair, Ring

if TYPE_CHECKING:
    from tailrace.protocols.aviso.geometry import ShapeMatcher

_ANY: Final = rb'[^".\\]*(?:\\.[^".\\]*)*'
"""Any value in a topic: dots are percent-encoded, quotes and backslashes are JSON escapes."""


@dataclass(frozen=True, slots=True)
class Filter:
    event: EventType
    constraints: Mapping[str, Constraint]
    """By field; a field without a constraint matches any value."""
    polygon: Ring | None = None
    point: Pair | None = None
    topic: str = ""
    """For display, with a star at each position that matches more than one value."""

    @property
    def spatial(self) -> bool:
        return self.polygon is not None or self.point is not None


class Matcher:
    """A compiled filter, applied to one message after the other."""

    def __init__(self, filter_: Filter) -> None:
        self._match_head = compile_head(_build_subject(filter_)).match
        self._numbers = [
            (f"n{position}", number_parser(handler), _compile(constraint))
            for position, handler in enumerate(filter_.event.keys)
            if (constraint := filter_.constraints.get(handler.name)) and _is_numeric(constraint)
        ]
        self._schemaless = filter_ if filter_.event.schemaless else None
        self._shape: ShapeMatcher | None = None
        if filter_.spatial:
            from tailrace.protocols.aviso.geometry import compile_shape

            self._shape = compile_shape(filter_.polygon, filter_.point)

    def match(self, body: bytes) -> Notification | None:
        """The notification in a stored message, if it is one and matches the filter."""
        head = None if len(body) > AVISO_EVENT_BYTES else self._match_head(body)
        if head is None:
            return None
        for group, parse, accepts in self._numbers:
            number = parse(head[group])
            if number is None or not accepts(number):
                return None
        notification = Notification(head, body)
        shape = self._shape
        if shape is not None and not shape.may_match(notification):
            return None
        if not notification.valid or not self._match_fields(notification):
            return None
        return notification if shape is None or shape.matches(notification) else None

    def _match_fields(self, notification: Notification) -> bool:
        """Compare fields, if the topic does not tell which they are."""
        if self._schemaless is None:
            return True
        event, constraints = self._schemaless.event, self._schemaless.constraints
        fields = notification.fields(event)
        return fields is not None and FieldValues(event, fields).match_all(constraints.items())


class FieldValues:
    """The fields of a notification, as text and, where they are numeric, as numbers."""

    __slots__ = ("numbers", "texts")

    def __init__(self, event: EventType, texts: Mapping[str, str]) -> None:
        self.texts = texts
        self.numbers: dict[str, Number | None] = {
            handler.name: number_parser(handler)(texts[handler.name])
            for handler in event.keys
            if handler.numeric
        }

    def match_all(self, constraints: Iterable[tuple[str, Constraint]]) -> bool:
        for name, constraint in constraints:
            if isinstance(constraint, OneOf):
                value = self.numbers[name] if constraint.numeric else self.texts.get(name)
                if value not in constraint.values:
                    return False
                continue
            number = self.numbers[name]
            if number is None or not constraint.contains(number):
                return False
        return True


def _build_subject(filter_: Filter) -> bytes:
    """An expression for the topics that match; numbers are captured, to be compared later."""
    parts = [re.escape(filter_.event.base).encode()]
    if filter_.event.schemaless:
        return rb"%b(?:\.%b)*" % (parts[0], _ANY)
    for position, handler in enumerate(filter_.event.keys):
        constraint = filter_.constraints.get(handler.name)
        if constraint is None:
            parts.append(_ANY)
        elif isinstance(constraint, OneOf) and not constraint.numeric:
            tokens = (orjson.dumps(topics.encode(str(each)))[1:-1] for each in constraint.values)
            parts.append(b"(?:%b)" % b"|".join(sorted(map(re.escape, tokens))))
        else:
            parts.append(b'(?P<n%d>[^".]*)' % position)
    return rb"\.".join(parts)


def _is_numeric(constraint: Constraint) -> bool:
    return not isinstance(constraint, OneOf) or constraint.numeric


def _compile(constraint: Constraint) -> Callable[[Number], bool]:
    if isinstance(constraint, OneOf):
        return constraint.values.__contains__
    return constraint.contains


def number_parser(handler: Handler) -> Callable[[bytes | str], Number | None]:
    """A parser for stored values of a numeric field.

    It returns None for a value that is not a number, which another schema may have left behind."""
    return _parse_int if isinstance(handler, IntHandler) else _parse_float


def _parse_int(token: bytes | str) -> int | None:
    try:
        return int(token)
    except ValueError:
        return None


def _parse_float(token: bytes | str) -> float | None:
    # In a topic the decimal point is percent-encoded, too.
    text = token if isinstance(token, str) else token.decode()
    try:
        return float(text.replace("%2E", "."))
    except ValueError:
        return None
