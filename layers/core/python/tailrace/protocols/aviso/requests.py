"""Bodies of requests: checked in the order in which their mistakes are told."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from tailrace.limits import AVISO_JSON_DEPTH
from tailrace.log import json_mode
from tailrace.protocols.aviso import constraints, moments, topics
from tailrace.protocols.aviso.constraints import Constraint
from tailrace.protocols.aviso.envelope import Accepted
from tailrace.protocols.aviso.errors import (
    BadField,
    Operation,
    bad_body,
    invalid,
    unknown_event_type,
)
from tailrace.protocols.aviso.filters import Filter
from tailrace.protocols.aviso.handlers import (
    POINT,
    POLYGON,
    Handler,
    PointCloudHandler,
    PolygonHandler,
)
from tailrace.protocols.aviso.schema import EventType
from tailrace.protocols.aviso.shapes import Ring

FIELDS: Final = frozenset(
    ("event_type", "identifier", "payload", "from_id", "from_date", "to_id", "to_date")
)

_SEQUENCE: Final = re.compile(r"\+?[0-9]+")
_MOST_SEQUENCE: Final = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Body:
    """A body of the common form; what its fields say is still to be looked at."""

    operation: Operation
    event: EventType
    identifier: Mapping[str, Any]
    payload: Any
    bounds: Mapping[str, str]
    """`from_id`, `from_date`, `to_id` and `to_date`, as far as they are given."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where a replay begins or ends: at a sequence or an instant."""

    sequence: int | None = None
    instant: int | None = None
    """Nanoseconds since 1970."""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a watch or a replay asks for."""

    filter: Filter
    start: Start | None
    stop: Start | None = None


def parse_body(raw: bytes, operation: Operation, events: Mapping[str, EventType]) -> Body:
    """A body of an event type that there is, or `Refused`."""
    value = _parsed(raw, operation)
    if not isinstance(value, dict):
        raise _misshapen(operation, "the body must be an object")
    for key in value:
        if key not in FIELDS:
            raise bad_body(operation, "UNKNOWN_FIELD", f"unknown field '{key[:80]}'")
    event_type, identifier = value.get("event_type"), value.get("identifier")
    if not isinstance(event_type, str):
        raise _misshapen(operation, "event_type must be there, and text")
    if not isinstance(identifier, dict):
        raise _misshapen(operation, "identifier must be there, and an object")
    bounds = {}
    for key in ("from_id", "from_date", "to_id", "to_date"):
        given = value.get(key)
        if given is not None:
            if not isinstance(given, str):
                raise _misshapen(operation, f"{key} must be text")
            bounds[key] = given
    event = events.get(event_type)
    if event is None:
        raise unknown_event_type(event_type, list(events))
    return Body(operation, event, identifier, value.get("payload"), bounds)


def _parsed(raw: bytes, operation: Operation) -> Any:
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        message = "the body is not valid JSON"
        raise bad_body(operation, "INVALID_JSON", message, str(error)) from None
    if json_mode.is_deeper(raw, AVISO_JSON_DEPTH):
        message = f"the body is nested deeper than {AVISO_JSON_DEPTH} levels"
        raise bad_body(operation, "INVALID_JSON", message)
    return value


def _misshapen(operation: Operation, message: str) -> Exception:
    return bad_body(operation, "INVALID_REQUEST_SHAPE", message)


# Notifications


def refuse_point(body: Body) -> None:
    """Before anybody is asked who they are: a point is a filter, never part of a notification."""
    if "point" in body.identifier:
        raise invalid(body.operation, "identifier.point is a filter of watch and replay only")
    for key in ("to_id", "to_date"):
        if key in body.bounds:
            raise invalid(body.operation, f"{key} is for replay only")


def parse_notification(body: Body) -> Accepted:
    event, identifier = body.event, body.identifier
    try:
        _refuse_unknown(body, event.fields)
        values, spatial, ring = {}, {}, None
        for name, handler in event.fields.items():
            if name == "point":
                continue
            if name not in identifier:
                raise BadField(f"Required field '{name}' missing for notify operation")
            if handler.spatial:
                spatial[name] = identifier[name]
                ring = _notified_shape(handler, identifier[name])
            else:
                values[name] = handler.canonical(_scalar(name, identifier[name]))
    except BadField as error:
        raise invalid(body.operation, str(error)) from None
    if event.payload_required and body.payload is None:
        raise invalid(body.operation, f"payload is required for event type '{event.name}'")
    ordered = tuple(values[handler.name] for handler in event.keys)
    return Accepted(event, ordered, spatial, ring, body.payload)


def _notified_shape(handler: Handler, value: Any) -> Ring:
    if isinstance(handler, PointCloudHandler):
        return handler.cloud(value)
    assert isinstance(handler, PolygonHandler)
    return handler.ring(value)


def _refuse_unknown(body: Body, known: Mapping[str, Handler]) -> None:
    operation = "notify" if body.operation is Operation.NOTIFICATION else body.operation.value
    for name in body.identifier:
        if name not in known and name != "point":
            raise BadField(f"Unknown field '{name[:80]}' provided for {operation} operation")


def _scalar(name: str, value: Any) -> str:
    """A value as text, numbers as JSON has them."""
    match value:
        case str():
            return value
        case bool() | int() | float():
            return orjson.dumps(value).decode()
        case None:
            raise BadField(f"field '{name}' must be a valid value: it is null")
        case list():
            raise BadField(f"field '{name}' must be a valid value: it is an array")
        case _:
            raise BadField(f"field '{name}' must be a valid value: only filters take constraints")


# Filters


def parse_subscription(body: Body) -> Subscription:
    operation, identifier = body.operation, body.identifier
    if "polygon" in identifier and "point" in identifier:
        raise invalid(operation, "identifier has polygon and point; give one of them")
    try:
        point = POINT.pair(identifier["point"]) if "point" in identifier else None
    except BadField as error:
        raise invalid(operation, str(error)) from None
    start, stop = _bounds(body)
    try:
        return Subscription(_filter(body, point), start, stop)
    except BadField as error:
        raise invalid(operation, str(error)) from None


def _filter(body: Body, point: tuple[float, float] | None) -> Filter:
    event, identifier = body.event, body.identifier
    cloud = "point_cloud" in event.fields
    for name in ("point_cloud", "point"):
        if cloud and name in identifier:
            raise BadField(f"field '{name}' is no filter here; give a polygon")
    _refuse_unknown(body, {**event.fields, "polygon": POLYGON} if cloud else event.fields)
    polygon = POLYGON.ring(identifier["polygon"]) if "polygon" in identifier else None
    asked: dict[int, Constraint] = {}
    shown: list[str | None] = [None] * len(event.keys)
    for place, handler in enumerate(event.keys):
        if handler.name not in identifier:
            if handler.required:
                raise _missing(body, handler.name)
            continue
        given = identifier[handler.name]
        if isinstance(given, dict):
            asked[place] = constraints.parse(handler, given)
        elif given != topics.ANY:
            shown[place] = text = handler.canonical(_scalar(handler.name, given))
            asked[place] = constraints.exactly(text)
        elif handler.type not in ("StringHandler", "ExpverHandler"):
            handler.canonical(given)
    for name, handler in event.fields.items():
        if handler.spatial and handler.required and polygon is None and point is None:
            raise _missing(body, name)
    return Filter(event, asked, polygon, point, topics.shown(event.base, shown))


def _missing(body: Body, name: str) -> BadField:
    return BadField(f"Required field '{name}' missing for {body.operation.value} operation")


# Bounds


def _bounds(body: Body) -> tuple[Start | None, Start | None]:
    operation, bounds = body.operation, body.bounds
    starts = [_start(body, key) for key in ("from_id", "from_date") if key in bounds]
    if len(starts) > 1:
        raise invalid(operation, "give from_id or from_date, not both")
    stops = [key for key in ("to_id", "to_date") if key in bounds]
    if stops and operation is not Operation.REPLAY:
        raise invalid(operation, f"{stops[0]} is for replay only")
    ends = [_start(body, key) for key in stops]
    if len(ends) > 1:
        raise invalid(operation, "give to_id or to_date, not both")
    if not starts:
        if operation is Operation.REPLAY:
            raise invalid(operation, "a replay needs from_id or from_date")
        return None, None
    start, end = starts[0], ends[0] if ends else None
    if end is not None and _before(end, start):
        raise invalid(operation, f"{stops[0]} is before the start")
    return start, end


def _before(end: Start, start: Start) -> bool:
    """Of two bounds of one kind; those of two kinds meet only in the stream."""
    if end.sequence is not None and start.sequence is not None:
        return end.sequence < start.sequence
    return end.instant is not None and start.instant is not None and end.instant < start.instant


def _start(body: Body, key: str) -> Start:
    text = body.bounds[key]
    parse: Callable[[str], Start] = _by_sequence if key.endswith("_id") else _by_date
    try:
        return parse(text)
    except ValueError as error:
        raise invalid(body.operation, f"{key} is no start: {error}", str(error)) from None


def _by_sequence(text: str) -> Start:
    if not _SEQUENCE.fullmatch(text) or len(text) > 64 or int(text) > _MOST_SEQUENCE:
        raise ValueError("expected the digits of a sequence, such as 42")
    return Start(sequence=int(text), text=text)


def _by_date(text: str) -> Start:
    return Start(instant=moments.parse_instant(text), text=text)
