"""The OpenAPI document: valid, complete, and true."""

from __future__ import annotations

import re
from typing import Any

import jsonschema_rs
import pytest
import schemathesis

from tailrace.web.messages import Response
from tests.support.aviso import SQUARE, WORKING, Aviso


@pytest.fixture
async def document(aviso: Aviso) -> dict[str, Any]:
    status, document = await aviso.response("GET", "/api-docs/openapi.json")
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
    assert described == routes | {"GET /ready"}


AREA = {"name": 1, "polygon": SQUARE}


@pytest.mark.parametrize(
    ("path", "event_type", "identifier", "more", "good"),
    [
        ("notification", "product", WORKING, {}, True),
        ("notification", "product", {}, {}, False),
        ("notification", "area", AREA, {"payload": [1]}, True),
        ("notification", "nothing", {}, {}, False),
        ("notification", "product", {**WORKING, "x": 1}, {}, False),
        ("notification", "product", WORKING, {"x": 1}, False),
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
    answer = await aviso.ask("POST", f"/api/v1/{path}", fields)
    assert (answer.status == 200) is good
    if isinstance(answer, Response):
        assert str(answer.status) in operation["responses"]
