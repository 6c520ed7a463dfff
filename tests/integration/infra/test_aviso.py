"""Aviso in the stacks: its layer, its settings and its schema."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.infra.stacks import Stacks
from tests.integration.infra.test_functions import (
    FUNCTIONS,
    actions,
    deployed,
    resources,
    variables,
)
from tests.integration.infra.test_history import text

SCHEMA = "schemas.example.org/aviso/types.yaml"


def aviso_settings(stacks: Stacks, name: str) -> dict[str, Any]:
    return {
        key.removeprefix("TAILRACE_AVISO_"): value
        for key, value in variables(stacks, name).items()
        if key.startswith("TAILRACE_AVISO_")
    }


@pytest.mark.parametrize("name", ["http", "live"])
def test_http_and_live_get_the_duration_of_watches(dev: Stacks, afar: Stacks, name: str) -> None:
    times = {"HEARTBEAT": "10", "MAX_DURATION": "50"}
    assert aviso_settings(dev, name) == {**times, "SCHEMA": "", "ADMIN_ROLES": ""}
    assert aviso_settings(afar, name) == {
        **times,
        "SCHEMA": f"s3://{SCHEMA}",
        "ADMIN_ROLES": "ops=admin,lead; lab=*",
        "BASE_URL": "https://streams.example.org",
    }


def reads_schema(stacks: Stacks) -> list[str]:
    """The functions that may read exactly that object."""
    return [
        name
        for name in FUNCTIONS
        for statement in stacks.statements(name)
        if actions(statement) == {"s3:GetObject"}
        and f'arn:<"AWS::Partition">:s3:::{SCHEMA}' in map(text, resources(statement))
    ]


def test_only_http_and_live_may_read_the_schema(dev: Stacks, afar: Stacks) -> None:
    assert reads_schema(afar) == ["http", "live"]
    assert reads_schema(dev) == []


def layers(stacks: Stacks, name: str) -> set[str]:
    versions = stacks.resources("AWS::Lambda::LayerVersion")
    return {versions[layer["Ref"]]["Description"] for layer in stacks.function(name)["Layers"]}


def test_only_http_and_live_have_the_aviso_layer(dev: Stacks) -> None:
    assert [name for name in FUNCTIONS if "Tailrace: aviso" in layers(dev, name)] == [
        "http",
        "live",
    ]
    # Lambda allows five layers per function.
    assert all(len(layers(dev, name)) <= 5 for name in FUNCTIONS)


def test_aviso_can_be_disabled(bare: Stacks) -> None:
    assert "Tailrace: aviso" not in json.dumps(bare.templates)
    for name in deployed(bare):
        assert aviso_settings(bare, name) == {}
    assert len(layers(bare, "http")) == 4
