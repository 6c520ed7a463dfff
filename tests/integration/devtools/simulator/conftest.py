"""The tables that the tests of DynamoDB's semantics ask: ours in memory, and a real engine's.

What holds for both is what a simulation over the one says about the other.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from devtools.dynamodb_simulator.table import MemoryTable
from devtools.engines.ministack import Engine
from devtools.processes import fresh_name
from tailrace.settings import Settings
from tailrace.store.dynamodb.provision import connect
from tailrace.store.dynamodb.table import TableClient
from tests.integration.devtools.simulator.test_semantics import NAME
from tests.support.dynamo import patience, shared_loader

__all__ = ["patience", "shared_loader"]


class Renamed:
    """A real table under the name that the tests use."""

    def __init__(self, client: TableClient, name: str) -> None:
        self._client = client
        self._name = name

    async def call(self, operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
        return await self._client.call(operation, self._renamed(request))

    def _renamed(self, value: Any) -> Any:
        match value:
            case dict():
                return {
                    self._name if key == NAME else key: self._renamed(each)
                    for key, each in value.items()
                }
            case list():
                return [self._renamed(each) for each in value]
            case _:
                return self._name if value == NAME else value


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "table" in metafunc.fixturenames and metafunc.module.__name__.endswith("test_semantics"):
        # An engine may take what DynamoDB refuses.
        strict = "refused" in metafunc.function.__name__
        kinds = ["memory"] if strict else ["memory", "engine"]
        metafunc.parametrize("table", kinds, indirect=True)


@pytest.fixture
async def table(request: pytest.FixtureRequest) -> AsyncIterator[MemoryTable | Renamed]:
    if getattr(request, "param", "memory") == "memory":
        yield MemoryTable(random.Random(0), latency=(0, 0), lag=0)
        return
    aws: Engine = request.getfixturevalue("aws")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in aws.env.items():
            patch.setenv(name, value)
        settings = Settings(store="dynamodb", table=fresh_name("semantics"))
        backend = await connect(settings)
        yield Renamed(backend.client, settings.table)
        await backend.close()
