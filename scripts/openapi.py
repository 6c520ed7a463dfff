"""Join the OpenAPI documents of the protocols and of FastAPI into the one that the server serves.

`make openapi` writes `tailrace/docs/openapi.json`; a test fails when it is out of date. The server
reads JSON because functions on AWS may have no package that reads YAML.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final, TypeAlias

import orjson
import yaml
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from tailrace import __version__
from tailrace.app import Application
from tailrace.settings import Settings

Json: TypeAlias = dict[str, Any]

PRODUCT: Final = Path(__file__).parent.parent / "layers" / "core" / "python" / "tailrace"
SOURCES: Final = (
    PRODUCT / "protocols" / "durable_streams" / "openapi.yaml",
    PRODUCT / "protocols" / "subscriptions" / "openapi.yaml",
    PRODUCT / "protocols" / "action_cable" / "openapi.yaml",
    PRODUCT / "web" / "openapi.yaml",
)
"""The first one has the title and the guide."""

TARGET: Final = PRODUCT / "docs" / "openapi.json"

_OTHER_FILE: Final = re.compile(r"[./a-z_]*/openapi\.yaml#")


def read(source: Path) -> Json:
    """Read a document, with references to the other documents replaced by local ones."""
    document: Json = yaml.safe_load(_OTHER_FILE.sub("#", source.read_text("utf-8")))
    return document


def join() -> Json:
    """Join the documents of everything but Aviso, which has its own."""
    documents = [*map(read, SOURCES), _fastapi()]
    extensions = [name for name in documents[0] if name.startswith("x-")]
    joined = {name: part for name, part in documents[0].items() if name not in extensions}
    joined["info"]["version"] = __version__
    joined["tags"] = [tag for document in documents for tag in document.get("tags", [])]
    joined["paths"] = {
        path: item for document in documents for path, item in document["paths"].items()
    }
    joined["components"] = {}
    for document in documents:
        for kind, components in document["components"].items():
            # Without those that only refer to a component of the same name in another document.
            own = {name: each for name, each in components.items() if not _is_reference(each, name)}
            joined["components"].setdefault(kind, {}).update(own)
    return joined


def _is_reference(component: Json, name: str) -> bool:
    return str(component.get("$ref", "")).endswith(f"/{name}")


def _fastapi() -> Json:
    """FastAPI's description of its own routes."""
    api = Application(Settings()).api
    assert isinstance(api, FastAPI)
    document = get_openapi(title="", version="", routes=api.routes)
    document["tags"] = [{"name": "Server", "description": "Streams, health and documentation."}]
    for item in document["paths"].values():
        for method, operation in item.items():
            # An invalid parameter is BAD_PARAMETER here.
            operation["responses"].pop("422", None)
            if method == "head":
                operation["responses"]["200"].pop("content", None)
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name)
    return document


def main() -> None:
    TARGET.write_bytes(orjson.dumps(join()) + b"\n")


if __name__ == "__main__":
    main()
