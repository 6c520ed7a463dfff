"""The OpenAPI document of the server, the pages at `/docs`, and that at `/` without the console."""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Final, TypeAlias

import orjson

from tailrace import __version__
from tailrace.settings import Settings

Json: TypeAlias = dict[str, Any]

EXAMPLE_URL: Final = "http://localhost:4437"
"""The server's URL in examples, until the server's own replaces it."""

API_ROUTES: Final = ("/publish", "/presence/{stream}/users")
"""Routes of AnyCable's REST API."""

VIEWER: Final = "openapi-explorer.min.js"

POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; img-src data:;"
    b" connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of the pages: they load nothing from other sites."""


def describe(settings: Settings) -> Json:
    """The OpenAPI document, with the paths and the URL that are settings."""
    document: Json = orjson.loads(read("openapi.json"))
    api = "" if settings.read_only else settings.api_path
    served = {
        "/_broadcast": "" if settings.read_only else settings.broadcast_path,
        "/events": settings.events_path,
        **{f"/api{route}": api and f"{api}{route}" for route in API_ROUTES},
    }
    if settings.read_only:
        document["paths"] = {
            path: item for path, item in document["paths"].items() if "/__ds/" not in path
        }
    for documented, path in served.items():
        item = document["paths"].pop(documented)
        if path:
            document["paths"][path] = item
    if settings.public_url:
        document["servers"] = [{"url": settings.public_url.rstrip("/")}]
    return document


def read(name: str) -> bytes:
    return files("tailrace.docs").joinpath(name).read_bytes()


def page(name: str, **values: str) -> bytes:
    """A page, with the values that it has between `{{` and `}}`."""
    text = read(name).decode()
    for key, value in {"version": __version__, **values}.items():
        text = text.replace(f"{{{{{key}}}}}", value)
    return text.encode()
