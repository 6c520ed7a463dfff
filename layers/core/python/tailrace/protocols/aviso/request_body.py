"""Parses request bodies. The order of the checks decides which error is reported."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from tailrace.limits import AVISO_JSON_DEPTH
from tailrace.log import json_mode
from tailrace.protocols.aviso import constraints, timestamps, topics
from tailrace.protocols.aviso.constraints import Constraint
from tailrace.protocols.aviso.envelope import NewNotification
from tailrace.protocols.aviso.error_codes import (
    BadField,
    RequestKind,
    body_error,
    event_type_error,
    request_error,
)
from tailrace.protocols.aviso.event_types import EventType, EventTypes
from tailrace.protocols.aviso.field_handlers import (
    POINT,
    POLYGON,
    Handler,
    PointCloudHandler,
    PolygonHandler,
)
from tailrace.protocols.aviso.filters import Filter
from tailrace.protocols.aviso.shapes import Ring

FIELDS: Final = frozenset(
    ("event_type", "identifier", "payload", "from_id", "from_date", "to_id", "to_date")
)

_SEQUENCE: Final = re.compile(r"\+?[0-9]+")
_MAX_SEQUENCE: Final = 2**64 - 1


@dataclass(frozen=True, slots=True)
class RequestBody:
    """A body with fields of the right types; their values are not validated yet."""

    kind: RequestKind
    event: EventType
    identifier: Mapping[str, Any]
    payload: Any
    bounds: Mapping[str, str]
    """Those of `from_id`, `from_date`, `to_id` and `to_date` that are present."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The start or the end of a replay: a sequence or an instant."""

    sequence: int | None = None
    instant: int | None = None
    """Nanoseconds since 1970."""


@dataclass(frozen=True, slots=True)
class EventQuery:
    """The filter and the bounds of a watch or a replay."""

    filter: Filter
    start: Bound | None
    stop: Bound | None = None


def parse_body(raw: bytes, kind: RequestKind, events: EventTypes) -> RequestBody:
    """Parse a body and find its event type; raises `AvisoError`."""
    value = _parse_json(raw, kind)
    if not isinstance(value, dict):
        raise _shape_error(kind, "the body must be an object")
    for key in value:
        if key not in FIELDS:
            raise body_error(kind, "UNKNOWN_FIELD", f"unknown field '{key[:80]}'")
    event_type, identifier = value.get("event_type"), value.get("identifier")
    if not isinstance(event_type, str):
        raise _shape_error(kind, "event_type is required and must be a string")
    if not isinstance(identifier, dict):
        raise _shape_error(kind, "identifier is required and must be an object")
    bounds = {}
    for key in ("from_id", "from_date", "to_id", "to_date"):
        bound = value.get(key)
        if bound is not None:
            if not isinstance(bound, str):
                raise _shape_error(kind, f"{key} must be a string")
            bounds[key] = bound
    try:
        event = events.find(event_type, identifier)
    except ValueError as error:
        raise request_error(kind, str(error)) from None
    if event is None:
        raise event_type_error(event_type, list(events))
    return RequestBody(kind, event, identifier, value.get("payload"), bounds)


def _parse_json(raw: bytes, kind: RequestKind) -> Any:
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        message = "the body is not valid JSON"
        raise body_error(kind, "INVALID_JSON", message, str(error)) from None
    if json_mode.is_deeper(raw, AVISO_JSON_DEPTH):
        message = f"the body is nested deeper than {AVISO_JSON_DEPTH} levels"
        raise body_error(kind, "INVALID_JSON", message)
    return value


def _shape_error(kind: RequestKind, message: str) -> Exception:
    return body_error(kind, "INVALID_REQUEST_SHAPE", message)


# Notifications


def refuse_filter_fields(body: RequestBody) -> None:
    """Refuse fields of filters in a notification; this comes before the caller's authorization."""
    if "point" in body.identifier:
        raise request_error(
            body.kind, "identifier.point is only allowed in the filters of watch and replay"
        )
    for key in ("to_id", "to_date"):
        if key in body.bounds:
            raise request_error(body.kind, f"{key} is only allowed in a replay")


def parse_notification(body: RequestBody) -> NewNotification:
    event, identifier = body.event, body.identifier
    try:
        _refuse_unknown_fields(body, event.fields)
        values, shapes = {}, {}
        for name, handler in event.fields.items():
            if name == "point":
                continue
            if name not in identifier:
                raise BadField(f"Required field '{name}' missing for notify operation")
            if handler.spatial:
                shapes[name] = _parse_shape(handler, identifier[name])
            else:
                values[name] = handler.canonical(_format_scalar(name, identifier[name]))
    except BadField as error:
        raise request_error(body.kind, str(error)) from None
    if event.payload_required and body.payload is None:
        raise request_error(body.kind, f"payload is required for event type '{event.name}'")
    ordered = {handler.name: values[handler.name] for handler in event.keys}
    return NewNotification(event, ordered, shapes, body.payload)


def _parse_shape(handler: Handler, value: Any) -> Ring:
    if isinstance(handler, PointCloudHandler):
        return handler.parse_cloud(value)
    assert isinstance(handler, PolygonHandler)
    return handler.parse_ring(value)


def _refuse_unknown_fields(body: RequestBody, fields: Mapping[str, Handler]) -> None:
    operation = "notify" if body.kind is RequestKind.NOTIFICATION else body.kind.value
    for name in body.identifier:
        if name not in fields and name != "point":
            raise BadField(f"Unknown field '{name[:80]}' provided for {operation} operation")


def _format_scalar(name: str, value: Any) -> str:
    """Convert a value to text; numbers keep their JSON form."""
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
            raise BadField(
                f"field '{name}' must be a valid value: constraints are only allowed in filters"
            )


# Filters


def parse_query(body: RequestBody) -> EventQuery:
    kind, identifier = body.kind, body.identifier
    if "polygon" in identifier and "point" in identifier:
        raise request_error(kind, "identifier has both polygon and point; use one of them")
    try:
        point = POINT.parse_pair(identifier["point"]) if "point" in identifier else None
    except BadField as error:
        raise request_error(kind, str(error)) from None
    start, stop = _parse_bounds(body)
    try:
        return EventQuery(_parse_filter(body, point), start, stop)
    except BadField as error:
        raise request_error(kind, str(error)) from None


def _parse_filter(body: RequestBody, point: tuple[float, float] | None) -> Filter:
    event, identifier = body.event, body.identifier
    cloud = "point_cloud" in event.fields
    for name in ("point_cloud", "point"):
        if cloud and name in identifier:
            raise BadField(f"field '{name}' cannot be filtered on in this event type; use polygon")
    _refuse_unknown_fields(body, {**event.fields, "polygon": POLYGON} if cloud else event.fields)
    polygon = POLYGON.parse_ring(identifier["polygon"]) if "polygon" in identifier else None
    field_constraints: dict[str, Constraint] = {}
    displayed: list[str | None] = [None] * len(event.keys)
    for position, handler in enumerate(event.keys):
        if handler.name not in identifier:
            if handler.required:
                raise _missing_field(body, handler.name)
            continue
        value = identifier[handler.name]
        if isinstance(value, dict):
            field_constraints[handler.name] = constraints.parse_constraint(handler, value)
        elif value != topics.ANY:
            displayed[position] = text = handler.canonical(_format_scalar(handler.name, value))
            field_constraints[handler.name] = constraints.match_exactly(text)
        elif handler.type not in ("StringHandler", "ExpverHandler"):
            # A star is a wildcard in text fields only: here this raises the error of the type.
            handler.canonical(value)
    for name, handler in event.fields.items():
        if handler.spatial and handler.required and polygon is None and point is None:
            raise _missing_field(body, name)
    topic = topics.format_pattern(event.base, displayed)
    return Filter(event, field_constraints, polygon, point, topic)


def _missing_field(body: RequestBody, name: str) -> BadField:
    return BadField(f"Required field '{name}' missing for {body.kind.value} operation")


# Bounds


def _parse_bounds(body: RequestBody) -> tuple[Bound | None, Bound | None]:
    kind, bounds = body.kind, body.bounds
    starts = [_parse_bound(body, key) for key in ("from_id", "from_date") if key in bounds]
    if len(starts) > 1:
        raise request_error(kind, "use from_id or from_date, not both")
    stops = [key for key in ("to_id", "to_date") if key in bounds]
    if stops and kind is not RequestKind.REPLAY:
        raise request_error(kind, f"{stops[0]} is only allowed in a replay")
    ends = [_parse_bound(body, key) for key in stops]
    if len(ends) > 1:
        raise request_error(kind, "use to_id or to_date, not both")
    if not starts:
        if kind is RequestKind.REPLAY:
            raise request_error(kind, "a replay needs from_id or from_date")
        return None, None
    start, end = starts[0], ends[0] if ends else None
    if end is not None and _is_before(end, start):
        raise request_error(kind, f"{stops[0]} is before the start")
    return start, end


def _is_before(end: Bound, start: Bound) -> bool:
    """Compare two sequences, or two instants; a sequence and an instant cannot be compared."""
    if end.sequence is not None and start.sequence is not None:
        return end.sequence < start.sequence
    return end.instant is not None and start.instant is not None and end.instant < start.instant


def _parse_bound(body: RequestBody, key: str) -> Bound:
    text = body.bounds[key]
    parse: Callable[[str], Bound] = _parse_sequence if key.endswith("_id") else _parse_date
    try:
        return parse(text)
    except ValueError as error:
        raise request_error(body.kind, f"{key} is invalid: {error}", str(error)) from None


def _parse_sequence(text: str) -> Bound:
    if not _SEQUENCE.fullmatch(text) or len(text) > 64 or int(text) > _MAX_SEQUENCE:
        raise ValueError("expected the digits of a sequence, such as 42")
    return Bound(sequence=int(text))


def _parse_date(text: str) -> Bound:
    return Bound(instant=timestamps.parse_instant(text))
