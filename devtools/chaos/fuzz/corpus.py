"""All operations of the server, taken from the OpenAPI documents that it serves.

What is documented is fuzzed: a new route or header is, as soon as it is in its document.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tailrace import docs
from tailrace.protocols.aviso.config import AvisoConfig
from tailrace.protocols.aviso.openapi import describe as describe_aviso
from tailrace.settings import Settings

METHODS: Final = ("get", "head", "put", "post", "delete", "options")

EVENT: Final[dict[str, Any]] = {
    "event_type": "extreme_event",
    "identifier": {
        "date": "2026-01-31",
        "hazard": "storm",
        "severity": 5,
        "anomaly": 12.5,
        "polygon": [[46, 7], [46, 9], [48, 9], [46, 7]],
    },
    "payload": {"location": "s3://products/42"},
}
FILTER: Final[dict[str, Any]] = {
    "event_type": "extreme_event",
    "identifier": {"severity": {"gte": 4}, "point": "46.5,8.5", "hazard": {"in": ["storm"]}},
    "from_id": "1",
}
AVISO_BODIES: Final = {
    "/api/v1/notification": (EVENT,),
    "/api/v1/watch": (FILTER, {**FILTER, "from_date": "2026-01-31T12:00:00Z"}),
    "/api/v1/replay": (FILTER, {**FILTER, "to_id": "9"}),
    "/api/v1/admin/wipe/stream": ({"stream_name": "mars"},),
}
"""Bodies of Aviso, whose document has no examples."""

UPGRADE: Final = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    "Sec-WebSocket-Protocol": "actioncable-v1-ext-json",
}


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    place: str
    """`path`, `query` or `header`."""
    values: tuple[str, ...]
    """Documented values."""


@dataclass(frozen=True, slots=True)
class Operation:
    method: str
    path: str
    """With the names of path parameters in braces."""
    parameters: tuple[Parameter, ...] = ()
    bodies: tuple[tuple[str, bytes], ...] = ()
    """Content types and bodies."""


def streams(settings: Settings) -> list[Operation]:
    """The operations of streams, of Action Cable over HTTP, of the JSON endpoints and pages."""
    cable = tuple(Parameter(name, "header", (value,)) for name, value in UPGRADE.items())
    upgrade = Operation("GET", settings.cable_path, cable)
    return [*operations(docs.describe(settings)), upgrade]


def aviso(settings: Settings) -> list[Operation]:
    """The operations of Aviso, with its configured event types."""
    return list(operations(describe_aviso(AvisoConfig.load(settings))))


def operations(document: Mapping[str, Any]) -> Iterator[Operation]:
    for path, item in document["paths"].items():
        for method in METHODS:
            if method not in item:
                continue
            found = [*item.get("parameters", ()), *item[method].get("parameters", ())]
            parameters = tuple(_parameter(document, each) for each in found)
            bodies = tuple(_bodies(document, path, item[method]))
            yield Operation(method.upper(), path, parameters, bodies)


def _parameter(document: Mapping[str, Any], found: Mapping[str, Any]) -> Parameter:
    parameter = _resolve(document, found)
    schema = _resolve(document, parameter.get("schema", {}))
    values: Sequence[Any] = [
        *(parameter[key] for key in ("example",) if key in parameter),
        *schema.get("enum", ()),
        *(schema[key] for key in ("default", "minimum", "maximum") if key in schema),
    ]
    return Parameter(parameter["name"], parameter["in"], tuple(map(str, values)))


def _bodies(
    document: Mapping[str, Any], path: str, operation: Mapping[str, Any]
) -> Iterator[tuple[str, bytes]]:
    content = _resolve(document, operation.get("requestBody", {})).get("content", {})
    for kind, media in content.items():
        example = media.get("example")
        if isinstance(example, str):
            yield kind, example.encode()
        elif example is not None:
            yield kind, json.dumps(example).encode()
        for body in AVISO_BODIES.get(path, ()):
            yield kind, json.dumps(body).encode()


def _resolve(document: Mapping[str, Any], value: Mapping[str, Any]) -> Mapping[str, Any]:
    while "$ref" in value:
        found: Any = document
        for part in value["$ref"].removeprefix("#/").split("/"):
            found = found[part.replace("~1", "/")]
        value = found
    return value
