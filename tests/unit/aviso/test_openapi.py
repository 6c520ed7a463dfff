"""The OpenAPI document: valid, complete, and true."""

from __future__ import annotations

import re
from typing import Any

import jsonschema_rs
import pytest
import schemathesis

from tailrace.protocols.aviso.error_codes import LABELS, RequestKind
from tailrace.web.messages import Response
from tests.support.aviso import IDENTIFIER, SQUARE, Aviso


@pytest.fixture
async def document(aviso: Aviso) -> dict[str, Any]:
    status, document = await aviso.request("GET", "/api-docs/openapi.json")
    assert status == 200
    return document


async def test_it_is_valid(document: dict[str, Any]) -> None:
    schemathesis.openapi.from_dict(document).validate()


async def test_every_route_is_described(aviso: Aviso, document: dict[str, Any]) -> None:
    described = {
        f"{method.upper()} {re.sub('{.*}', '', path)}"
        for path, item in document["paths"].items()
        for method in item
    }
    routes = {name.replace(" ", " /api/v1/") for name in aviso.routes._routes}
    assert described == routes | {"GET /health", "GET /ready"}


async def test_every_error_is_described(document: dict[str, Any]) -> None:
    codes = set(document["components"]["schemas"]["Error"]["properties"]["code"]["enum"])
    invalid = {f"INVALID_{operation.name}_REQUEST" for operation in RequestKind}
    body = {"INVALID_JSON", "UNKNOWN_FIELD", "INVALID_REQUEST_SHAPE", "UNKNOWN_EVENT_TYPE"}
    assert codes == {*LABELS, *invalid, *body}
    described = re.findall(r"`([A-Z_]+)`", str(document["paths"]))
    assert set(described) == codes


AREA = {"name": 1, "polygon": SQUARE}


@pytest.mark.parametrize(
    ("path", "event_type", "identifier", "more", "good"),
    [
        ("notification", "product", IDENTIFIER, {}, True),
        ("notification", "product", {}, {}, False),
        ("notification", "area", AREA, {"payload": [1]}, True),
        ("notification", "nothing", {}, {}, False),
        ("notification", "product", {**IDENTIFIER, "x": 1}, {}, False),
        ("notification", "product", IDENTIFIER, {"x": 1}, False),
        ("replay", "product", {}, {"from_id": "0", "to_id": "5"}, True),
        ("replay", "product", {}, {"from_id": 0}, False),
        ("replay", "area", {"point": [0, 0]}, {"from_id": "0"}, True),
        ("replay", "product", {"step": {"gt": 1}}, {"from_id": "0"}, True),
        ("replay", "product", {"step": {"gt": "1"}}, {"from_id": "0"}, False),
        ("replay", "product", {"step": {}}, {"from_id": "0"}, False),
        ("replay", "product", {"date": {"eq": "x"}}, {"from_id": "0"}, False),
        ("replay", "cloud", {"polygon": SQUARE}, {"from_date": "0"}, True),
        ("replay", "cloud", {"point": "0,0"}, {"from_date": "0"}, False),
    ],
)
async def test_it_describes_what_is_taken(
    aviso: Aviso,
    document: dict[str, Any],
    path: str,
    event_type: str,
    identifier: dict[str, Any],
    more: dict[str, Any],
    good: bool,
) -> None:
    fields = {"event_type": event_type, "identifier": identifier, **more}
    operation = document["paths"][f"/api/v1/{path}"]["post"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    assert jsonschema_rs.is_valid(schema, fields) is good
    answer = await aviso.send("POST", f"/api/v1/{path}", fields)
    assert (answer.status == 200) is good
    if isinstance(answer, Response):
        assert str(answer.status) in operation["responses"]
