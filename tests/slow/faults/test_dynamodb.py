"""Longer bad days for the DynamoDB store than tests/integration has time for."""

from __future__ import annotations

import pytest

from devtools.engines.ministack import Engine
from tests.integration.faults.test_dynamodb import bad_day, environment
from tests.support.dynamo import patience, shared_loader

__all__ = ["environment", "patience", "shared_loader"]


@pytest.mark.parametrize(("attempts", "operations"), [(4, 2000), (1, 400)])
async def test_many_writers_and_readers_on_a_bad_day(
    aws: Engine, monkeypatch: pytest.MonkeyPatch, attempts: int, operations: int
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", str(attempts))
    await bad_day(aws, operations)
