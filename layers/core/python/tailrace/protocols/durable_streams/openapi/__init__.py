"""The OpenAPI document: what FastAPI knows about its own routes, with the stream routes beside it.

Stream requests never reach FastAPI, so nothing can derive what they take; that is written here, and
tests fail when a header, a query parameter or an error is missing or an answer is not as described.
"""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from tailrace.protocols.durable_streams.openapi.broadcasts import CABLE, broadcast_paths
from tailrace.protocols.durable_streams.openapi.components import Components
from tailrace.protocols.durable_streams.openapi.failures import known_errors
from tailrace.protocols.durable_streams.openapi.guide import EXAMPLE_URL, guide
from tailrace.protocols.durable_streams.openapi.headers import MAIN, PARAMETERS, Json
from tailrace.protocols.durable_streams.openapi.operations import (
    SERVER,
    STREAMS,
    completed,
    stream_paths,
)
from tailrace.settings import Settings


def describe(api: FastAPI, settings: Settings) -> Json:
    """The document for an application that serves `api` and the stream routes."""
    base = settings.public_url.rstrip("/") or EXAMPLE_URL
    document = get_openapi(
        title="Tailrace",
        version=api.version,
        summary="A Durable Streams server: append-only logs that live at a URL.",
        description=guide(base, settings),
        license_info={"name": "Apache 2.0", "identifier": "Apache-2.0"},
        servers=[{"url": settings.public_url.rstrip("/") or "/"}],
        tags=[
            {"name": STREAMS, "description": f"Every stream has a URL below `{MAIN}`."},
            {"name": CABLE, "description": "For applications whose pages use Action Cable."},
            {"name": SERVER, "description": "What is there, and whether it is well."},
        ],
        routes=api.routes,
    )
    components = Components({type(known.sample): known for known in known_errors(settings)})
    document["paths"] = {
        **stream_paths(components, base, settings),
        **broadcast_paths(components, base, settings),
        **{path: completed(item, components, base) for path, item in document["paths"].items()},
    }
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas |= components.schemas()
    document["security"] = [{}, {"bearer": []}]
    document["components"] |= {
        "securitySchemes": {
            "bearer": {
                "type": "http",
                "scheme": "bearer",
                "bearerFormat": "JWT",
                "description": "Says what its holder may do, with which streams.",
            }
        },
        "parameters": PARAMETERS,
        "headers": components.headers,
        "responses": components.responses,
        "examples": components.examples(),
    }
    return document
