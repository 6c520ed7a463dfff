"""Aviso: its layer, its settings, and its schema."""

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


def about_aviso(stacks: Stacks, name: str) -> dict[str, Any]:
    return {
        key.removeprefix("TAILRACE_AVISO_"): value
        for key, value in variables(stacks, name).items()
        if key.startswith("TAILRACE_AVISO_")
    }


@pytest.mark.parametrize("name", ["http", "live"])
def test_who_answers_knows_how_long_a_watch_may_last(dev: Stacks, afar: Stacks, name: str) -> None:
    times = {"HEARTBEAT": "10", "MAX_DURATION": "50"}
    assert about_aviso(dev, name) == {**times, "SCHEMA": "", "ADMIN_ROLES": ""}
    assert about_aviso(afar, name) == {
        **times,
        "SCHEMA": f"s3://{SCHEMA}",
        "ADMIN_ROLES": "ops=admin,lead; lab=*",
        "BASE_URL": "https://streams.example.org",
    }


def reads_schema(stacks: Stacks) -> list[str]:
    """Who may read exactly that object."""
    return [
        name
        for name in FUNCTIONS
        for statement in stacks.statements(name)
        if actions(statement) == {"s3:GetObject"}
        and f'arn:<"AWS::Partition">:s3:::{SCHEMA}' in map(text, resources(statement))
    ]


def test_the_schema_is_read_by_those_who_use_it(dev: Stacks, afar: Stacks) -> None:
    assert reads_schema(afar) == ["http", "live"]
    assert reads_schema(dev) == []


def layers(stacks: Stacks, name: str) -> set[str]:
    made = stacks.resources("AWS::Lambda::LayerVersion")
    return {made[layer["Ref"]]["Description"] for layer in stacks.function(name)["Layers"]}


def test_only_who_answers_has_the_layer(dev: Stacks) -> None:
    assert [name for name in FUNCTIONS if "Tailrace: aviso" in layers(dev, name)] == [
        "http",
        "live",
    ]
    # As many as a function can have.
    assert all(len(layers(dev, name)) <= 5 for name in FUNCTIONS)


def test_it_can_be_left_out(bare: Stacks) -> None:
    assert "Tailrace: aviso" not in json.dumps(bare.templates)
    for name in deployed(bare):
        assert about_aviso(bare, name) == {}
    assert len(layers(bare, "http")) == 4
