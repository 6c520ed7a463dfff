"""The OpenAPI document of Aviso, with a schema of the request bodies for each event type."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any, Final, TypeAlias

import orjson
import yaml

from tailrace import __version__
from tailrace.protocols.aviso import PREFIX
from tailrace.protocols.aviso.config import AvisoConfig
from tailrace.protocols.aviso.error_codes import RequestKind
from tailrace.protocols.aviso.event_types import EventType, EventTypes
from tailrace.protocols.aviso.field_handlers import Handler, IntHandler

Json: TypeAlias = dict[str, Any]

_SCALAR: Final = ["string", "number", "boolean"]
_PAIRS: Final[Json] = {
    "type": "array",
    "items": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
}
_SHAPES: Final[dict[str, Json]] = {
    "polygon": {"anyOf": [{"type": "string"}, _PAIRS]},
    "point": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "number"}}]},
    "point_cloud": _PAIRS,
}
_BOUNDS: Final = {
    "from_id": "A sequence, inclusive; 0 is the beginning.",
    "from_date": "An instant, inclusive.",
    "to_id": "The last sequence; replays only.",
    "to_date": "The last instant; replays only.",
}


def describe(config: AvisoConfig) -> Json:
    document: Json = orjson.loads(_packaged())
    events = config.events
    for operation in RequestKind if events else ():
        named = [_request(operation, event) for event in events.values()]
        schema = {"oneOf": named if events.strict else [*named, _schemaless(operation, events)]}
        body = document["paths"][f"{PREFIX}{operation.value}"]["post"]["requestBody"]
        body["content"]["application/json"]["schema"] = schema
    return document


@cache
def _packaged() -> bytes:
    text = files("tailrace.protocols.aviso").joinpath("openapi.yaml").read_bytes()
    document = yaml.safe_load(text)
    document["info"]["version"] = __version__
    return orjson.dumps(document)


def _request(operation: RequestKind, event: EventType) -> Json:
    notifies = operation is RequestKind.NOTIFICATION
    fields = {name: handler for name, handler in event.fields.items() if name != "point"}
    if not notifies:
        fields.pop("point_cloud", None)
    properties = {
        name: _field(handler, constrained=not notifies) for name, handler in fields.items()
    }
    if not notifies:
        properties["point"] = _SHAPES["point"]
        if "point_cloud" in event.fields:
            properties = {**properties, "polygon": _SHAPES["polygon"]}
            del properties["point"]
    required = [
        name
        for name, handler in fields.items()
        if notifies or (handler.required and not handler.spatial)
    ]
    identifier: Json = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    body = _body(operation, event.name, {"const": event.name}, identifier)
    if notifies and event.payload_required:
        body["required"].append("payload")
    return body


def _schemaless(operation: RequestKind, events: EventTypes) -> Json:
    notifies = operation is RequestKind.NOTIFICATION
    identifier: Json = {
        "type": "object",
        "properties": {
            "polygon": _SHAPES["polygon"],
            "point": False if notifies else _SHAPES["point"],
        },
        "additionalProperties": {"type": _SCALAR},
    }
    name: Json = {"type": "string", "not": {"enum": list(events)}}
    return _body(operation, "an event type without a schema", name, identifier)


def _body(operation: RequestKind, title: str, event_type: Json, identifier: Json) -> Json:
    properties: Json = {
        "event_type": event_type,
        "identifier": identifier,
        "payload": {"description": "Any JSON."},
    }
    for name, about in _BOUNDS.items():
        starts = operation is RequestKind.WATCH and name.startswith("from")
        if starts or operation is RequestKind.REPLAY:
            properties[name] = {"type": ["string", "null"], "description": about}
    return {
        "type": "object",
        "title": title,
        "properties": properties,
        "required": ["event_type", "identifier"],
        "additionalProperties": False,
    }


def _field(handler: Handler, *, constrained: bool) -> Json:
    about: Json = {"description": handler.description or handler.type}
    if handler.spatial:
        return {**about, **_SHAPES[handler.name]}
    if not constrained or not handler.operators:
        return {**about, "type": _SCALAR}
    operand: Json = {"type": "integer" if isinstance(handler, IntHandler) else "number"}
    if not handler.numeric:
        operand = {"type": "string"}
    several = {"type": "array", "items": operand, "minItems": 1}
    two = {"type": "array", "items": operand, "minItems": 2, "maxItems": 2}
    shapes = {"in": several, "between": two}
    operators = {name: shapes.get(name, operand) for name in sorted(handler.operators)}
    constraint = {
        "type": "object",
        "properties": operators,
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
    }
    return {**about, "anyOf": [{"type": _SCALAR}, constraint]}
