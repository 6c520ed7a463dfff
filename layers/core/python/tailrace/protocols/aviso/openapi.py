"""The OpenAPI document of Aviso: its routes, and identifiers as its event types have them."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from tailrace import __version__
from tailrace.protocols.aviso.config import Config
from tailrace.protocols.aviso.errors import LABELS, Operation
from tailrace.protocols.aviso.handlers import Handler, IntHandler
from tailrace.protocols.aviso.schema import EventType

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
_INVALID: Final = ("INVALID_JSON", "UNKNOWN_FIELD", "INVALID_REQUEST_SHAPE", "UNKNOWN_EVENT_TYPE")


def describe(config: Config) -> Json:
    names = {operation: _body(operation, config) for operation in Operation}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Aviso on Tailrace",
            "version": __version__,
            "description": "Notifications with typed identifiers, watched and replayed by filters.",
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"bearer_jwt": []}],
        "paths": {
            "/api/v1/notification": {"post": _notify(names[Operation.NOTIFICATION])},
            "/api/v1/watch": {"post": _events("watch", "Watch", names[Operation.WATCH])},
            "/api/v1/replay": {"post": _events("replay", "Replay", names[Operation.REPLAY])},
            "/api/v1/schema": {"get": _get("listSchemas", "Event types")},
            "/api/v1/schema/{event_type}": {
                "get": {
                    **_get("getSchema", "An event type", missing=True),
                    "parameters": [_in_path("event_type")],
                }
            },
            "/api/v1/admin/notification/{id}": {
                "delete": {
                    **_admin("deleteNotification", "Delete one", missing=True),
                    "parameters": [_in_path("id")],
                }
            },
            "/api/v1/admin/wipe/stream": {
                "delete": {
                    **_admin("wipeStream", "Delete all of one event type", missing=True),
                    "requestBody": _json_body(
                        {
                            "type": "object",
                            "properties": {"stream_name": {"type": "string"}},
                            "required": ["stream_name"],
                        }
                    ),
                }
            },
            "/api/v1/admin/wipe/all": {"delete": _admin("wipeAll", "Delete all")},
            "/ready": {"get": _get("getReady", "Whether the store answers", unready=True)},
        },
        "components": {
            "securitySchemes": {
                "bearer_jwt": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}
            },
            "schemas": {"Error": _error()},
        },
    }


def _notify(body: Json) -> Json:
    told = _object({"status": {}, "request_id": {}, "processed_at": {}})
    key = {"name": "Idempotency-Key", "in": "header", "schema": {"type": "string"}}
    return {
        "operationId": "notify",
        "summary": "Publish",
        "parameters": [{**key, "description": "What comes again with it is not stored again."}],
        "requestBody": body,
        "responses": {"200": _answer("It is stored.", told), **_errors(400, 401, 403, 429, 500)},
    }


def _events(name: str, summary: str, body: Json) -> Json:
    stream = {"text/event-stream": {"schema": {"type": "string"}}}
    return {
        "operationId": name,
        "summary": summary,
        "requestBody": body,
        "responses": {
            "200": {"description": "Server-sent events.", "content": stream},
            **_errors(400, 401, 403, 429, 500),
        },
    }


def _get(name: str, summary: str, *, missing: bool = False, unready: bool = False) -> Json:
    responses = {"200": _answer(f"{summary}.", {"type": "object"})}
    if missing:
        responses["404"] = _answer("There is none.", {"type": "object"})
    if unready:
        responses["503"] = _answer("It does not.", {"type": "object"})
    return {"operationId": name, "summary": summary, "responses": responses}


def _admin(name: str, summary: str, *, missing: bool = False) -> Json:
    told = _object({"success": {"type": "boolean"}, "message": {}, "request_id": {}})
    responses = {"200": _answer("Done.", told), **_errors(401, 403)}
    if missing:
        responses["400"] = {"description": "It is not named as it should be."}
        responses["404"] = _answer("There is none.", told)
    return {"operationId": name, "summary": summary, "responses": responses}


def _body(operation: Operation, config: Config) -> Json:
    return _json_body({"oneOf": [_request(operation, each) for each in config.events.values()]})


def _request(operation: Operation, event: EventType) -> Json:
    notifies = operation is Operation.NOTIFICATION
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
    whole: dict[str, Json] = {
        "event_type": {"const": event.name},
        "identifier": {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        },
        "payload": {"description": "Any JSON."},
    }
    for name, about in _BOUNDS.items():
        if operation is Operation.REPLAY or (name.startswith("from") and not notifies):
            whole[name] = {"type": ["string", "null"], "description": about}
    needs_payload = notifies and event.payload_required
    return {
        "type": "object",
        "title": event.name,
        "properties": whole,
        "required": ["event_type", "identifier", *(["payload"] if needs_payload else [])],
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


def _error() -> Json:
    codes = [*_INVALID, *(f"INVALID_{each.name}_REQUEST" for each in Operation), *LABELS]
    fields: dict[str, Json] = {"code": {"enum": sorted(set(codes))}, "error": {}, "message": {}}
    return _object({**fields, "request_id": {}})


def _errors(*statuses: int) -> Json:
    schema = {"$ref": "#/components/schemas/Error"}
    return {str(status): _answer("See `code`.", schema) for status in statuses}


def _answer(description: str, schema: Json) -> Json:
    header = {"description": "The name of the request.", "schema": {"type": "string"}}
    return {
        "description": description,
        "headers": {"X-Request-ID": header},
        "content": {"application/json": {"schema": schema}},
    }


def _object(fields: dict[str, Json]) -> Json:
    """Texts, unless their schema says otherwise."""
    properties = {name: schema or {"type": "string"} for name, schema in fields.items()}
    return {"type": "object", "properties": properties, "required": list(fields)}


def _json_body(schema: Json) -> Json:
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _in_path(name: str) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
