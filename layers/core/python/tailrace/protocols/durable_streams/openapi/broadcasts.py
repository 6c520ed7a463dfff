"""The operation by which applications broadcast to a cable."""

from __future__ import annotations

from typing import Final

from tailrace.protocols.durable_streams.openapi.components import Components
from tailrace.protocols.durable_streams.openapi.failures import OWN_ERRORS
from tailrace.protocols.durable_streams.openapi.guide import code_samples
from tailrace.protocols.durable_streams.openapi.headers import Json
from tailrace.settings import Settings

CABLE: Final = "Action Cable"

_PUBLICATION: Final[Json] = {
    "type": "object",
    "required": ["stream", "data"],
    "properties": {
        "stream": {"type": "string", "description": "Its name, such as `chat/42`."},
        "data": {
            "type": "string",
            "description": "JSON, which becomes one message; any other text becomes a string.",
        },
        "meta": {
            "type": "object",
            "properties": {
                "exclude_socket": {
                    "type": "string",
                    "description": "The session that does not get it.",
                },
                "transient": {
                    "type": "boolean",
                    "description": "Told to those who are there, and not kept.",
                },
                "broadcast_type": {
                    "type": "string",
                    "description": "The `type` that it is delivered with.",
                },
            },
        },
    },
}

_COMMAND: Final[Json] = {
    "type": "object",
    "required": ["command", "payload"],
    "properties": {
        "command": {"const": "disconnect"},
        "payload": {
            "type": "object",
            "required": ["identifier"],
            "properties": {
                "identifier": {
                    "type": "string",
                    "minLength": 1,
                    "description": "The claim `ext` of whose sessions are to end.",
                },
                "reconnect": {"type": "boolean", "description": "Whether they may come back."},
            },
        },
    },
}


def broadcast_paths(components: Components, base: str, settings: Settings) -> dict[str, Json]:
    """None where nothing is broadcast."""
    path, name = settings.broadcast_path, "broadcast"
    if not path or settings.read_only:
        return {}
    example = {"stream": "chat/42", "data": '{"text":"hello"}'}
    several = {"type": "array", "minItems": 1, "items": _PUBLICATION}
    schema = {
        "description": "A broadcast, several of them, or a command.",
        "anyOf": [_PUBLICATION, several, _COMMAND],
    }
    sample = (
        "curl -i -X POST \\\n"
        """  -d '{"stream":"chat/42","data":"{\\"text\\":\\"hello\\"}"}' \\\n"""
        f"  {base}{path}"
    )
    operation: Json = {
        "operationId": name,
        "summary": "Broadcast",
        "description": "As applications do it that use Action Cable: appends messages to streams of"
        " JSON, which are created if they are not there, and so tells everybody who listens,"
        " whatever by. Several come in an array, and are kept in its order. Takes the broadcast"
        " key as a bearer token, or a bearer token that may write to the streams; to end sessions,"
        " the key or the scope admin.",
        "parameters": [{"$ref": "#/components/parameters/X-Request-ID"}],
        "requestBody": {
            "description": "`Content-Type` is not looked at.",
            "required": True,
            "content": {"application/json": {"schema": schema, "example": example}},
        },
        "responses": {
            "201": components.response(name, 201, "Done. Without a body."),
            **components.errors(name, OWN_ERRORS[name]),
        },
        "tags": [CABLE],
        "x-codeSamples": code_samples({"One message": sample}),
    }
    return {path: {"post": operation}}
