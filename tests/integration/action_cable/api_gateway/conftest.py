"""A table, fake gateway and functions for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from devtools.engines.ministack import Engine
from devtools.processes import fresh_name
from tailrace.aws.client.json_client import Call
from tailrace.settings import Settings
from tailrace.store.dynamodb.provision import connect
from tests.integration.action_cable.api_gateway.world import Function, World


@pytest.fixture
async def world(aws: Engine, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    for name, value in aws.env.items():
        monkeypatch.setenv(name, value)
    settings = Settings(
        store="dynamodb",
        table=fresh_name("cable"),
        bucket=fresh_name("cable"),
        create_table=True,
        access="open",
        streams_whisper=True,
        presence_ttl=1,
        sessions_ttl=2,
    )
    calls: list[Call] = []
    backend = await connect(settings, calls.append)
    yield World(settings, backend, calls)
    await backend.close()


@pytest.fixture
async def function(world: World) -> AsyncIterator[Function]:
    async with world.function() as function:
        yield function
