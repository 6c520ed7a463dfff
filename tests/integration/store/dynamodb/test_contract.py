"""The contract of all stores, on a real engine."""

from __future__ import annotations

import pytest

from devtools.engines.ministack import Engine
from devtools.processes import fresh_name
from tailrace.settings import Settings
from tailrace.store.dynamodb.store import DynamoStore
from tests.support.store_contract import Make, StoreContract


class TestDynamoStore(StoreContract):
    @pytest.fixture
    def make(self, aws: Engine, monkeypatch: pytest.MonkeyPatch) -> Make:
        for name, value in aws.env.items():
            monkeypatch.setenv(name, value)
        settings = Settings(store="dynamodb", table=fresh_name("contract"), poll_slowest=0.1)
        return lambda: DynamoStore(settings)
