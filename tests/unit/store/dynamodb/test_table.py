"""Failed calls of the table, as the rest of the store sees them."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tailrace.aws.client.failures import Unavailable
from tailrace.aws.client.json_client import JsonClient
from tailrace.errors import OutcomeUnknown, StoreUnavailable
from tailrace.store.dynamodb.table import Table


class Failing:
    def __init__(self, *, unclear: bool) -> None:
        self._unclear = unclear

    async def call(self, operation: str, _: dict[str, Any]) -> dict[str, Any]:
        raise Unavailable(operation, "it does not answer", unclear=self._unclear)


@pytest.mark.parametrize("unclear", [True, False])
@pytest.mark.parametrize("operation", ["PutItem", "TransactWriteItems", "GetItem", "Query"])
async def test_only_an_unclear_write_has_an_unknown_outcome(operation: str, unclear: bool) -> None:
    table = Table(cast("JsonClient", Failing(unclear=unclear)), "table")
    with pytest.raises(StoreUnavailable) as error:
        await table._call(operation)
    is_write = operation not in ("GetItem", "Query")
    assert isinstance(error.value, OutcomeUnknown) is (unclear and is_write)
